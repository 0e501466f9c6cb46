//! Whether a request means this gateway, by its `Host`.
//!
//! A page of any site can have its own name resolve to 127.0.0.1 (DNS rebinding); the browser then
//! takes what answers there for that site's own and lets the page read it. The one thing that tells
//! is the name, which the browser sends as `Host`.
//!
//! Promise: a request is let through only if it calls the gateway by an IP address, a loopback name
//! or a name that the operator gave it. An address cannot be rebound, so every one will do, which
//! covers the bound one and those of a gateway bound to all. Ports say nothing and are ignored.
//! HTTP/1.0 knew no `Host`, and no browser speaks it, so a request without one is let through there.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::{HeaderMap, Request, Uri, Version, header};

use super::problem::Problem;
use crate::address::HostName;

/// The names of this gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts(Vec<HostName>);

impl Hosts {
    pub(crate) fn new(names: Vec<HostName>) -> Self {
        Self(names)
    }

    /// Lets a request through, or says why not: 400 without exactly one valid `Host`
    /// (RFC 9112 §3.2), 421 with a name that is not ours (RFC 9110 §15.5.20).
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        self.check_parts(request.version(), request.uri(), request.headers())
    }

    fn check_parts(&self, version: Version, target: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            (None, _) if version <= Version::HTTP_10 => {}
            (None, _) => return Err(Problem::BadHost("there is no Host header")),
            (Some(_), Some(_)) => return Err(Problem::BadHost("there is more than one Host header")),
            (Some(host), None) => {
                let host = host.to_str().map_err(|_| Problem::BadHost("the Host header is not ASCII"))?;
                self.check_authority(host)?;
            }
        }
        // RFC 9112 §3.2.2: a target in absolute form takes precedence over Host.
        target.authority().map_or(Ok(()), |authority| self.check_authority(authority.as_str()))
    }

    fn check_authority(&self, authority: &str) -> Result<(), Problem> {
        let not_valid = Problem::BadHost("the host is not NAME, NAME:PORT or an IP address");
        let Some(host) = Host::parse(authority) else { return Err(not_valid) };
        match host {
            Host::Ip => Ok(()),
            Host::Name(name) if is_loopback(name.as_str()) || self.0.contains(&name) => Ok(()),
            Host::Name(name) => Err(Problem::Misdirected { host: name.as_str().to_owned() }),
        }
    }
}

/// What stands in front of the port.
enum Host {
    Ip,
    Name(HostName),
}

impl Host {
    /// Reads RFC 3986 §3.2.2's host and RFC 9110 §7.2's optional port. What is neither an address
    /// nor made of a name's characters is nothing.
    fn parse(authority: &str) -> Option<Self> {
        let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (Self::Ip, port.strip_prefix(':').or_else(|| port.is_empty().then_some(""))?)
        } else {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            let ip = host.parse::<Ipv4Addr>();
            (if ip.is_ok() { Self::Ip } else { Self::Name(host.parse().ok()?) }, port)
        };
        port.bytes().all(|b| b.is_ascii_digit()).then_some(host)
    }
}

/// RFC 6761 §6.3: `localhost` and all below it are loopback, for every resolver.
fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, target: &str, hosts: &[&str]) -> u16 {
        let names = Hosts::new(vec!["tasks.example.org".parse().unwrap(), "my_upstream".parse().unwrap()]);
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        match names.check_parts(version, &target.parse().unwrap(), &headers) {
            Ok(()) => 200,
            Err(Problem::BadHost(_)) => 400,
            Err(Problem::Misdirected { .. }) => 421,
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_addresses_loopback_names_and_given_names_are_ours() {
        for (host, status) in [
            ("localhost", 200),
            ("localhost:8080", 200),
            ("LocalHost.", 200),
            ("demo.localhost:1", 200),
            ("127.0.0.1", 200),
            ("127.9.9.9:80", 200),
            ("[::1]", 200),
            ("[::1]:8080", 200),
            ("192.0.2.7:8080", 200),
            ("[2001:db8::7]:8080", 200),
            ("tasks.example.org", 200),
            ("TASKS.example.org.:443", 200),
            ("my_upstream", 200),
            ("localhost:", 200),
            ("evil.test", 421),
            ("evil.test:8080", 421),
            ("localhost.evil.test", 421),
            ("notlocalhost", 421),
            ("127.0.0.1.evil.test", 421),
            ("x.tasks.example.org", 421),
            ("2130706433", 421),
            ("0x7f.1", 421),
            ("", 400),
            (":8080", 400),
            ("a b", 400),
            ("::1", 400),
            ("[::1", 400),
            ("[evil.test]", 400),
            ("[::1]evil.test", 400),
            ("[::1]x:80", 400),
            ("localhost:80:80", 400),
            ("localhost:http", 400),
            ("user@localhost", 400),
            ("localhost/", 400),
            ("localhost, evil.test", 400),
            ("\u{e9}.localhost", 400),
        ] {
            assert_eq!(check(Version::HTTP_11, "/", &[host]), status, "{host:?}");
        }
    }

    #[test]
    fn there_is_exactly_one_host_but_for_clients_older_than_it() {
        assert_eq!(check(Version::HTTP_11, "/", &[]), 400);
        assert_eq!(check(Version::HTTP_10, "/", &[]), 200);
        assert_eq!(check(Version::HTTP_10, "/", &["evil.test"]), 421);
        assert_eq!(check(Version::HTTP_11, "/", &["localhost", "localhost"]), 400);
        assert_eq!(check(Version::HTTP_11, "/", &["localhost", "evil.test"]), 400);
    }

    #[test]
    fn a_target_in_absolute_form_is_checked_too() {
        assert_eq!(check(Version::HTTP_11, "http://localhost/", &["localhost"]), 200);
        assert_eq!(check(Version::HTTP_11, "http://evil.test/", &["localhost"]), 421);
        assert_eq!(check(Version::HTTP_11, "http://localhost/", &["evil.test"]), 421);
    }
}
