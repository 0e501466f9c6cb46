//! The form that a stream has on its connection.
//!
//! Chunks for HTTP/1.1 (RFC 9112 §7.1), with a last chunk at a planned end; the same events to end of
//! file for HTTP/1.0, which knows no chunks (§6.1).

use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use hyper::{
    HeaderMap, Version,
    header::{self, HeaderName, HeaderValue},
};

use crate::{clock::UnixMillis, hub::Frame, sse};

/// How one reader's stream is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) framing: Framing,
    pub(crate) heartbeat: Heartbeat,
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
pub(crate) enum Framing {
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

impl Framing {
    pub(crate) fn of(version: Version) -> Self {
        if version == Version::HTTP_10 { Self::ToEndOfFile } else { Self::Chunked }
    }

    pub(crate) fn frame(self, payload: &[u8]) -> Bytes {
        match self {
            Self::Chunked => sse::chunk(payload),
            Self::ToEndOfFile => Bytes::copy_from_slice(payload),
        }
    }

    /// What a planned end is told by, before the connection is closed.
    pub(crate) fn end(self) -> &'static [u8] {
        match self {
            Self::Chunked => sse::LAST_CHUNK,
            Self::ToEndOfFile => b"",
        }
    }

    /// Status line and headers (RFC 9112 §2.1). The stream is the connection's last answer, and says
    /// so.
    pub(crate) fn head(self, headers: &HeaderMap, now: UnixMillis) -> BytesMut {
        let (status, last) = match self {
            Self::Chunked => ("HTTP/1.1 200 OK\r\n", "connection: close\r\ntransfer-encoding: chunked\r\n\r\n"),
            Self::ToEndOfFile => ("HTTP/1.0 200 OK\r\n", "connection: close\r\n\r\n"),
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
}

impl Wire {
    /// A list, as all its readers of this framing share it.
    pub(crate) fn list(self, frame: &Frame) -> Bytes {
        match self.framing {
            Framing::Chunked => frame.chunk(),
            Framing::ToEndOfFile => frame.event(),
        }
    }

    /// A sign of life; `now` is the server's clock.
    pub(crate) fn beat(self, now: UnixMillis) -> Bytes {
        match self.heartbeat {
            Heartbeat::Comment => self.framing.frame(sse::BEAT.as_bytes()),
            Heartbeat::Event => self.framing.frame(sse::beat_event(now).as_bytes()),
        }
    }
}
