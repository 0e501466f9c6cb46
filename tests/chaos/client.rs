//! Readers: they come, read, stall, leave in every way there is, and come back.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::{
    goal::{Goal, Mode},
    mirror::Mirror,
    random::Random,
    reader::{Reader, Said},
    support::http::request,
};

/// How long a reader may take to come to a list: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a reader says that stays, before it is told where to come to.
pub(crate) const STAYS: u64 = 0;
/// How long one read waits before a reader looks up.
const GLANCE: Duration = Duration::from_millis(50);

pub(crate) struct Client<'a> {
    pub(crate) mirror: Mirror,
    pub(crate) random: Random,
    /// The gateway, and the proxy before it if there is one.
    pub(crate) ways: &'a [SocketAddr],
    pub(crate) goal: &'a Goal,
    pub(crate) number: usize,
    pub(crate) connections: u64,
}

/// Why a connection is over.
enum Over {
    /// By the other end, or the network between.
    Lost,
    /// This reader had enough.
    Left,
}

impl Client<'_> {
    /// Reads until all leave. An error tells what was wrong, and what went before. Says how many
    /// connections there were and how many lists.
    pub(crate) fn run(mut self) -> Result<(u64, u64), String> {
        loop {
            match self.connection() {
                Ok(Over::Left) if matches!(self.goal.mode(), Mode::Leave) => {
                    return Ok((self.connections, self.mirror.lists));
                }
                Ok(Over::Left) => {}
                Ok(Over::Lost) => {
                    self.mirror.note("lost".into());
                    thread::sleep(self.random.millis(300));
                }
                Err(fault) => return Err(format!("{fault}\n  {}", self.mirror.story())),
            }
            if matches!(self.goal.mode(), Mode::Leave) {
                return Ok((self.connections, self.mirror.lists));
            }
        }
    }

    /// One connection, from its beginning to its end.
    fn connection(&mut self) -> Result<Over, String> {
        let way = *self.random.of(self.ways);
        let resumes = !self.mirror.last_id().is_empty() && !self.random.one_in(3);
        let beats = if self.random.one_in(2) { "?heartbeat=event" } else { "" };
        let (small, until) = (self.random.one_in(2), self.random.millis(4_000));
        let Ok(mut socket) = connect(way, small) else { return Ok(Over::Lost) };
        let path = format!("/sessions/{}/tasks{beats}", self.mirror.session());
        let last_id = self.mirror.last_id().to_owned();
        let headers: &[(&str, &str)] = if resumes { &[("last-event-id", &last_id)] } else { &[] };
        if socket.write_all(&request("GET", &path, headers, "")).is_err() {
            return Ok(Over::Lost);
        }
        self.connections += 1;
        let mut reader = Reader::new(if resumes { &last_id } else { "" });
        let (mut open, mut until) = (false, Instant::now() + until);
        let mut patience: Option<(u64, Instant)> = None;
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.goal.mode() {
                Mode::Leave => return Ok(Over::Left),
                Mode::Stay if open => self.goal.arrived(self.number, STAYS),
                Mode::Arrive(time, lists) => {
                    let list = lists.get(self.mirror.session()).map_or(&[][..], Vec::as_slice);
                    if open && self.mirror.rows() == list {
                        self.goal.arrived(self.number, time);
                    } else if patience.is_none_or(|(of, _)| of != time) {
                        patience = Some((time, Instant::now() + PATIENCE));
                    } else if patience.is_some_and(|(_, until)| Instant::now() > until) {
                        return Err(format!("an open connection never came to the list {list:?}"));
                    }
                }
                Mode::Roam if Instant::now() > until => {
                    if self.random.one_in(2) {
                        self.leave(&mut socket);
                        return Ok(Over::Left);
                    }
                    // It stalls, and takes up again where it was.
                    self.mirror.note("stalls".into());
                    thread::sleep(self.random.millis(3_000));
                    until = Instant::now() + self.random.millis(2_000);
                }
                Mode::Stay | Mode::Roam => {}
            }
            let read = match socket.read(&mut bytes) {
                Ok(0) => return Ok(Over::Lost),
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => return Ok(Over::Lost),
            };
            for said in reader.feed(&bytes[..read])? {
                match said {
                    Said::Head(200) => {
                        open = true;
                        self.mirror.connected(resumes);
                    }
                    // A proxy whose gateway is away: come back later.
                    Said::Head(_) | Said::End => return Ok(Over::Lost),
                    Said::Event(event) => self.mirror.take(&event)?,
                }
            }
        }
    }

    fn leave(&mut self, socket: &mut TcpStream) {
        self.mirror.note("leaves".into());
        match self.random.below(3) {
            // With a reset.
            0 => socket2::SockRef::from(&*socket).set_linger(Some(Duration::ZERO)).unwrap(),
            // It says that it will say no more, and lingers.
            1 => {
                let _ = socket.shutdown(Shutdown::Write);
                thread::sleep(self.random.millis(100));
            }
            _ => {}
        }
    }
}

fn connect(way: SocketAddr, small: bool) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    if small {
        // So that a stall is felt at the other end.
        socket.set_recv_buffer_size(4_096)?;
    }
    socket.connect_timeout(&way.into(), Duration::from_secs(5))?;
    socket.set_read_timeout(Some(GLANCE))?;
    Ok(socket.into())
}
