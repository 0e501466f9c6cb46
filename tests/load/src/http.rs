//! As much HTTP/1.1 as it takes to publish: requests in one write, answers with a length.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    time::Duration,
};

use crate::problem::{Problem, Result};

/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where requests go.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A connection that is kept, and made anew when the server closed it.
pub(crate) struct Connection {
    endpoint: Endpoint,
    socket: Socket,
    /// What came of an answer.
    answer: Vec<u8>,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// An answer that came whole.
pub(crate) struct Answer {
    status: u16,
    /// The server closes the connection after it.
    pub(crate) closes: bool,
    body: std::ops::Range<usize>,
}

impl Connection {
    pub(crate) fn open(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(Self { socket: Socket::connect(endpoint)?, endpoint: endpoint.clone(), answer: Vec::with_capacity(4096) })
    }

    /// Sends a request; nothing may be under way.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.answer.clear();
        self.socket.writer().write_all(request)
    }

    /// Connects again, since the server closed the connection between two requests.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.socket = Socket::connect(&self.endpoint)?;
        Ok(())
    }

    /// Reads once, waiting if it must; none as long as the answer is not whole.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server closed the connection.
    pub(crate) fn receive(&mut self) -> Result<Option<Answer>> {
        let mut part = [0; 4096];
        let read = self.socket.reader().read(&mut part)?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.answer.extend_from_slice(&part[..read]);
        self.whole()
    }

    /// Sends a request and waits for the answer's body; any status but 2xx is an error.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.send(request)?;
        let answer = loop {
            if let Some(answer) = self.receive()? {
                break answer;
            }
        };
        if !answer.is_good() {
            return Err(self.refused());
        }
        if answer.closes {
            self.reopen()?;
        }
        Ok(&self.answer[answer.body])
    }

    /// The last answer, as an error.
    pub(crate) fn refused(&self) -> Problem {
        Problem::Refused(String::from_utf8_lossy(&self.answer).into_owned())
    }

    fn whole(&self) -> Result<Option<Answer>> {
        let Some(end) = memchr::memmem::find(&self.answer, b"\r\n\r\n") else { return Ok(None) };
        let body: usize = end + 4;
        let head = String::from_utf8_lossy(&self.answer[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.ok_or_else(|| self.refused())?;
        let (mut length, mut closes) = (None, false);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            } else if name.eq_ignore_ascii_case("connection") {
                closes = value.trim().eq_ignore_ascii_case("close");
            }
        }
        // RFC 9112 §6.3: a 204 has no body and no length.
        let length = if status == 204 { 0 } else { length.ok_or_else(|| self.refused())? };
        let body = body..body + length;
        Ok((self.answer.len() >= body.end).then_some(Answer { status, closes, body }))
    }
}

impl Answer {
    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Socket {
    fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Ok(Self::Unix(socket))
            }
            Endpoint::Tcp(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_nodelay(true)?;
                Ok(Self::Tcp(socket))
            }
        }
    }

    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::Unix(socket) => socket,
            Self::Tcp(socket) => socket,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Unix(socket) => socket,
            Self::Tcp(socket) => socket,
        }
    }
}

/// A request with a JSON or a plain body.
pub(crate) fn request(method: &str, path: &str, media_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
