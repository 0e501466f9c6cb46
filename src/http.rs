//! Everything that knows HTTP.

pub(crate) mod admission;
pub(crate) mod assets;
pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod control;
pub(crate) mod cors;
pub(crate) mod fanout;
pub(crate) mod gate;
pub(crate) mod handoff;
pub(crate) mod host;
pub(crate) mod metrics;
pub(crate) mod negotiate;
pub(crate) mod observe;
pub(crate) mod problem;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod socket;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod stream_body;
pub(crate) mod wire;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode, header};

/// An answer that is whole in memory.
pub(crate) type Whole = Response<Full<Bytes>>;

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Whole {
    with_body(status, "application/json", body)
}

/// An answer with that content type, which no cache keeps.
pub(crate) fn with_body(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Whole {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    answer
}

/// A whole answer as bytes (RFC 9112 §2.1), for who has not been heard. The connection is closed behind it.
pub(crate) fn written_out(answer: impl Into<Whole>) -> Bytes {
    let (mut head, body) = answer.into().into_parts();
    let body = body.into_inner().unwrap_or_default();
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    head.headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    let mut bytes = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    bytes.into()
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Whole {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}
