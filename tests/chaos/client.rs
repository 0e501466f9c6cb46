//! Readers: they come, read, stall, leave in every way there is, and come back.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    mirror::Mirror,
    random::Random,
    reader::{Reader, Said},
    support::http::request,
};

/// How long a reader may take to come to the last list: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long one read waits before a reader looks up.
const GLANCE: Duration = Duration::from_millis(50);

/// The lists that every reader must come to, once nothing changes any more.
pub(crate) type Finish = OnceLock<std::collections::HashMap<String, Vec<Value>>>;

pub(crate) struct Client<'a> {
    pub(crate) mirror: Mirror,
    pub(crate) random: Random,
    /// The gateway, and the proxy before it if there is one.
    pub(crate) ways: &'a [SocketAddr],
    pub(crate) finish: &'a Finish,
    pub(crate) connections: u64,
}

/// Why a connection is over.
enum Over {
    /// By the other end, or the network between.
    Lost,
    /// This reader had enough.
    Left,
    /// The last list is here.
    Finished,
}

impl Client<'_> {
    /// Reads until the last list is there. An error tells what was wrong, and what went before.
    pub(crate) fn run(mut self) -> Result<(u64, u64), String> {
        let mut deadline = None;
        loop {
            match self.connection() {
                Ok(Over::Finished) => return Ok((self.connections, self.mirror.lists)),
                Ok(Over::Left) => {}
                Ok(Over::Lost) => {
                    self.mirror.note("lost".into());
                    thread::sleep(self.random.millis(300));
                }
                Err(fault) => return Err(format!("{fault}\n  {}", self.mirror.story())),
            }
            if self.finish.get().is_some() {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() > deadline {
                    return Err(format!("never came to the last list\n  {}", self.mirror.story()));
                }
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
        let mut patience = None;
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(lists) = self.finish.get() {
                if open && self.mirror.rows() == lists.get(self.mirror.session()).map_or(&[][..], Vec::as_slice) {
                    return Ok(Over::Finished);
                }
                // From here on it stays; a connection that tells nothing is a fault.
                let patience = *patience.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() > patience {
                    return Err("an open connection never came to the last list".into());
                }
            } else if Instant::now() > until {
                if self.random.one_in(2) {
                    self.leave(&mut socket);
                    return Ok(Over::Left);
                }
                // It stalls, and takes up again where it was.
                self.mirror.note("stalls".into());
                thread::sleep(self.random.millis(3_000));
                until = Instant::now() + self.random.millis(2_000);
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
