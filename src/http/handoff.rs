//! How a request for a stream leaves hyper.
//!
//! An SSE answer lasts for hours, and for all that time hyper keeps two buffers and a large future
//! for it. So hyper parses the request and answers whatever came before it; then the connection's
//! driver takes the socket back, and hyper is gone.
//!
//! Promises:
//! - No byte of an earlier answer is lost. The socket is taken only when hyper has written all it
//!   had: [`Lent`] remembers whether the last write was refused. Bytes that the client sent past the
//!   request are dropped, since a stream is a connection's last answer.
//! - It is known since when a request is waited for. hyper would have a timer made for each.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use hyper::{
    HeaderMap,
    rt::{Read, ReadBufCursor, Write},
};
use tokio::time::Instant;

use super::{Whole, socket::Socket, stream::StreamPlan};

use crate::sync::lock;

/// What becomes of a request.
pub(crate) enum Answer {
    /// An answer by hyper, like any other.
    Whole(Whole),
    /// A stream: the connection leaves hyper.
    Stream(StreamPlan),
}

impl Answer {
    /// Its headers, whoever writes them.
    pub(crate) fn headers_mut(&mut self) -> &mut HeaderMap {
        match self {
            Self::Whole(answer) => answer.headers_mut(),
            Self::Stream(plan) => &mut plan.headers,
        }
    }
}

impl From<Whole> for Answer {
    fn from(answer: Whole) -> Self {
        Self::Whole(answer)
    }
}

/// What a connection's service and its driver share.
#[derive(Clone)]
pub(crate) struct Handoff(Arc<Shared>);

struct Shared {
    standing: Mutex<Standing>,
    unsent: AtomicBool,
}

enum Standing {
    /// The peer is to send a request, since then.
    Awaited(Instant),
    Answering,
    /// The connection is to become this stream.
    Offered(StreamPlan),
}

/// How a connection goes on.
pub(crate) enum Course {
    /// The peer is to send a request, since then.
    Awaited(Instant),
    /// A request is being answered.
    Answering,
    /// As this stream, and without hyper.
    Stream(StreamPlan),
}

impl Handoff {
    /// Of a new connection, on which a request is awaited.
    pub(crate) fn new() -> Self {
        let standing = Mutex::new(Standing::Awaited(Instant::now()));
        Self(Arc::new(Shared { standing, unsent: AtomicBool::new(false) }))
    }

    /// Called by the service: a request is there.
    pub(crate) fn asked(&self) {
        *lock(&self.0.standing) = Standing::Answering;
    }

    /// Called by the service: hyper has the answer.
    pub(crate) fn answered(&self) {
        *lock(&self.0.standing) = Standing::Awaited(Instant::now());
    }

    /// Called by the service: the connection is to become this stream.
    pub(crate) fn offer(&self, plan: StreamPlan) {
        *lock(&self.0.standing) = Standing::Offered(plan);
    }

    /// Called by the driver after hyper was polled. The plan is there once hyper has nothing left to send.
    pub(crate) fn course(&self) -> Course {
        let mut standing = lock(&self.0.standing);
        match &*standing {
            Standing::Awaited(since) => Course::Awaited(*since),
            Standing::Offered(_) if !self.0.unsent.load(Ordering::Relaxed) => {
                match std::mem::replace(&mut *standing, Standing::Answering) {
                    Standing::Offered(plan) => Course::Stream(plan),
                    Standing::Awaited(_) | Standing::Answering => Course::Answering,
                }
            }
            Standing::Answering | Standing::Offered(_) => Course::Answering,
        }
    }

    /// The socket for hyper to use.
    ///
    /// # Errors
    /// When the system does not let it be waited for.
    pub(crate) fn lend<S: Socket>(&self, socket: S) -> io::Result<Lent<S>> {
        Ok(Lent { io: socket.lend()?, handoff: self.clone() })
    }

    fn written<T>(&self, write: Poll<T>) -> Poll<T> {
        // hyper writes until its buffer is empty or a write is refused, so that the last write
        // tells which.
        self.0.unsent.store(write.is_pending(), Ordering::Relaxed);
        write
    }
}

/// A socket that remembers whether the last write was refused.
pub(crate) struct Lent<S: Socket> {
    io: S::Lent,
    handoff: Handoff,
}

impl<S: Socket> Lent<S> {
    /// # Errors
    /// When the system does not let it be waited for.
    pub(crate) fn into_socket(self) -> io::Result<S> {
        S::take_back(self.io)
    }
}

impl<S: Socket> Read for Lent<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: Socket> Write for Lent<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.io).poll_write(cx, buf);
        self.handoff.written(write)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
