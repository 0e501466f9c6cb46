//! Where the control API is, and by which names a gateway may be called.
//!
//! Promise: a value of these types is well formed. Whether anything is there, and whether a name
//! resolves, only a connect or a bind can tell.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// One place of the control API: a Unix socket, or a TCP address.
///
/// Its text is the same in both directions: `unix:PATH` or `HOST:PORT`; a text with a `/` in it is
/// a path too. The default is where the `tasklight` program looks when it is told nothing:
/// `tasklight.sock` in `$XDG_RUNTIME_DIR`, else `tasklight-UID.sock` in the temporary folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ControlAddress {
    /// A Unix socket. Who may connect is a matter of the file's mode.
    Unix(PathBuf),
    /// A TCP address. Who may connect is a matter of a token.
    Tcp {
        /// A name or an IP address, the latter without brackets.
        host: String,
        /// The port; 0 takes a free one.
        port: u16,
    },
}

/// Why a text is not a [`ControlAddress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write unix:PATH, a path with a '/' in it, or HOST:PORT such as 127.0.0.1:9090")]
pub struct InvalidControlAddress;

impl Default for ControlAddress {
    fn default() -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        Self::Unix(runtime.map_or_else(
            || std::env::temp_dir().join(format!("tasklight-{}.sock", rustix::process::geteuid().as_raw())),
            |folder| PathBuf::from(folder).join("tasklight.sock"),
        ))
    }
}

impl From<PathBuf> for ControlAddress {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

impl From<SocketAddr> for ControlAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for ControlAddress {
    type Err = InvalidControlAddress;

    fn from_str(text: &str) -> Result<Self, InvalidControlAddress> {
        let path = text.strip_prefix("unix:");
        if let Some(path) = path.or_else(|| text.contains('/').then_some(text)) {
            return if path.is_empty() { Err(InvalidControlAddress) } else { Ok(Self::Unix(path.into())) };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) = text.rsplit_once(':').ok_or(InvalidControlAddress)?;
        // Nothing but an IPv6 address has a colon, and one in brackets was read above.
        let host: HostName = host.parse().map_err(|_| InvalidControlAddress)?;
        Ok(Self::Tcp { host: host.0, port: port.parse().map_err(|_| InvalidControlAddress)? })
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// A name by which a gateway may be called: what a `Host` header may say beside loopback names and
/// IP addresses. Letters, digits, `-`, `_` and dots, in lower case, without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

/// Why a text is not a [`HostName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a host's name alone, such as tasks.example.org: no scheme, no port, no '*'")]
pub struct InvalidHostName;

impl HostName {
    /// The longest name, in bytes (RFC 1035 §2.3.4).
    pub const MAX_BYTES: usize = 253;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = InvalidHostName;

    /// Reads a name in either case, with or without the dot of the root.
    fn from_str(text: &str) -> Result<Self, InvalidHostName> {
        let name = text.strip_suffix('.').unwrap_or(text);
        // Not only what RFC 1123 allows in a host's name: upstreams and containers have others.
        let label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > Self::MAX_BYTES || !name.split('.').all(label) {
            return Err(InvalidHostName);
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_address_is_a_path_or_a_host_and_a_port() {
        let tcp = |host: &str, port| ControlAddress::Tcp { host: host.to_owned(), port };
        for (text, address) in [
            ("unix:/a/b", ControlAddress::Unix("/a/b".into())),
            ("unix:s", ControlAddress::Unix("s".into())),
            ("./s", ControlAddress::Unix("./s".into())),
            ("/a:1/b", ControlAddress::Unix("/a:1/b".into())),
            ("127.0.0.1:9090", tcp("127.0.0.1", 9090)),
            ("localhost:0", tcp("localhost", 0)),
            ("[::1]:9090", tcp("::1", 9090)),
            ("Build.Example.org.:1", tcp("build.example.org", 1)),
        ] {
            assert_eq!(text.parse::<ControlAddress>().as_ref(), Ok(&address), "{text}");
            assert_eq!(address.to_string().parse(), Ok(address), "{text}");
        }
        for bad in ["", "unix:", "8080", ":8080", "s", "host:", "host:65536", "::1:9090", "a b:1", "*:80", "host:-1"] {
            assert_eq!(bad.parse::<ControlAddress>(), Err(InvalidControlAddress), "{bad}");
        }
    }

    #[test]
    fn a_host_name_is_a_name_alone() {
        for (text, name) in [("a", "a"), ("Tasks.Example.ORG.", "tasks.example.org"), ("my_upstream", "my_upstream")] {
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), name);
        }
        for bad in ["", ".", "a..b", "a:80", "http://a", "*", "*.a", "a b", "é", "a,b", &"x".repeat(254)] {
            assert_eq!(bad.parse::<HostName>(), Err(InvalidHostName), "{bad}");
        }
    }
}
