//! Who asks, by address: the peer, or whom a trusted proxy says it asks for.
//!
//! Promise: nobody chooses his own address. `X-Forwarded-For` is read only from a proxy that the
//! operator named, and from its end: each proxy adds whom it was asked by, and what stands before
//! the first that is not trusted may be made up.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hyper::HeaderMap;

/// One client, as far as addresses tell. Of IPv6 addresses the network counts (RFC 6177): whoever
/// has one has 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// Who asks, by a connection from `peer`.
    pub(crate) fn of(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> Self {
        let is_trusted = |address: IpAddr| trusted.iter().any(|proxy| proxy.to_canonical() == address);
        let mut client = peer.to_canonical();
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let mut claims = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        while is_trusted(client) {
            // A proxy that does not say for whom asks for itself.
            let Some(claimed) = claims.next().and_then(address) else { break };
            client = claimed.to_canonical();
        }
        Self(network(client))
    }
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()))
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        let trusted: Vec<_> = trusted.iter().map(|address| address.parse().unwrap()).collect();
        Client::of(peer.parse().unwrap(), &headers, &trusted).0.to_string()
    }

    #[test]
    fn only_a_trusted_proxy_says_for_whom_it_asks() {
        let proxy: &[&str] = &["10.0.0.1"];
        assert_eq!(client("1.1.1.1", &["2.2.2.2"], proxy), "1.1.1.1");
        assert_eq!(client("10.0.0.1", &["2.2.2.2"], &[]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["2.2.2.2"], proxy), "2.2.2.2");
        assert_eq!(client("::ffff:10.0.0.1", &["2.2.2.2:80"], proxy), "2.2.2.2");
    }

    #[test]
    fn what_a_client_made_up_stands_before_its_address_and_is_not_read() {
        let proxies: &[&str] = &["10.0.0.1", "10.0.0.2"];
        assert_eq!(client("10.0.0.1", &["6.6.6.6, 2.2.2.2"], proxies), "2.2.2.2");
        assert_eq!(client("10.0.0.1", &["6.6.6.6", "2.2.2.2, 10.0.0.2"], proxies), "2.2.2.2");
        assert_eq!(client("10.0.0.1", &["10.0.0.2, 2.2.2.2"], proxies), "2.2.2.2");
    }

    #[test]
    fn a_proxy_that_does_not_say_for_whom_asks_for_itself() {
        let proxies: &[&str] = &["10.0.0.1", "10.0.0.2"];
        for nothing in [&[][..], &[""], &["unknown"], &["2.2.2.2, x"]] {
            assert_eq!(client("10.0.0.1", nothing, proxies), "10.0.0.1", "{nothing:?}");
        }
        assert_eq!(client("10.0.0.1", &["10.0.0.2"], proxies), "10.0.0.2");
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        assert_eq!(client("2001:db8:1:2:3::4", &[], &[]), "2001:db8:1:2::");
        assert_eq!(client("::1", &["[2001:db8:1:2::9]:443"], &["::1"]), "2001:db8:1:2::");
    }
}
