//! A stream as a body, for a hyper server that is not ours and keeps its connections.
//!
//! The same frames, with the same promises: a slow reader skips what it missed, and a planned end
//! is clean. It is the costlier way: hyper holds its buffers for as long as the stream lasts, and
//! each change costs an allocation for each reader (see [`super::handoff`] for the other way). Nor can
//! it tell whether the reader took every byte: notices that a reader does not confirm by its next
//! `Last-Event-ID` are owed again when it leaves.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use super::stream::{Stream, StreamPlan};
use crate::{shutdown::Shutdown, traffic::Traffic};

/// Waits for what is to be sent next, and gives it with what comes behind it.
type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Stream, Shutdown)>> + Send + Sync>>;

/// One subscriber's stream. Dropping it unsubscribes.
pub(crate) struct StreamBody(Option<Next>);

impl StreamBody {
    pub(crate) fn new(plan: StreamPlan, traffic: &Arc<Traffic>, shutdown: Shutdown) -> Self {
        Self(Some(next(Stream::bare(plan, traffic), shutdown)))
    }
}

fn next(stream: Stream, mut shutdown: Shutdown) -> Next {
    Box::pin(async move {
        let (bytes, stream) = stream.next(&mut shutdown).await?;
        Some((bytes, stream, shutdown))
    })
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(waiting) = &mut self.0 else { return Poll::Ready(None) };
        let news = ready!(waiting.as_mut().poll(cx));
        let (bytes, rest) = news.map(|(bytes, stream, shutdown)| (bytes, next(stream, shutdown))).unzip();
        self.0 = rest;
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamBody")
    }
}
