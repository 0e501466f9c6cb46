//! Requests that parsers are known to read in two ways, each with the only safe outcomes.
//!
//! A request that one parser takes for one and another for two lets somebody slip a second one past
//! a proxy. So behind each stands a further request for the session `marker`, and what becomes of
//! that is a part of the outcome.

use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
};

use super::http;

/// What is safe to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is refused, and the connection with it.
    Refused,
    /// It is answered with this status, and so is the request behind it.
    Answered(u16),
    /// It is answered with this status, and the connection ends: where the next request begins is
    /// not certain enough.
    Last(u16),
    /// It is answered with this status, and ends where it says. Nobody reads its body, so the
    /// connection goes on if the body was there by then, and ends if it was not.
    Unread(u16),
    /// It becomes a stream, the connection's last answer: what stands behind is dropped.
    Stream,
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) request: Vec<u8>,
    pub(crate) outcome: Outcome,
}

/// A case's bytes with the further request behind them.
pub(crate) fn with_marker(case: &Case) -> Vec<u8> {
    let marker = "GET /sessions/marker/tasks HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\nconnection: close\r\n\r\n";
    [case.request.as_slice(), marker.as_bytes()].concat()
}

/// Sends bytes; reads until the peer ends the connection, or makes it a stream. Says what came, and
/// whether the connection ended.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut socket = http::connect(address);
    // A peer that refuses the head may be gone before all is sent.
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&answer).contains(": session demo") {
        match socket.read(&mut buffer) {
            Ok(0) => return (answer, true),
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            // It was closed with bytes of ours unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (answer, true),
            Err(error) => panic!("{error}"),
        }
    }
    (answer, false)
}

/// How many answers these bytes hold. None has this text in its body.
pub(crate) fn answers(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    text.split("HTTP/1.").skip(1).map(|answer| answer[2..5].parse().unwrap()).collect()
}

/// A case for the gateway alone: a proxy waits for the rest of the body.
pub(crate) fn swallowing() -> Case {
    let request = get("content-length: 100000\r\n\r\nhi").into_bytes();
    Case { name: "a length that swallows the next request", request, outcome: Outcome::Last(200) }
}

/// All other cases, for the browsers' listener.
pub(crate) fn cases() -> Vec<Case> {
    use Outcome::{Answered, Last, Refused, Stream, Unread};
    let long = "a".repeat(20_000);
    let many = "x: a\r\n".repeat(200);
    let cases: Vec<(&'static str, String, Outcome)> = vec![
        // Line ends (RFC 9112 §2.2): LF alone may be taken for one, CR alone never.
        ("a plain request", get("x: a\r\n\r\n"), Answered(200)),
        ("empty lines before it", format!("\r\n\r\n{}", get("\r\n")), Answered(200)),
        ("LF alone", get("\r\n").replace("\r\n", "\n"), Answered(200)),
        ("a CR in a value", get("x: a\rb\r\n\r\n"), Refused),
        ("a CR between two fields", get("x: a\ry: b\r\n\r\n"), Refused),
        ("a CR behind the request line", get("\r\n").replacen("\r\n", "\r", 1), Refused),
        ("a CR where the head ends", get("x: a\r\n\r"), Refused),
        // Fields (RFC 9112 §5): no space before the colon, no line folding, RFC 9110 §5.5: no NUL.
        ("a folded line", get("x: a\r\n b\r\n\r\n"), Refused),
        ("a folded first line", get(" x: a\r\n\r\n"), Refused),
        ("a folded length", get("content-length:\r\n 2\r\n\r\nhi"), Refused),
        ("a space before the colon", get("x : a\r\n\r\n"), Refused),
        ("a space before a length's colon", get("content-length : 2\r\n\r\nhi"), Refused),
        ("a tab before the colon", get("transfer-encoding\t: chunked\r\n\r\n0\r\n\r\n"), Refused),
        ("a NUL in a value", get("x: a\0b\r\n\r\n"), Refused),
        ("a NUL in a name", get("x\0: a\r\n\r\n"), Refused),
        ("a NUL in the path", get("\r\n").replace("demo", "de\0mo"), Refused),
        ("a DEL in a value", get("x: a\x7f\r\n\r\n"), Refused),
        ("a field without a name", get(": a\r\n\r\n"), Refused),
        ("a field without a colon", get("abc\r\n\r\n"), Refused),
        ("a long field", get(&format!("x: {long}\r\n\r\n")), Refused),
        ("many fields", get(&format!("{many}\r\n")), Refused),
        ("a long path", get("\r\n").replace("/tasks", &format!("/tasks?{long}")), Refused),
        // Lengths (RFC 9110 §8.6): digits, and one value.
        ("a body", get("content-length: 2\r\n\r\nhi"), Answered(200)),
        ("one length twice", get("content-length: 2\r\ncontent-length: 2\r\n\r\nhi"), Answered(200)),
        ("two lengths", get("content-length: 2\r\ncontent-length: 0\r\n\r\nhi"), Refused),
        ("two lengths, 0 first", get("content-length: 0\r\ncontent-length: 2\r\n\r\nhi"), Refused),
        ("a list of lengths", get("content-length: 2, 2\r\n\r\nhi"), Refused),
        ("a length with a sign", get("content-length: +2\r\n\r\nhi"), Refused),
        ("a length below 0", get("content-length: -2\r\n\r\nhi"), Refused),
        ("a length in hex", get("content-length: 0x2\r\n\r\nhi"), Refused),
        ("an empty length", get("content-length:\r\n\r\n"), Refused),
        ("a length over 64 bits", get("content-length: 99999999999999999999999\r\n\r\nhi"), Refused),
        ("a length of 64 bits", get("content-length: 18446744073709551615\r\n\r\nhi"), Refused),
        // Transfer codings (RFC 9112 §6.1, §6.3): with a length beside it, the connection ends.
        ("chunks", get("transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"), Unread(200)),
        ("a length and chunks", get("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"), Last(200)),
        ("chunks and a length", get("transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"), Last(200)),
        ("another coding", get("transfer-encoding: identity\r\n\r\n"), Refused),
        ("an unknown coding", get("transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"), Refused),
        ("chunked not last", get("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"), Refused),
        ("a coding behind a vertical tab", get("transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n"), Refused),
        (
            "chunks in HTTP/1.0",
            get("transfer-encoding: chunked\r\n\r\n0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0"),
            Refused,
        ),
        // Chunks (RFC 9112 §7.1). No route here reads a body, so the answer comes first.
        ("a chunk's size over 64 bits", chunks("fffffffffffffffff\r\nhi\r\n0\r\n\r\n"), Last(200)),
        ("a chunk's size of 64 bits", chunks("ffffffffffffffff\r\nhi\r\n0\r\n\r\n"), Last(200)),
        ("a chunk's size below 0", chunks("-2\r\nhi\r\n0\r\n\r\n"), Last(200)),
        ("a chunk's size with 0x", chunks("0x2\r\nhi\r\n0\r\n\r\n"), Last(200)),
        ("a chunk's extension", chunks("2;a=b\r\nhi\r\n0\r\n\r\n"), Unread(200)),
        ("a chunk's extension ended by LF", chunks("2;a\nhi\r\n0\r\n\r\n"), Last(200)),
        ("a chunk longer than its size", chunks("2\r\nhiXX\r\n0\r\n\r\n"), Last(200)),
        ("a chunk ended by LF", chunks("2\r\nhi\n0\r\n\r\n"), Last(200)),
        // Targets (RFC 9112 §3.2).
        ("absolute form", get("\r\n").replace(" /sessions", " http://localhost/sessions"), Answered(200)),
        ("asterisk form", get("\r\n").replace("GET /sessions/demo/tasks", "OPTIONS *"), Answered(404)),
        ("asterisk form with GET", get("\r\n").replace("/sessions/demo/tasks", "*"), Answered(404)),
        ("authority form", get("\r\n").replace("GET /sessions/demo/tasks", "CONNECT localhost:80"), Answered(404)),
        ("dots in the path", get("\r\n").replace(" /sessions", " /x/../sessions"), Answered(404)),
        ("two spaces before the target", get("\r\n").replace("GET ", "GET  "), Refused),
        ("a tab before the target", get("\r\n").replace("GET ", "GET\t"), Refused),
        // Methods and versions (RFC 9112 §2.3, §3.1).
        ("a method with a delimiter in it", get("\r\n").replace("GET", "G(T"), Refused),
        ("a method in lower case", get("\r\n").replace("GET", "get"), Answered(405)),
        ("a method that is not allowed", post("content-length: 2\r\n\r\nhi"), Answered(405)),
        ("chunks that are none, posted", post("transfer-encoding: chunked\r\n\r\nxyz\r\nhi\r\n0\r\n\r\n"), Last(405)),
        ("HEAD", get("\r\n").replace("GET", "HEAD"), Answered(200)),
        ("no version", "GET /sessions/demo/tasks\r\n\r\n".to_owned(), Refused),
        ("version 1.2", get("\r\n").replace("HTTP/1.1", "HTTP/1.2"), Refused),
        ("a version in lower case", get("\r\n").replace("HTTP/1.1", "http/1.1"), Refused),
        ("HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), Refused),
        // What a proxy and an origin may take for the end of HTTP on a connection.
        ("an upgrade", get("connection: upgrade\r\nupgrade: websocket\r\n\r\n"), Answered(200)),
        (
            "an upgrade to HTTP/2",
            get("connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"),
            Answered(200),
        ),
        // Behind a stream.
        ("a request behind a stream", stream("\r\n"), Stream),
        ("a stream with a body", stream("content-length: 30\r\n\r\n"), Stream),
        ("a stream with chunks", stream("transfer-encoding: chunked\r\n\r\n0\r\n\r\n"), Stream),
        (
            "a stream with a length and chunks",
            stream("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
            Stream,
        ),
    ];
    cases.into_iter().map(|(name, request, outcome)| Case { name, request: request.into_bytes(), outcome }).collect()
}

/// A request for a list once, up to the last field of one's own and what follows.
fn get(rest: &str) -> String {
    format!("GET /sessions/demo/tasks HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n{rest}")
}

fn chunks(body: &str) -> String {
    get(&format!("transfer-encoding: chunked\r\n\r\n{body}"))
}

fn post(rest: &str) -> String {
    get(rest).replacen("GET", "POST", 1)
}

fn stream(rest: &str) -> String {
    get(rest).replace("application/json", "text/event-stream")
}
