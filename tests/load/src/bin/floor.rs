//! The floor: what the kernel asks for a list that goes to many readers, and nothing beside it.
//!
//! One thread, one epoll; a change is framed once and sent to each of its session's readers with one
//! `send`. A reader that takes no more is remembered, with the rest of its list, until its socket can
//! be written to. Lists come in by `POST /sessions/NAME` on a Unix socket.
//!
//! `floor ADDRESS SOCKET stream` serves streams; `floor ADDRESS SOCKET grip` answers as the application
//! behind a GRIP proxy, which holds the streams for it.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::{UnixListener, UnixStream},
    },
    rc::Rc,
    time::{SystemTime, UNIX_EPOCH},
};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    socket::{self, AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, setsockopt, sockopt},
};

const BROWSERS: u64 = 0;
const CONTROL: u64 = 1;
/// Tokens of connections begin here.
const FIRST: u64 = 2;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\ntransfer-encoding: chunked\r\n\r\n";

struct Floor {
    epoll: Epoll,
    grip: bool,
    browsers: TcpListener,
    control: UnixListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    sessions: HashMap<String, Session>,
}

enum Connection {
    Producer { socket: UnixStream, received: Vec<u8> },
    Reader { socket: TcpStream, session: Option<Rc<str>>, unsent: Option<Unsent> },
}

/// What a reader did not take yet: the rest of one list, and after it the newest.
struct Unsent {
    frame: Rc<[u8]>,
    from: usize,
    newest: bool,
}

#[derive(Default)]
struct Session {
    json: String,
    frame: Option<Rc<[u8]>>,
    readers: Vec<usize>,
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, path, mode] = arguments.as_slice() else {
        return Err(io::Error::other("floor ADDRESS SOCKET stream|grip"));
    };
    let address: std::net::SocketAddrV4 = address.parse().map_err(io::Error::other)?;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let browsers = socket::socket(AddressFamily::Inet, SockType::Stream, flags, SockProtocol::Tcp)?;
    setsockopt(&browsers, sockopt::ReuseAddr, &true)?;
    socket::bind(browsers.as_raw_fd(), &SockaddrIn::from(address))?;
    socket::listen(&browsers, Backlog::new(4_096)?)?;
    let browsers = TcpListener::from(browsers);
    let _ = fs::remove_file(path);
    let control = UnixListener::bind(path)?;
    control.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&browsers, EpollEvent::new(EpollFlags::EPOLLIN, BROWSERS))?;
    epoll.add(&control, EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
    let (connections, free, sessions) = Default::default();
    Floor { epoll, grip: mode == "grip", browsers, control, connections, free, sessions }.serve()
}

impl Floor {
    fn serve(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 512];
        loop {
            let ready = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(nix::Error::EINTR) => continue,
                ready => ready?,
            };
            for event in &events[..ready] {
                match event.data() {
                    BROWSERS => self.accept_browsers()?,
                    CONTROL => self.accept_producers()?,
                    token => {
                        let at = usize::try_from(token - FIRST).map_err(io::Error::other)?;
                        if self.ready(at, event.events()).is_err() {
                            self.close(at);
                        }
                    }
                }
            }
        }
    }

    fn accept_browsers(&mut self) -> io::Result<()> {
        loop {
            let socket = match self.browsers.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            self.keep(Connection::Reader { socket, session: None, unsent: None })?;
        }
    }

    fn accept_producers(&mut self) -> io::Result<()> {
        loop {
            match self.control.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(true)?;
                    self.keep(Connection::Producer { socket, received: Vec::new() })?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn keep(&mut self, connection: Connection) -> io::Result<()> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let event = EpollEvent::new(EpollFlags::EPOLLIN, FIRST + at as u64);
        match &connection {
            Connection::Producer { socket, .. } => self.epoll.add(socket.as_fd(), event)?,
            Connection::Reader { socket, .. } => self.epoll.add(socket.as_fd(), event)?,
        }
        self.connections[at] = Some(connection);
        Ok(())
    }

    fn close(&mut self, at: usize) {
        if let Some(Connection::Reader { session: Some(session), .. }) = self.connections[at].take()
            && let Some(session) = self.sessions.get_mut(&*session)
        {
            session.readers.retain(|reader| *reader != at);
        }
        self.free.push(at);
    }

    fn ready(&mut self, at: usize, events: EpollFlags) -> io::Result<()> {
        let mut buffer = [0; 4096];
        match self.connections.get_mut(at) {
            Some(Some(Connection::Producer { socket, received })) => {
                let read = socket.read(&mut buffer)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                received.extend_from_slice(&buffer[..read]);
                let Some((path, body, length)) = post(received) else { return Ok(()) };
                let (name, list) = (path.to_owned(), body.to_owned());
                received.drain(..length);
                socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
                self.publish(&name, list);
                Ok(())
            }
            Some(Some(Connection::Reader { socket, session, unsent })) => {
                if events.contains(EpollFlags::EPOLLOUT) {
                    return self.go_on(at);
                }
                let read = socket.read(&mut buffer)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if session.is_some() && !self.grip {
                    return Ok(());
                }
                let request = String::from_utf8_lossy(&buffer[..read]);
                let name = request.split('/').nth(2).unwrap_or_default();
                let known = self.sessions.entry(name.to_owned()).or_default();
                if self.grip {
                    return socket.write_all(held(name).as_bytes());
                }
                let mut opening = HEAD.as_bytes().to_vec();
                opening.extend(known.frame.iter().flat_map(|frame| frame.iter()));
                known.readers.push(at);
                *session = Some(name.into());
                send(&self.epoll, at, socket, unsent, &opening.into())
            }
            _ => Ok(()),
        }
    }

    fn publish(&mut self, name: &str, list: String) {
        let session = self.sessions.entry(name.to_owned()).or_default();
        session.json = list;
        let frame = frame(&session.json);
        session.frame = Some(Rc::clone(&frame));
        let mut gone = Vec::new();
        for &at in &session.readers {
            if let Some(Some(Connection::Reader { socket, unsent, .. })) = self.connections.get_mut(at)
                && send(&self.epoll, at, socket, unsent, &frame).is_err()
            {
                gone.push(at);
            }
        }
        for at in gone {
            self.close(at);
        }
    }

    /// A reader that took no more takes more.
    fn go_on(&mut self, at: usize) -> io::Result<()> {
        let Some(Some(Connection::Reader { socket, session: Some(session), unsent })) = self.connections.get_mut(at)
        else {
            return Ok(());
        };
        let Some(rest) = unsent.take() else { return Ok(()) };
        let newest = rest.newest;
        self.epoll.modify(&*socket, &mut EpollEvent::new(EpollFlags::EPOLLIN, FIRST + at as u64))?;
        send_from(&self.epoll, at, socket, unsent, &rest.frame, rest.from)?;
        match (unsent, self.sessions.get(&**session).and_then(|session| session.frame.as_ref())) {
            (Some(unsent), _) => {
                unsent.newest = newest;
                Ok(())
            }
            (unsent @ None, Some(frame)) if !newest => send(&self.epoll, at, socket, unsent, frame),
            (None, _) => Ok(()),
        }
    }
}

fn send(
    epoll: &Epoll,
    at: usize,
    socket: &mut TcpStream,
    unsent: &mut Option<Unsent>,
    frame: &Rc<[u8]>,
) -> io::Result<()> {
    if let Some(unsent) = unsent {
        unsent.newest = false;
        return Ok(());
    }
    send_from(epoll, at, socket, unsent, frame, 0)
}

fn send_from(
    epoll: &Epoll,
    at: usize,
    socket: &mut TcpStream,
    unsent: &mut Option<Unsent>,
    frame: &Rc<[u8]>,
    from: usize,
) -> io::Result<()> {
    let sent = match socket.write(&frame[from..]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        sent => sent?,
    };
    if from + sent < frame.len() {
        *unsent = Some(Unsent { frame: Rc::clone(frame), from: from + sent, newest: true });
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        epoll.modify(&*socket, &mut EpollEvent::new(both, FIRST + at as u64))?;
    }
    Ok(())
}

/// A list as an event in a chunk.
fn frame(json: &str) -> Rc<[u8]> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let event = format!("id: {now}\ndata: {json}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes().into()
}

/// The answer by which a GRIP proxy holds a stream, with the first list.
fn held(name: &str) -> String {
    let event = format!("data: [{{\"detail\":\"step {:08}\"}}]\n\n", 1);
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ngrip-hold: stream\r\ngrip-channel: {name}\r\ncontent-length: {}\r\n\r\n{event}",
        event.len()
    )
}

/// A request that came whole: the session's name, the body, and the length of it all.
fn post(received: &[u8]) -> Option<(&str, &str, usize)> {
    let end = received.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&received[..end]).ok()?;
    let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.trim().parse().ok()?;
    let body = received.get(end + 4..end + 4 + length)?;
    let name = head.split(' ').nth(1)?.rsplit('/').next()?;
    Some((name, std::str::from_utf8(body).ok()?, end + 4 + length))
}
