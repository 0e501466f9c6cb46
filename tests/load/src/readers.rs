//! The readers: thousands of streams that are read by one thread, with no allocation for an event.
//!
//! Of a stream only this is kept: whose it is, the number of the last list, and the last bytes, in
//! which an event may have begun.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
};

use nix::sys::{
    epoll::{Epoll, EpollEvent, EpollFlags},
    socket::{self, AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, setsockopt, sockopt},
};

use crate::{
    board::Board,
    histogram::Histogram,
    list::{self, DIGITS, MARK},
    problem::{Problem, Result},
};

/// One less than a mark and its number: with that much kept, one that was cut is found, and none is
/// found twice.
const KEPT: usize = MARK.len() + DIGITS - 1;
const BUFFER: usize = 64 * 1024;

pub(crate) struct Readers {
    server: SocketAddr,
    all: Vec<Reader>,
    buffer: Box<[u8]>,
    finder: memchr::memmem::Finder<'static>,
    /// Lists that came.
    pub(crate) deliveries: u64,
    /// Bytes that came.
    pub(crate) bytes: u64,
    /// Streams that the server refused or closed.
    pub(crate) lost: Vec<usize>,
    /// From when a change was due to when a reader had it.
    pub(crate) latency: Histogram,
}

struct Reader {
    socket: Option<TcpStream>,
    session: u32,
    /// The number of the list that it has; 0 before the first.
    last: u32,
    stage: Stage,
    kept: [u8; KEPT],
    kept_len: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// The request is sent.
    Asked,
    /// The head came.
    Reading,
}

impl Readers {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            all: Vec::new(),
            buffer: vec![0; KEPT + BUFFER].into(),
            finder: memchr::memmem::Finder::new(MARK),
            deliveries: 0,
            bytes: 0,
            lost: Vec::new(),
            latency: Histogram::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Opens one more stream; it has the event's data `token`, which is its number.
    pub(crate) fn open(&mut self, epoll: &Epoll, session: u32, board: &mut Board) -> Result<()> {
        let token = self.all.len();
        let socket = self.connect(epoll, token)?;
        let stage = Stage::Connecting;
        self.all.push(Reader { socket: Some(socket), session, last: 0, stage, kept: [0; KEPT], kept_len: 0 });
        board.join();
        Ok(())
    }

    /// Closes a stream and opens it again.
    pub(crate) fn reopen(&mut self, epoll: &Epoll, token: usize, board: &mut Board) -> Result<()> {
        let socket = self.connect(epoll, token)?;
        let reader = &mut self.all[token];
        if reader.socket.is_some() {
            board.leave(reader.session, reader.last);
        }
        board.join();
        *reader = Reader { socket: Some(socket), last: 0, stage: Stage::Connecting, kept_len: 0, ..*reader };
        Ok(())
    }

    /// Opens a stream that sends its request and never reads; it has no part in the books.
    pub(crate) fn open_stalled(&self, session: u32) -> Result<TcpStream> {
        let mut socket = TcpStream::connect(self.server)?;
        socket.write_all(&request(session))?;
        Ok(socket)
    }

    fn connect(&self, epoll: &Epoll, token: usize) -> Result<TcpStream> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket: OwnedFd = socket::socket(AddressFamily::Inet, SockType::Stream, flags, SockProtocol::Tcp)?;
        // Closing resets: else the ports of runs before would wait for a minute.
        setsockopt(&socket, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
        let SocketAddr::V4(server) = self.server else { unreachable!("servers listen on 127.0.0.1") };
        match socket::connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::from(server)) {
            Ok(()) | Err(nix::Error::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLOUT, token as u64))?;
        Ok(socket.into())
    }

    /// A stream is ready. `now` tells the time in nanoseconds.
    pub(crate) fn ready(
        &mut self,
        epoll: &Epoll,
        token: usize,
        board: &mut Board,
        now: impl Fn() -> u64,
    ) -> Result<()> {
        let reader = &mut self.all[token];
        let Some(socket) = &mut reader.socket else { return Ok(()) };
        if reader.stage == Stage::Connecting {
            socket.write_all(&request(reader.session))?;
            epoll.modify(&*socket, &mut EpollEvent::new(EpollFlags::EPOLLIN, token as u64))?;
            reader.stage = Stage::Asked;
            return Ok(());
        }
        let read = match socket.read(&mut self.buffer[KEPT..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.into()),
        };
        let refused = reader.stage == Stage::Asked && !self.buffer[KEPT..KEPT + read].starts_with(b"HTTP/1.1 200");
        if read == 0 || refused {
            reader.socket = None;
            board.leave(reader.session, reader.last);
            self.lost.push(token);
            return Ok(());
        }
        reader.stage = Stage::Reading;
        self.bytes += read as u64;
        let start = KEPT - usize::from(reader.kept_len);
        self.buffer[start..KEPT].copy_from_slice(&reader.kept[..usize::from(reader.kept_len)]);
        let news = &self.buffer[start..KEPT + read];
        for at in self.finder.find_iter(news) {
            let Some(digits) = news.get(at + MARK.len()..at + MARK.len() + DIGITS) else { break };
            // The next list, or the proof at the end, tells.
            let Some(number) = list::number(digits) else { continue };
            let due = board.receive(reader.session, reader.last, number)?;
            // A baseline is a delivery, and late by no measure.
            if reader.last > 0 {
                self.latency.record(now().saturating_sub(due));
            }
            reader.last = number;
            self.deliveries += 1;
        }
        let kept = &news[news.len().saturating_sub(KEPT)..];
        reader.kept[..kept.len()].copy_from_slice(kept);
        reader.kept_len = u8::try_from(kept.len()).unwrap_or_default();
        Ok(())
    }

    /// Shows that no stream ends within an event: the last bytes are an empty line, and the end of
    /// a chunk where there are chunks.
    pub(crate) fn ends_are_whole(&self) -> Result<()> {
        for reader in self.all.iter().filter(|reader| reader.socket.is_some()) {
            let kept = &reader.kept[..usize::from(reader.kept_len)];
            if ![&b"\n\n"[..], b"\n\n\r\n", b"\r\n\r\n"].iter().any(|end| kept.ends_with(end)) {
                return Err(Problem::Torn(String::from_utf8_lossy(kept).into_owned()));
            }
        }
        Ok(())
    }
}

fn request(session: u32) -> Vec<u8> {
    format!("GET /sessions/s{session}/tasks HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        .into_bytes()
}
