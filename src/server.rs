//! The gateway: its two listeners, the life of their connections, and its end.
//!
//! Promises:
//! - The browsers' listener can only look; the control API is behind a Unix socket that nobody but
//!   its owner can open, or behind a token.
//! - What listens on TCP answers only to names that are its own.
//! - An end is planned: nothing new is accepted, children are ended while streams still show it,
//!   streams end cleanly, and all of it takes at most [`Settings::drain`].
//! - A flood of connections is answered that there are too many, and shuts nobody out who is in.
//! - A peer that sends half a request, or stops reading, is dropped in bounded time.

mod connection;
mod connections;
mod control_listener;
mod control_socket;
mod services;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use hyper::{Request, body::Incoming, server::conn::http1};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};
use tokio_util::task::TaskTracker;

pub(crate) use self::services::Services;
use self::{
    connection::{Side, connection},
    connections::{Places, accept},
    control_listener::{ControlListeners, ControlStream},
};
use crate::{
    address::{ControlAddress, HostName},
    config::Settings,
    descriptors,
    http::{
        Whole,
        admission::Seat,
        client::Client,
        control::Control,
        fanout::{self, Engine, Fanout},
        gate::Gate,
        handoff::Answer,
        host::Hosts,
        observe::Observe,
        socket::Socket,
        stream::{Begun, Stream},
    },
    registry::Registry,
    shutdown::{Phase, Shutdown, ShutdownTrigger},
    spill::{SpillError, SpillFolder},
    traffic::{Open, Traffic},
};

/// Connections that wait to be accepted. The usual 128 drops connects when all clients come back
/// at once, and each that was dropped waits a second.
const BACKLOG: u32 = 4_096;
/// How much of a stream the kernel holds that the peer was not sent yet. Its default lets a peer
/// that does not read pin megabytes of old lists.
const NOT_SENT_LOW_WATER: u32 = 16 * 1024;
/// The largest head of a request, in bytes; hyper answers a larger one 431.
const MAX_HEAD: usize = 16 * 1024;
/// The fewest connections that the control API has, however few the browsers' listener has.
const MIN_CONTROL: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not 0");
/// Of a shutdown's time, what is kept for streams to end after the children did.
const FAREWELL: Duration = Duration::from_millis(2_500);

/// A gateway that has its sockets, and does not serve yet.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    registry: Option<Registry>,
    browsers: TcpListener,
    control: ControlListeners,
    lists: Fanout,
    engine: Engine,
    /// Of the control API's TCP listeners, if there are any.
    gate: Option<Gate>,
    /// Where outputs are kept, for as long as the registry is shown.
    spill: Option<SpillFolder>,
}

/// Why a gateway has no sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is nothing that would drive sockets.
    #[error("a gateway is made within a tokio runtime with I/O and time")]
    NoRuntime,
    /// The control API is to be on TCP, where anybody may connect, and there is no token.
    #[error(
        "the control API can run commands, so {address} needs a token; \
         make one with `openssl rand -hex 32`, and name its file with --control-token-file"
    )]
    NoToken {
        /// Which address.
        address: ControlAddress,
    },
    /// There is no registry, so there is nothing to control.
    #[error("a gateway without a registry has no control API")]
    NothingToControl,
    /// The browsers' address cannot be had.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// What the system answered.
        source: io::Error,
    },
    /// Another gateway has the control socket.
    #[error("a gateway is already running at {}; stop it, or choose another socket with --control", path.display())]
    ControlInUse {
        /// Which socket.
        path: PathBuf,
    },
    /// Something that is not a socket stands where the control socket should be.
    #[error("{} is there and is not a socket; remove it, or choose another with --control", path.display())]
    ControlNotASocket {
        /// Which file.
        path: PathBuf,
    },
    /// The control API's TCP address cannot be had.
    #[error("cannot listen on {address} for the control API: {source}; choose another with --control")]
    ControlListen {
        /// Which address.
        address: ControlAddress,
        /// What the system answered.
        source: io::Error,
    },
    /// The folder for outputs cannot be used.
    #[error("cannot keep outputs in {}: {source}; choose another with --spill-dir", path.display())]
    Spill {
        /// Which folder.
        path: PathBuf,
        /// What is wrong with it.
        source: SpillError,
    },
    /// There is nothing to write streams with.
    #[error("cannot wait for streams: {source}")]
    Streams {
        /// What the system answered.
        source: io::Error,
    },
    /// The control socket cannot be made.
    #[error("cannot make the control socket {}: {source}", path.display())]
    Control {
        /// Which socket.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

impl Server {
    /// Takes the sockets, for a gateway of that registry or of none. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// See [`BindError`].
    pub(crate) fn bind(
        settings: Settings,
        registry: Option<Registry>,
        spill: Option<SpillFolder>,
    ) -> Result<Self, BindError> {
        tokio::runtime::Handle::try_current().map_err(|_| BindError::NoRuntime)?;
        if registry.is_none() && !settings.control.is_empty() {
            return Err(BindError::NothingToControl);
        }
        let gate = gate(&settings)?;
        let control = ControlListeners::bind(&settings.control, settings.peer_timeout)?;
        let browsers = listen(settings.listen, settings.peer_timeout)
            .map_err(|source| BindError::Listen { address: settings.listen, source })?;
        let (lists, engine) = fanout::fanout().map_err(|source| BindError::Streams { source })?;
        Ok(Self { settings, registry, browsers, control, lists, engine, gate, spill })
    }

    /// Where browsers connect; the real port, if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.browsers.local_addr().unwrap_or(self.settings.listen)
    }

    /// Where the control API is, with real ports; empty if there is none.
    #[must_use]
    pub fn control(&self) -> &[ControlAddress] {
        self.control.addresses()
    }

    /// Serves until `shutdown` is moved on to [`Phase::Draining`], by `trigger` or by whoever has
    /// it; then ends tasks, streams and connections, for which it moves `trigger` on itself.
    pub async fn run(self, trigger: &ShutdownTrigger, shutdown: Shutdown) {
        let Self { settings, registry, browsers, control, lists, engine, gate, spill: _spill } = self;
        let services = Services::new(&settings, registry, shutdown.clone());
        let hosts = Arc::new(Hosts::new(settings.hosts));
        let trusted_proxies: Arc<[IpAddr]> = settings.trusted_proxies.into();
        let unix_gate = Arc::new(Gate::of_unix());
        let tcp_gate = gate.map(Arc::new);
        let mut http = http1::Builder::new();
        // One buffer a write: answers are small. How long a request may take is ours to watch.
        http.header_read_timeout(None).max_buf_size(MAX_HEAD).writev(false);

        let patience = settings.request_timeout;
        let connections = Connections { http, patience, lists, open: TaskTracker::new(), shutdown: shutdown.clone() };
        let mut writer = tokio::spawn(engine.run(shutdown.clone()));
        let most = settings.max_connections.unwrap_or_else(usual_connections);
        let (places, control_places) =
            (Places::new(most, "browsers"), Places::new(control_connections(most), "control"));
        let accept_browsers = accept(
            |cx| browsers.poll_accept(cx),
            |(socket, peer)| {
                let Some((socket, place)) = places.take(socket, &connections.open) else { return };
                let window = Window {
                    observe: Arc::clone(&services.observe),
                    traffic: Arc::clone(&services.traffic),
                    hosts: Arc::clone(&hosts),
                    peer: peer.ip(),
                    trusted_proxies: Arc::clone(&trusted_proxies),
                };
                connections.serve(socket, window, place, Open::Browsers);
            },
        );
        // Boxed, so that it can go before the end: whoever can accept can bring a stream.
        let mut accept_control = Box::pin(accept(
            |cx| control.poll_accept(cx),
            |stream| {
                let Some(control) = services.control.clone() else { return };
                match (stream, &tcp_gate) {
                    (ControlStream::Unix(socket), _) => {
                        let Some((socket, place)) = control_places.take(socket, &connections.open) else { return };
                        let door = Door { control, gate: Arc::clone(&unix_gate), peer: None };
                        connections.serve(socket, door, place, Open::Control);
                    }
                    (ControlStream::Tcp(socket, peer), Some(gate)) => {
                        let Some((socket, place)) = control_places.take(socket, &connections.open) else { return };
                        let door = Door { control, gate: Arc::clone(gate), peer: Some(peer) };
                        connections.serve(socket, door, place, Open::Control);
                    }
                    // Without a gate nothing listens there.
                    (ControlStream::Tcp(..), None) => {}
                }
            },
        ));
        let mut beat = pin!(services.tick());
        let mut draining = shutdown.clone();
        tokio::select! {
            never = accept_browsers => match never {},
            never = &mut accept_control => match never {},
            never = &mut beat => match never {},
            () = draining.reached(Phase::Draining) => {}
            _ = &mut writer => {
                tracing::error!("what writes the streams has failed; the gateway ends, to be started anew");
                trigger.enter(Phase::Draining);
            }
        }
        drop(browsers);

        let deadline = Instant::now() + settings.drain;
        let open = services.traffic.open(Open::Browsers) + services.traffic.open(Open::Control);
        tracing::info!(connections = open, "draining");
        let children = services.end_tasks(settings.drain);
        // The control API still answers: that nothing starts any more, and how tasks end.
        let live = tokio::select! {
            never = accept_control => match never {},
            never = beat => match never {},
            live = timeout_at(deadline - FAREWELL.min(settings.drain / 2), children) => live.ok(),
        };
        trigger.enter(Phase::Ending);
        let ended = async {
            connections.ended().await;
            if !writer.is_finished() {
                let _ = writer.await;
            }
        };
        let all_ended = timeout_at(deadline, ended).await.is_ok();
        tracing::info!(children_ended = live == Some(0), connections_ended = all_ended, "ended");
    }
}

/// The gate of the control API on TCP, if it is to be there: with a token, or not at all.
fn gate(settings: &Settings) -> Result<Option<Gate>, BindError> {
    let over_tcp = |address: &&ControlAddress| matches!(address, ControlAddress::Tcp { .. });
    let Some(address) = settings.control.iter().find(over_tcp) else { return Ok(None) };
    let token = settings.token.clone().ok_or_else(|| BindError::NoToken { address: address.clone() })?;
    let own = settings.control.iter().filter_map(|address| match address {
        // An IP address is no name, and needs none.
        ControlAddress::Tcp { host, .. } => host.parse::<HostName>().ok(),
        ControlAddress::Unix(_) => None,
    });
    Ok(Some(Gate::of_tcp(token, Hosts::new(settings.hosts.iter().cloned().chain(own).collect()))))
}

/// Listens with what every accepted socket inherits on Linux (tcp(7)).
fn listen(address: SocketAddr, peer_timeout: Duration) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // A frame is one write: holding it back for more gains nothing.
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    options.set_tcp_notsent_lowat(NOT_SENT_LOW_WATER)?;
    options.set_tcp_user_timeout(Some(peer_timeout))?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How many connections the browsers' listener has at once, unless it is told: five eighths of the
/// descriptors. The control API has a quarter of that many of its own, so that a flood of readers
/// shuts no producer out; the rest is for children, files and what else the process has open.
fn usual_connections() -> NonZeroUsize {
    NonZeroUsize::new(descriptors::allowed() / 8 * 5).unwrap_or(NonZeroUsize::MIN)
}

/// How many connections the control API has at once.
fn control_connections(browsers: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(browsers.get() / 4).map_or(MIN_CONTROL, |quarter| quarter.max(MIN_CONTROL))
}

/// What a connection of a browser leads to.
struct Window {
    observe: Arc<Observe>,
    traffic: Arc<Traffic>,
    hosts: Arc<Hosts>,
    peer: IpAddr,
    trusted_proxies: Arc<[IpAddr]>,
}

impl Side for Window {
    fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    async fn answer(&self, request: &mut Request<Incoming>) -> Answer {
        match self.hosts.check(request) {
            Ok(()) => {
                let client = Client::of(self.peer, request.headers(), &self.trusted_proxies);
                self.observe.answer(request, Some(client))
            }
            Err(problem) => Whole::from(problem).into(),
        }
    }
}

/// What a connection to the control API leads to.
struct Door {
    control: Arc<Control>,
    gate: Arc<Gate>,
    /// None on a Unix socket, whose peers have no address.
    peer: Option<SocketAddr>,
}

impl Side for Door {
    fn traffic(&self) -> &Arc<Traffic> {
        &self.control.traffic
    }

    async fn answer(&self, request: &mut Request<Incoming>) -> Answer {
        match self.gate.admit(request, self.peer).await {
            Ok(()) => self.control.answer(request).await,
            Err(problem) => Whole::from(problem).into(),
        }
    }
}

/// The connections of both sides, from where they are accepted to their end.
struct Connections {
    http: http1::Builder,
    /// How long a peer may take to send a request.
    patience: Duration,
    /// Where they go on as streams of one list.
    lists: Fanout,
    open: TaskTracker,
    shutdown: Shutdown,
}

impl Connections {
    /// Serves one.
    fn serve(&self, socket: impl Socket, side: impl Side, place: OwnedSemaphorePermit, what: Open) {
        let seat = Seat { _place: place, _counted: side.traffic().count(what) };
        let (http, patience, shutdown) = (self.http.clone(), self.patience, self.shutdown.clone());
        let (lists, others) = (self.lists.clone(), self.open.clone());
        self.open.spawn(async move {
            let left = connection(http, socket, patience, &side, shutdown.clone()).await;
            let (socket, plan) = match left {
                Ok(Some(left)) => left,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, cause = std::error::Error::source(&error), "a connection ended early");
                    return;
                }
            };
            match Stream::begin(plan, side.traffic()) {
                Begun::List(stream) => {
                    if let Err(error) = lists.join(socket, stream, seat).await {
                        tracing::debug!(%error, "a stream broke");
                    }
                }
                // A task of its own, since a task keeps the room that its largest moment took, and hyper's is
                // larger than a stream's by far.
                Begun::Other(stream) => drop(others.spawn(async move {
                    let _seat = seat;
                    socket.forget_waiter();
                    stream.run(socket, shutdown).await;
                })),
            }
        });
    }

    /// Returns when all have ended but those that went on as streams of one list. Nobody can bring one
    /// more of those then.
    async fn ended(self) {
        let Self { http: _, patience: _, lists, open, shutdown: _ } = self;
        drop(lists);
        open.close();
        open.wait().await;
    }
}
