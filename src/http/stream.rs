//! An accepted stream after it left hyper: one small task that writes frames to a socket.
//!
//! Promises:
//! - The head, the first comment and the baseline are one write.
//! - A change is one write of bytes that all subscribers share. At most one frame is unsent; while
//!   it is, newer ones are skipped, and the newest follows.
//! - Chunks for HTTP/1.1, with a last chunk at a planned end; the same bytes to end of file for
//!   HTTP/1.0, which knows no chunks (RFC 9112 §6.1).
//! - A peer that closes its end, or cannot be written to, ends the task.
//!
//! Never here: a timer or a buffer for each stream. A peer that vanished is noticed by the kernel
//! (`TCP_USER_TIMEOUT`, see `server`).

use std::{
    io,
    time::{Duration, UNIX_EPOCH},
};

use bytes::{Buf, Bytes, BytesMut};
use hyper::{
    HeaderMap, Version,
    header::{self, HeaderName, HeaderValue},
};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::TcpStream,
    time::timeout,
};

use crate::{
    clock::UnixMillis,
    hub::{Frame, News, Subscription},
    shutdown::{Phase, Shutdown},
    sse,
};

/// How long the last bytes of a planned end may take. A peer that reads takes milliseconds.
const FAREWELL: Duration = Duration::from_secs(2);

/// A frame that is older than this when it is sent gets the time of now.
const STALE_MS: u64 = 1_000;

/// Everything that a stream needs to begin.
pub(crate) struct StreamPlan {
    pub(crate) subscription: Subscription,
    pub(crate) version: Version,
    pub(crate) heartbeat: Heartbeat,
    /// The client sent `Last-Event-ID`: it holds rows, so it gets an answer even when it is `[]`.
    pub(crate) resumes: bool,
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
pub(crate) async fn run(mut socket: TcpStream, plan: StreamPlan, mut shutdown: Shutdown) {
    let mut stream = Stream::begin(plan);
    match stream.write_until_ended(&socket, &mut shutdown).await {
        Ok(()) => {
            let farewell = stream.farewell();
            // Whether or not it comes through: this is the end.
            let _ = timeout(FAREWELL, async {
                socket.write_all(&farewell).await?;
                socket.shutdown().await
            })
            .await;
        }
        Err(error) => tracing::debug!(%error, "a stream's peer left"),
    }
}

struct Stream {
    subscription: Subscription,
    framing: Framing,
    heartbeat: Heartbeat,
    /// The one frame, or its rest, that the kernel has not taken yet.
    unsent: Bytes,
    /// The newest id sent: ids never go back on one connection.
    last_stamp: UnixMillis,
}

impl Stream {
    fn begin(plan: StreamPlan) -> Self {
        let StreamPlan { mut subscription, version, heartbeat, resumes } = plan;
        let framing = if version == Version::HTTP_10 { Framing::ToEndOfFile } else { Framing::Chunked };
        // Before the list is read, so that what is encoded later has a later stamp.
        let now = subscription.now();
        let baseline = subscription.baseline();
        let mut payload = BytesMut::new();
        payload.extend_from_slice(sse::retry(fastrand::u64(1_000..=3_000)).as_bytes());
        // Some clients end lines at U+2028 and U+2029 too; a name must not forge a field there.
        let name = subscription.session().as_str().replace(['\u{2028}', '\u{2029}'], "\u{fffd}");
        payload.extend_from_slice(sse::comment(&format!("session {name}")).as_bytes());
        if !baseline.is_empty() || resumes {
            payload.extend_from_slice(&baseline.restamped(now).event());
        }
        let mut unsent = head(framing, now);
        unsent.extend_from_slice(&framing.frame(&payload));
        Self { subscription, framing, heartbeat, unsent: unsent.freeze(), last_stamp: now }
    }

    /// Returns `Ok` at a planned end, `Err` when the peer is gone.
    async fn write_until_ended(&mut self, socket: &TcpStream, shutdown: &mut Shutdown) -> io::Result<()> {
        loop {
            self.write_unsent(socket)?;
            let interest =
                if self.unsent.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            tokio::select! {
                biased;
                () = shutdown.reached(Phase::Ending) => return Ok(()),
                ready = socket.ready(interest) => if ready?.is_readable() {
                    discard_input(socket)?;
                },
                news = self.subscription.next(), if self.unsent.is_empty() => self.take(news),
            }
        }
    }

    fn write_unsent(&mut self, socket: &TcpStream) -> io::Result<()> {
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

    fn take(&mut self, news: News) {
        self.unsent = match news {
            News::List(frame) => self.list(frame),
            News::Beat(now) => match self.heartbeat {
                Heartbeat::Comment => self.framing.frame(sse::BEAT.as_bytes()),
                Heartbeat::Event => self.framing.frame(sse::beat_event(now).as_bytes()),
            },
        };
    }

    fn list(&mut self, frame: Frame) -> Bytes {
        let frame = self.stamped(frame);
        match self.framing {
            Framing::Chunked => frame.chunk(),
            Framing::ToEndOfFile => frame.event(),
        }
    }

    /// A frame that waited for a slow reader, or was overtaken, gets the time of now; any other is
    /// shared as it is.
    fn stamped(&mut self, frame: Frame) -> Frame {
        let now = self.subscription.now();
        let late = now.0.saturating_sub(frame.stamp().0) >= STALE_MS || frame.stamp() < self.last_stamp;
        let frame = if late { frame.restamped(now) } else { frame };
        self.last_stamp = frame.stamp();
        frame
    }

    /// What is left to send at a planned end: the end of the children is told before that of the
    /// stream, though both came at once.
    fn farewell(&mut self) -> Bytes {
        let mut rest = BytesMut::from(&self.unsent[..]);
        if let Some(frame) = self.subscription.last() {
            rest.extend_from_slice(&self.list(frame));
        }
        if self.framing == Framing::Chunked {
            rest.extend_from_slice(sse::LAST_CHUNK);
        }
        rest.freeze()
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
fn head(framing: Framing, now: UnixMillis) -> BytesMut {
    let (status, last) = match framing {
        Framing::Chunked => ("HTTP/1.1 200 OK\r\n", "connection: close\r\ntransfer-encoding: chunked\r\n\r\n"),
        Framing::ToEndOfFile => ("HTTP/1.0 200 OK\r\n", "connection: close\r\n\r\n"),
    };
    let mut head = BytesMut::with_capacity(512);
    head.extend_from_slice(status.as_bytes());
    for (name, value) in &headers() {
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
fn discard_input(socket: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 512];
    match socket.try_read(&mut buffer) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
