//! Origins of pages that may read what the gateway shows.

use std::{fmt, net::Ipv6Addr, str::FromStr};

/// Where a page comes from: scheme, host and port (WHATWG HTML §7.1.1), in the one form in which a
/// browser sends it in `Origin`: lower case, without the port that the scheme implies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// The origin as a browser sends it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;
    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        if text == "null" {
            return Err(InvalidOrigin::Null);
        }
        let text = text.to_ascii_lowercase();
        let (scheme, authority) = text.split_once("://").ok_or(InvalidOrigin::Form)?;
        let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if !scheme_fits {
            return Err(InvalidOrigin::Form);
        }
        if authority.contains(['/', '?', '#']) {
            return Err(InvalidOrigin::Path);
        }
        // An IPv6 address has colons of its own.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let host = host_of(host).ok_or(InvalidOrigin::Form)?;
        let port = port.map(|port| port.parse::<u16>().map_err(|_| InvalidOrigin::Form)).transpose()?;
        let implied = match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let port = port.filter(|port| Some(*port) != implied).map(|port| format!(":{port}"));
        Ok(Self(format!("{scheme}://{host}{}", port.unwrap_or_default())))
    }
}

/// A host as a URL has it; a name of another script only in the form that the DNS knows.
fn host_of(text: &str) -> Option<String> {
    if let Some(address) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Some(format!("[{}]", address.parse::<Ipv6Addr>().ok()?));
    }
    let fits = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    fits.then(|| text.to_owned())
}

/// Why a text is not an [`Origin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOrigin {
    /// Not of the form `scheme://host[:port]`.
    #[error("an origin is scheme://host or scheme://host:port, such as https://product.example")]
    Form,
    /// More than scheme, host and port.
    #[error("an origin ends behind its host and port: it has no '/', path or query")]
    Path,
    /// `null`, which all sandboxed frames and local files share.
    #[error("'null' is the origin of any sandboxed frame and local file, so it names nobody")]
    Null,
}

/// Which pages of other origins may read lists and streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Every page that a browser which reaches the gateway shows; written `*`.
    Any,
    /// The pages of one origin.
    Exactly(Origin),
}

impl FromStr for AllowedOrigin {
    type Err = InvalidOrigin;
    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        if text == "*" { Ok(Self::Any) } else { text.parse().map(Self::Exactly) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_reads_as_a_browser_sends_it() {
        for (written, sent) in [
            ("https://product.example", "https://product.example"),
            ("HTTPS://Product.Example:443", "https://product.example"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("http://[0:0::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]"),
            ("vscode-webview://0abc", "vscode-webview://0abc"),
        ] {
            assert_eq!(written.parse::<Origin>().unwrap().as_str(), sent, "{written}");
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused_with_the_reason() {
        let refused = |text: &str| text.parse::<AllowedOrigin>().unwrap_err();
        for path in ["https://a.example/", "https://a.example/app", "https://a.example?x", "https://a.example#x"] {
            assert_eq!(refused(path), InvalidOrigin::Path, "{path}");
        }
        for form in [
            "",
            "a.example",
            "//a.example",
            "https://",
            "https://:443",
            "https://a b",
            "https://u@a.example",
            "https://a.example:",
            "https://a.example:99999",
            "https://[::g]",
            "https://bücher.example",
            "1://a",
            "https://*.a.example",
            "https://a.example,",
        ] {
            assert_eq!(refused(form), InvalidOrigin::Form, "{form}");
        }
        assert_eq!(refused("null"), InvalidOrigin::Null);
        assert_eq!("*".parse(), Ok(AllowedOrigin::Any));
    }
}
