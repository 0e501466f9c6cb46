//! The ways to the control API: Unix sockets and TCP addresses, accepted from as one.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    task::{Context, Poll},
    time::Duration,
};

use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::{BindError, control_socket::ControlSocket, listen};
use crate::address::ControlAddress;

/// One way to the control API.
#[derive(Debug)]
enum ControlListener {
    Unix(ControlSocket),
    Tcp(TcpListener),
}

/// An accepted connection, by the way that it came.
pub(super) enum ControlStream {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr),
}

/// All ways to the control API of one gateway.
#[derive(Debug)]
pub(super) struct ControlListeners {
    listeners: Vec<ControlListener>,
    addresses: Vec<ControlAddress>,
}

impl ControlListeners {
    pub(super) fn bind(wanted: &[ControlAddress], peer_timeout: Duration) -> Result<Self, BindError> {
        let mut bound = Self { listeners: Vec::new(), addresses: Vec::new() };
        for address in wanted {
            let (listener, address) = match address {
                ControlAddress::Unix(path) => (ControlListener::Unix(ControlSocket::bind(path)?), address.clone()),
                ControlAddress::Tcp { host, port } => {
                    let failed = |source| BindError::ControlListen { address: address.clone(), source };
                    let (listener, local) = listen_at(host, *port, peer_timeout).map_err(failed)?;
                    warn_of_plain_text(local.ip());
                    (ControlListener::Tcp(listener), ControlAddress::Tcp { host: host.clone(), port: local.port() })
                }
            };
            bound.listeners.push(listener);
            bound.addresses.push(address);
        }
        Ok(bound)
    }

    /// Where they are, with real ports.
    pub(super) fn addresses(&self) -> &[ControlAddress] {
        &self.addresses
    }

    /// The next connection on any of them; with none, never.
    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<ControlStream>> {
        // From a random one on, so that a flood at one does not shut the others.
        let first = fastrand::usize(..self.listeners.len().max(1));
        let from_first = self.listeners.iter().cycle().skip(first).take(self.listeners.len());
        from_first.map(|listener| listener.poll_accept(cx)).find(Poll::is_ready).unwrap_or(Poll::Pending)
    }
}

impl ControlListener {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<ControlStream>> {
        match self {
            Self::Unix(socket) => socket.poll_accept(cx).map_ok(ControlStream::Unix),
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(socket, peer)| ControlStream::Tcp(socket, peer)),
        }
    }
}

/// Listens at the first address of a name that can be had.
fn listen_at(host: &str, port: u16, peer_timeout: Duration) -> io::Result<(TcpListener, SocketAddr)> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match listen(address, peer_timeout).and_then(|listener| listener.local_addr().map(|local| (listener, local))) {
            Ok(bound) => return Ok(bound),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn warn_of_plain_text(ip: IpAddr) {
    if !ip.is_loopback() {
        tracing::warn!(
            address = %ip,
            "the control API is plain text here: whoever can listen in on the network can take the token; \
             put TLS or a tunnel in front"
        );
    }
}
