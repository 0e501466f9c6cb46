//! An accepted stream after it left hyper: one small task that writes frames to a socket.
//!
//! Promises:
//! - The head and what the source says at once (a list's baseline) are one write.
//! - A change of a list is one write of bytes that all subscribers share. At most one frame is
//!   unsent; while it is, nothing is asked of the source, which skips what becomes old meanwhile.
//! - A planned end comes after all that the source had to say by then, within [`FAREWELL`].
//! - Chunks for HTTP/1.1, with a last chunk at a planned end; the same bytes to end of file for
//!   HTTP/1.0, which knows no chunks (RFC 9112 §6.1).
//! - A peer that closes its end, or cannot be written to, ends the task. The source learns whether
//!   the peer left in peace, with every byte taken: a peer that closes with bytes unread resets the
//!   connection, over TCP (RFC 9293 §3.6.1) and over a Unix socket.
//!
//! What a delivery costs, as counted (`scripts/test-cost` holds it): one `send`, no other system call,
//! no allocation, and some 3,700 instructions beside the kernel's, most of them tokio's: each turn of
//! the loop makes, polls and drops one future each for the shutdown, the socket's readiness and the
//! slot's `watch`, and the scheduler queues and runs the task. A change adds some 48 allocations, shared
//! by all readers.
//!
//! Never here: a timer or a buffer for each stream. A peer that vanished is noticed by the kernel
//! (`TCP_USER_TIMEOUT`, see `server`).

use std::{
    io,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use bytes::{Buf, Bytes, BytesMut};
use hyper::{
    HeaderMap, Version,
    header::{self, HeaderName, HeaderValue},
};
use tokio::{
    io::{AsyncWriteExt, Interest},
    time::timeout,
};

use super::{
    admission::Admitted,
    socket::Socket,
    source::{Said, Source},
};
use crate::{
    clock::UnixMillis,
    shutdown::{Phase, Shutdown},
    sse,
    traffic::{Counted, Traffic},
};

/// How long the last bytes of a planned end may take. A peer that reads takes milliseconds.
const FAREWELL: Duration = Duration::from_secs(2);

/// Everything that a stream needs to begin.
pub(crate) struct StreamPlan {
    pub(crate) source: Source,
    pub(crate) version: Version,
    /// The answer's headers: [`headers`], and what else its reader is told.
    pub(crate) headers: HeaderMap,
    pub(crate) heartbeat: Heartbeat,
    /// What is held of the limits for as long as the stream lasts.
    pub(crate) admitted: Option<Box<Admitted>>,
}

/// How a sign of life looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// A comment, which scripts do not see.
    Comment,
    /// A named event, for watchdogs.
    Event,
}

/// Whether the body is in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Chunked,
    ToEndOfFile,
}

/// The headers of every stream.
pub(crate) fn headers() -> HeaderMap {
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static(sse::MEDIA_TYPE)),
        // no-transform: a proxy that compresses holds events back.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform")),
        // nginx must not buffer.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ])
}

/// Writes a stream until its peer leaves or `shutdown` ends it.
pub(crate) async fn run(mut socket: impl Socket, plan: StreamPlan, traffic: &Arc<Traffic>, mut shutdown: Shutdown) {
    let mut stream = Stream::begin(plan, traffic);
    match stream.write_until_ended(&socket, &mut shutdown).await {
        Ok(End::Planned) => {
            // Whether or not it comes through: this is the end.
            let _ = timeout(FAREWELL, stream.write_farewell(&mut socket)).await;
        }
        Ok(End::PeerLeft) if stream.unsent.is_empty() => stream.source.delivered(),
        Ok(End::PeerLeft) => {}
        Err(error) => tracing::debug!(%error, "a stream broke"),
    }
}

/// How a stream ends that does not break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By the gateway.
    Planned,
    /// By the peer, who closed its end.
    PeerLeft,
}

pub(super) struct Stream {
    source: Source,
    framing: Framing,
    heartbeat: Heartbeat,
    /// The one frame, or its rest, that the kernel has not taken yet.
    unsent: Bytes,
    counted: Counted,
    _admitted: Option<Box<Admitted>>,
}

impl Stream {
    fn begin(plan: StreamPlan, traffic: &Arc<Traffic>) -> Self {
        let framing = if plan.version == Version::HTTP_10 { Framing::ToEndOfFile } else { Framing::Chunked };
        let mut unsent = head(framing, &plan.headers, plan.source.now());
        let mut stream = Self::without_head(plan, framing, traffic);
        unsent.extend_from_slice(&stream.unsent);
        stream.unsent = unsent.freeze();
        stream
    }

    /// For whoever sends head and chunks himself.
    pub(super) fn bare(plan: StreamPlan, traffic: &Arc<Traffic>) -> Self {
        Self::without_head(plan, Framing::ToEndOfFile, traffic)
    }

    fn without_head(plan: StreamPlan, framing: Framing, traffic: &Arc<Traffic>) -> Self {
        let StreamPlan { mut source, version: _, headers: _, heartbeat, admitted } = plan;
        let counted = traffic.count(source.kind());
        // Before the source is read, so that what is encoded later has a later stamp.
        let now = source.now();
        let mut payload = BytesMut::from(sse::retry(fastrand::u64(1_000..=3_000)).as_bytes());
        payload.extend_from_slice(&source.opening(now));
        Self { source, framing, heartbeat, unsent: framing.frame(&payload), counted, _admitted: admitted }
    }

    /// What is to be sent next, and the stream behind it; none at a planned end.
    pub(super) async fn next(mut self, shutdown: &mut Shutdown) -> Option<(Bytes, Self)> {
        if self.unsent.is_empty() {
            let said = tokio::select! {
                biased;
                () = shutdown.reached(Phase::Ending) => self.source.rest()?,
                said = self.source.next() => said,
            };
            self.unsent = self.bytes_of(said)?;
        }
        Some((std::mem::take(&mut self.unsent), self))
    }

    async fn write_until_ended(&mut self, socket: &impl Socket, shutdown: &mut Shutdown) -> io::Result<End> {
        loop {
            self.write_unsent(socket)?;
            let interest =
                if self.unsent.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            tokio::select! {
                biased;
                () = shutdown.reached(Phase::Ending) => return Ok(End::Planned),
                ready = socket.ready(interest) => if ready?.is_readable() && has_left(socket)? {
                    return Ok(End::PeerLeft);
                },
                said = self.source.next(), if self.unsent.is_empty() => match self.bytes_of(said) {
                    Some(bytes) => self.unsent = bytes,
                    None => return Ok(End::Planned),
                },
            }
        }
    }

    fn write_unsent(&mut self, socket: &impl Socket) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match socket.try_write(&self.unsent) {
                Ok(written) => self.unsent.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.unsent.is_empty() {
            // A part of a frame keeps all of it in memory.
            self.unsent = Bytes::new();
        }
        Ok(())
    }

    /// What goes over the wire; none at the source's end.
    fn bytes_of(&self, said: Said) -> Option<Bytes> {
        let frame = match said {
            Said::List(frame) => match self.framing {
                Framing::Chunked => frame.chunk(),
                Framing::ToEndOfFile => frame.event(),
            },
            Said::Event(event) => self.framing.frame(&event),
            Said::Beat(now) => {
                return Some(match self.heartbeat {
                    Heartbeat::Comment => self.framing.frame(sse::BEAT.as_bytes()),
                    Heartbeat::Event => self.framing.frame(sse::beat_event(now).as_bytes()),
                });
            }
            Said::End => return None,
        };
        self.counted.sent();
        Some(frame)
    }

    /// Writes what is left to say, and the end: the end of the children is told before that of the
    /// stream, though both came at once.
    async fn write_farewell(&mut self, socket: &mut impl Socket) -> io::Result<()> {
        socket.write_all(&std::mem::take(&mut self.unsent)).await?;
        while let Some(bytes) = self.source.rest().and_then(|said| self.bytes_of(said)) {
            socket.write_all(&bytes).await?;
        }
        if self.framing == Framing::Chunked {
            socket.write_all(sse::LAST_CHUNK).await?;
        }
        socket.shutdown().await
    }
}

impl Framing {
    fn frame(self, payload: &[u8]) -> Bytes {
        match self {
            Self::Chunked => sse::chunk(payload),
            Self::ToEndOfFile => Bytes::copy_from_slice(payload),
        }
    }
}

/// Status line and headers, in HTTP/1.x's form (RFC 9112 §2.1). The stream is the connection's
/// last answer, and says so.
fn head(framing: Framing, headers: &HeaderMap, now: UnixMillis) -> BytesMut {
    let (status, last) = match framing {
        Framing::Chunked => ("HTTP/1.1 200 OK\r\n", "connection: close\r\ntransfer-encoding: chunked\r\n\r\n"),
        Framing::ToEndOfFile => ("HTTP/1.0 200 OK\r\n", "connection: close\r\n\r\n"),
    };
    let mut head = BytesMut::with_capacity(512);
    head.extend_from_slice(status.as_bytes());
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(now.0));
    head.extend_from_slice(format!("date: {date}\r\n").as_bytes());
    head.extend_from_slice(last.as_bytes());
    head
}

/// Nothing that a client sends on a stream means anything; its end does.
fn has_left(socket: &impl Socket) -> io::Result<bool> {
    let mut buffer = [0; 512];
    match socket.try_read(&mut buffer) {
        Ok(read) => Ok(read == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
