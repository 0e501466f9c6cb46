//! A reader of event streams by the standard (WHATWG HTML, §9.2.6), over a real socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Instant,
};

use serde_json::Value;

use super::{PATIENCE, http};

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// `message` unless it is named.
    pub(crate) name: String,
    /// The last id when it was dispatched; empty when it was reset.
    pub(crate) id: String,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn list(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }

    /// `id` and `status` of each task.
    pub(crate) fn statuses(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.list().as_array().unwrap().iter().map(|task| (text(&task["id"]), text(&task["status"]))).collect()
    }
}

/// A socket of either family.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

/// An open stream.
pub(crate) struct Stream {
    reader: BufReader<Socket>,
    pub(crate) head: String,
    /// Bytes of the current chunk that are still to come; none for a body without chunks.
    chunk: Option<usize>,
    last_id: String,
    pub(crate) retry: Option<u64>,
    pub(crate) comments: Vec<String>,
}

impl Stream {
    /// Opens a session's stream and reads the head.
    pub(crate) fn open(address: SocketAddr, session: &str) -> Self {
        Self::with(address, session, &[])
    }

    pub(crate) fn with(address: SocketAddr, session: &str, headers: &[(&str, &str)]) -> Self {
        let path = format!("/sessions/{session}/tasks");
        Self::send(address, &http::request("GET", &path, headers, ""))
    }

    /// Opens a stream by a request of one's own.
    pub(crate) fn send(address: SocketAddr, request: &[u8]) -> Self {
        let mut socket = http::connect(address);
        socket.write_all(request).unwrap();
        Self::read_from(socket)
    }

    /// Takes a socket that was sent its request.
    pub(crate) fn read_from(socket: TcpStream) -> Self {
        Self::read(Socket::Tcp(socket))
    }

    /// Opens a stream of the control listener.
    pub(crate) fn control(socket: &Path, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&http::request("GET", path, headers, "")).unwrap();
        Self::read(Socket::Unix(socket))
    }

    fn read(socket: Socket) -> Self {
        let mut reader = BufReader::new(socket);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "the stream ended in its head: {head}");
        }
        let chunked = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n");
        let chunk = chunked.then_some(0);
        Self { reader, head, chunk, last_id: String::new(), retry: None, comments: Vec::new() }
    }

    /// Reads on to the first id, be there an event with it or not.
    pub(crate) fn opening_id(&mut self) -> &str {
        while self.last_id.is_empty() {
            let line = self.line().expect("the stream goes on");
            if let Some(comment) = line.strip_prefix(": ") {
                self.comments.push(comment.to_owned());
            } else if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.last_id);
                assert_eq!(self.line().as_deref(), Some(""), "an id alone");
            }
        }
        &self.last_id
    }

    /// The last id, as a reader holds it for its next connection.
    pub(crate) fn last_id(&self) -> &str {
        &self.last_id
    }

    /// The next event; none at a clean end. Panics when the stream breaks off.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let (mut name, mut data) = (String::new(), Vec::new());
        loop {
            let line = self.line()?;
            if line.is_empty() {
                if data.is_empty() {
                    // Nothing to dispatch: a comment, or a field without data, stood here.
                    name.clear();
                    continue;
                }
                let name = if name.is_empty() { "message".to_owned() } else { name };
                return Some(Event { name, id: self.last_id.clone(), data: data.join("\n") });
            }
            if let Some(comment) = line.strip_prefix(':') {
                self.comments.push(comment.trim_start().to_owned());
                // A comment is news too, to a test that waits for one.
                if comment.is_empty() {
                    return Some(Event { name: "comment".into(), id: String::new(), data: String::new() });
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut name),
                "data" => data.push(value.to_owned()),
                "id" => value.clone_into(&mut self.last_id),
                "retry" => self.retry = Some(value.parse().unwrap()),
                field => panic!("unknown field {field:?}"),
            }
        }
    }

    /// The next list. Signs of life come meanwhile, so the socket's own timeout is no end.
    pub(crate) fn list(&mut self) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "nothing came but signs of life");
            let event = self.next().expect("the stream goes on");
            if event.name == "message" {
                return event;
            }
            assert!(Instant::now() < deadline, "no list came");
        }
    }

    /// Reads until a list fits.
    pub(crate) fn until(&mut self, mut fits: impl FnMut(&Event) -> bool) -> Event {
        loop {
            let event = self.list();
            if fits(&event) {
                return event;
            }
        }
    }

    /// One line without its end. LF only: a CR is a fault.
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte() {
                None if line.is_empty() => return None,
                None => panic!("the stream broke off in a line"),
                Some(b'\n') => return Some(String::from_utf8(line).unwrap()),
                Some(b'\r') => panic!("a CR in the stream"),
                Some(byte) => line.push(byte),
            }
        }
    }

    /// One byte of the body; none at a clean end.
    fn byte(&mut self) -> Option<u8> {
        match self.chunk {
            None => {
                let mut byte = [0];
                (self.reader.read(&mut byte).unwrap() == 1).then_some(byte[0])
            }
            Some(0) => {
                let mut size = String::new();
                assert_ne!(self.reader.read_line(&mut size).unwrap(), 0, "the stream ended without a last chunk");
                let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
                self.chunk = Some(size);
                if size == 0 {
                    self.chunk_end();
                    assert_eq!(self.reader.read(&mut [0]).unwrap(), 0, "bytes behind the last chunk");
                    return None;
                }
                self.byte()
            }
            Some(left) => {
                let mut byte = [0];
                self.reader.read_exact(&mut byte).unwrap();
                self.chunk = Some(left - 1);
                if left == 1 {
                    self.chunk_end();
                }
                Some(byte[0])
            }
        }
    }

    fn chunk_end(&mut self) {
        let mut end = [0; 2];
        self.reader.read_exact(&mut end).unwrap();
        assert_eq!(&end, b"\r\n");
    }
}
