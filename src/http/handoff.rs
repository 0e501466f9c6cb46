//! How a request for a stream leaves hyper.
//!
//! An SSE answer lasts for hours, and for all that time hyper keeps two buffers and a large future
//! for it. So hyper parses the request and answers whatever came before it; then the connection's
//! driver takes the socket back, and hyper is gone.
//!
//! Promise: no byte of an earlier answer is lost. The socket is taken only when hyper has written
//! all it had: [`Watched`] remembers whether the last write was refused. Bytes that the client sent
//! past the request are dropped, since a stream is a connection's last answer.

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
use hyper_util::rt::TokioIo;

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
#[derive(Clone, Default)]
pub(crate) struct Handoff(Arc<Shared>);

#[derive(Default)]
struct Shared {
    plan: Mutex<Option<StreamPlan>>,
    unsent: AtomicBool,
}

impl Handoff {
    /// Called by the service: the connection is to become this stream.
    pub(crate) fn offer(&self, plan: StreamPlan) {
        *lock(&self.0.plan) = Some(plan);
    }

    /// Called by the driver after hyper was polled: the plan, once hyper has nothing left to send.
    pub(crate) fn take(&self) -> Option<StreamPlan> {
        if self.0.unsent.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.0.plan).take()
    }

    /// The socket for hyper to use.
    pub(crate) fn watch<S: Socket>(&self, socket: S) -> Watched<S> {
        Watched { io: TokioIo::new(socket), handoff: self.clone() }
    }

    fn written<T>(&self, write: Poll<T>) -> Poll<T> {
        // hyper writes until its buffer is empty or a write is refused, so that the last write
        // tells which.
        self.0.unsent.store(write.is_pending(), Ordering::Relaxed);
        write
    }
}

/// A socket that remembers whether the last write was refused.
pub(crate) struct Watched<S> {
    io: TokioIo<S>,
    handoff: Handoff,
}

impl<S> Watched<S> {
    pub(crate) fn into_socket(self) -> S {
        self.io.into_inner()
    }
}

impl<S: Socket> Read for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: Socket> Write for Watched<S> {
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

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.handoff.written(write)
    }
}
