//! HTTP/1.1 as bytes: tests say exactly what goes over the wire.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::Value;

use super::PATIENCE;

/// An answer, read whole.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} is there twice");
        value
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that it is a problem (RFC 9457) of this status that says what to do.
    pub(crate) fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().unwrap().starts_with("urn:tasklight:problem:"), "{problem}");
        assert!(!problem["title"].as_str().unwrap().is_empty());
        problem
    }

    /// Reads the first answer in the bytes, and returns what follows it.
    pub(crate) fn parse(bytes: &[u8]) -> (Self, &[u8]) {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("the head is whole");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut rest = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<_> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: String::new() };
        if answer.header("transfer-encoding") == Some("chunked") {
            let (body, after) = dechunk(rest);
            answer.body = String::from_utf8(body).unwrap();
            rest = after;
        } else if let Some(length) = answer.header("content-length") {
            let length = length.parse().unwrap();
            answer.body = String::from_utf8(rest[..length].to_vec()).unwrap();
            rest = &rest[length..];
        } else {
            answer.body = String::from_utf8(rest.to_vec()).unwrap();
            rest = &[];
        }
        (answer, rest)
    }
}

/// The bytes of a chunked body up to its last chunk, and what follows.
fn dechunk(mut rest: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").expect("a chunk's size is whole");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        rest = &rest[line + 2..];
        body.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n", "a chunk ends with a line end");
        rest = &rest[size + 2..];
        if size == 0 {
            return (body, rest);
        }
    }
}

/// A request that asks for the connection to be closed behind the answer.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "POST" {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    request.push_str(body);
    request.into_bytes()
}

/// Sends bytes to the browsers' listener and reads the one answer.
pub(crate) fn over_tcp(address: SocketAddr, request: &[u8]) -> Answer {
    let mut socket = connect(address);
    socket.write_all(request).unwrap();
    read_to_end(&mut socket)
}

/// Sends bytes to the control listener and reads the one answer.
pub(crate) fn over_unix(path: &Path, request: &[u8]) -> Answer {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request).unwrap();
    read_to_end(&mut socket)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Reads the one answer until the connection is closed.
pub(crate) fn read_to_end(socket: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    let (answer, rest) = Answer::parse(&bytes);
    assert!(rest.is_empty(), "bytes behind the answer: {rest:?}");
    answer
}

/// Like [`read_to_end`], of the answer to that method: one to `HEAD` has no body, whatever its
/// headers say of one (RFC 9112 §6.3).
pub(crate) fn read_to_end_of(method: &str, socket: &mut impl Read) -> Answer {
    if method != "HEAD" {
        return read_to_end(socket);
    }
    let mut head = String::new();
    socket.read_to_string(&mut head).unwrap();
    assert!(head.ends_with("\r\n\r\n"), "bytes behind the head: {head}");
    let without_body = |line: &&str| !line.starts_with("content-length:") && !line.starts_with("transfer-encoding:");
    let head: Vec<_> = head.split("\r\n").filter(without_body).collect();
    Answer::parse(head.join("\r\n").as_bytes()).0
}
