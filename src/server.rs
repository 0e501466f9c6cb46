//! The gateway: its two listeners, the life of their connections, and its end.
//!
//! Promises:
//! - The browsers' listener can only look; the control listener is a Unix socket that nobody but
//!   its owner can open.
//! - An end is planned: nothing new is accepted, children are ended while streams still show it,
//!   streams end cleanly, and all of it takes at most [`Settings::drain`].
//! - A peer that sends half a request, or stops reading, is dropped in bounded time.

mod control_socket;

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream, UnixStream},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;

use self::control_socket::ControlSocket;
use crate::{
    clock::Clock,
    config::Settings,
    http::{
        control::Control,
        handoff::Handoff,
        observe::{self, Answer},
        stream,
    },
    hub::Hub,
    producer::{pty::Terminals, shell::Shells},
    registry::Registry,
    shutdown::{Phase, Shutdown, ShutdownTrigger},
};

/// Connections that wait to be accepted. The usual 128 drops connects when all clients come back
/// at once, and each that was dropped waits a second.
const BACKLOG: u32 = 4_096;
/// How much of a stream the kernel holds that the peer was not sent yet. Its default lets a peer
/// that does not read pin megabytes of old lists.
const NOT_SENT_LOW_WATER: u32 = 16 * 1024;
/// The largest head of a request, in bytes; hyper answers a larger one 431.
const MAX_HEAD: usize = 16 * 1024;
/// The pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Of a shutdown's time, what is kept for streams to end after the children did.
const FAREWELL: Duration = Duration::from_millis(2_500);

/// A gateway that has its sockets, and does not serve yet.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    browsers: TcpListener,
    control: ControlSocket,
}

/// Why a gateway has no sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
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
    /// Takes the sockets. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(settings: Settings) -> Result<Self, BindError> {
        let control = ControlSocket::bind(&settings.control)?;
        let browsers = listen(settings.listen, settings.peer_timeout)
            .map_err(|source| BindError::Listen { address: settings.listen, source })?;
        Ok(Self { settings, browsers, control })
    }

    /// Where browsers connect; the real port, if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.browsers.local_addr().unwrap_or(self.settings.listen)
    }

    /// Serves until `shutdown` is moved on to [`Phase::Draining`], by `trigger` or by whoever has
    /// it; then ends children, streams and connections, for which it moves `trigger` on itself.
    pub async fn run(self, trigger: &ShutdownTrigger, shutdown: Shutdown) {
        let Self { settings, browsers, control } = self;
        let clock = Clock::system();
        let registry = Registry::new(clock.clone(), settings.limits);
        let shells = Shells::new(settings.grace);
        let terminals =
            Terminals::new(registry.clone(), settings.terminals, settings.grace, settings.limits.output_tail);
        let hub = Arc::new(Hub::new(Some(registry.observer()), clock, settings.heartbeat));
        let routes = Arc::new(Control {
            registry: registry.clone(),
            shells: shells.clone(),
            terminals: terminals.clone(),
            shutdown: shutdown.clone(),
            request_timeout: settings.request_timeout,
            grace: settings.grace,
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(settings.request_timeout).max_buf_size(MAX_HEAD);

        let connections = TaskTracker::new();
        let accept_browsers = accept(
            async || browsers.accept().await,
            |socket: TcpStream| {
                connections.spawn(browser(http.clone(), socket, Arc::clone(&hub), shutdown.clone()));
            },
        );
        let accept_control = accept(
            async || control.accept().await,
            |socket: UnixStream| {
                connections.spawn(producer(http.clone(), socket, Arc::clone(&routes), shutdown.clone()));
            },
        );
        let mut accept_control = pin!(accept_control);
        let mut beat = pin!(hub.beat());
        let mut draining = shutdown.clone();
        tokio::select! {
            never = accept_browsers => match never {},
            never = &mut accept_control => match never {},
            never = &mut beat => match never {},
            () = draining.reached(Phase::Draining) => {}
        }
        drop(browsers);

        let deadline = Instant::now() + settings.drain;
        tracing::info!(connections = connections.len(), "draining");
        let children = async {
            let tasks = async {
                let live = registry.close(settings.drain).await;
                shells.close().await;
                live
            };
            tokio::join!(tasks, terminals.close_all()).0
        };
        // The control API still answers: that nothing starts any more, and how tasks end.
        let live = tokio::select! {
            never = accept_control => match never {},
            never = beat => match never {},
            live = timeout_at(deadline - FAREWELL.min(settings.drain / 2), children) => live.ok(),
        };
        trigger.enter(Phase::Ending);
        connections.close();
        let all_ended = timeout_at(deadline, connections.wait()).await.is_ok();
        tracing::info!(children_ended = live == Some(0), connections_ended = all_ended, "ended");
    }
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

/// Accepts for ever. When accepting fails, it pauses: the lack that made it fail does not go by
/// asking again at once.
async fn accept<S, A>(
    mut next: impl AsyncFnMut() -> io::Result<(S, A)>,
    serve: impl Fn(S),
) -> std::convert::Infallible {
    loop {
        match next().await {
            Ok((socket, _)) => serve(socket),
            // The peer left before it was accepted (accept(2)): its own matter.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection of a browser: requests and answers by hyper, until one asks for a stream.
async fn browser(http: http1::Builder, socket: TcpStream, hub: Arc<Hub>, mut shutdown: Shutdown) {
    let handoff = Handoff::default();
    let service = service_fn(|request: Request<Incoming>| {
        let answer = observe::answer(&hub, &request);
        let handoff = &handoff;
        async move {
            match answer {
                Answer::Whole(answer) => Ok::<_, std::convert::Infallible>(answer),
                Answer::Stream(plan) => {
                    handoff.offer(plan);
                    // hyper goes before this answer would be due.
                    std::future::pending().await
                }
            }
        }
    });
    let mut connection = http.serve_connection(handoff.socket(socket), service);
    let mut ending = false;
    let plan = loop {
        let polled = std::future::poll_fn(|cx| {
            let polled = Pin::new(&mut connection).poll(cx);
            match (handoff.take(), polled) {
                (Some(plan), _) => std::task::Poll::Ready(Ok(plan)),
                (None, std::task::Poll::Ready(end)) => std::task::Poll::Ready(Err(end)),
                (None, std::task::Poll::Pending) => std::task::Poll::Pending,
            }
        });
        tokio::select! {
            polled = polled => match polled {
                Ok(plan) => break plan,
                Err(end) => return log(end),
            },
            () = shutdown.reached(Phase::Ending), if !ending => {
                ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let socket = connection.into_parts().io.into_stream();
    stream::run(socket, plan, shutdown).await;
}

/// One connection of a producer or an agent.
async fn producer(http: http1::Builder, socket: UnixStream, control: Arc<Control>, mut shutdown: Shutdown) {
    let service = service_fn(|request| {
        let control = &control;
        async move { Ok::<_, std::convert::Infallible>(control.answer(request).await) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        end = &mut connection => return log(end),
        () = shutdown.reached(Phase::Ending) => {}
    }
    connection.as_mut().graceful_shutdown();
    log(connection.await);
}

fn log(end: hyper::Result<()>) {
    if let Err(error) = end {
        tracing::debug!(%error, cause = std::error::Error::source(&error), "a connection ended early");
    }
}
