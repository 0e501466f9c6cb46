//! One server's load: its readers and its publisher on one thread and one epoll.

use std::time::{Duration, Instant};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use crate::{
    board::Board,
    list::Numbered,
    problem::{Problem, Result},
    publisher::Publisher,
    readers::Readers,
    server::Server,
};

/// Tokens of events: readers count from 0.
const TIMER: u64 = 1 << 40;
const PUBLISHER: u64 = 1 << 41;
/// Events taken at once.
const BATCH: usize = 512;
/// How often a stream that is refused tries again.
const TRIES: usize = 50;
/// How long readers may take to get what is due.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Load {
    epoll: Epoll,
    timer: TimerFd,
    pub(crate) readers: Readers,
    publisher: Publisher,
    board: Board,
    started: Instant,
}

impl Load {
    /// `requests` publish a session each; `lanes` is how many changes may be under way at once.
    pub(crate) fn new(server: &Server, requests: Vec<Numbered>, lanes: usize) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let board = Board::new(requests.len());
        let publisher = Publisher::new(&epoll, server.endpoint(), lanes, PUBLISHER, requests)?;
        let readers = Readers::new(server.address());
        Ok(Self { epoll, timer, readers, publisher, board, started: Instant::now() })
    }

    /// Nanoseconds since this load began.
    pub(crate) fn now(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }

    /// Gives each session its first list, before anybody reads.
    pub(crate) fn first_lists(&mut self) -> Result<()> {
        self.publish_round()?;
        self.until(|load| load.publisher.pending() == 0)
    }

    /// Opens that many streams, spread evenly over the sessions; at most `at_once` wait for their
    /// baseline. Streams that are refused try again, as browsers would.
    ///
    /// # Errors
    /// When some are refused again and again.
    pub(crate) fn open(&mut self, streams: usize, at_once: usize) -> Result<()> {
        self.connect(streams, at_once)?;
        for _ in 0..TRIES {
            if self.readers.lost.is_empty() {
                break;
            }
            self.rest(Duration::from_millis(100))?;
            for reader in std::mem::take(&mut self.readers.lost) {
                self.reopen(reader)?;
            }
            self.settle()?;
        }
        self.all_current()
    }

    /// Opens that many streams at once; returns how long it took until each had its baseline or was
    /// refused.
    pub(crate) fn storm(&mut self, streams: usize) -> Result<Duration> {
        let began = Instant::now();
        self.connect(streams, streams + 1)?;
        Ok(began.elapsed())
    }

    fn connect(&mut self, streams: usize, at_once: usize) -> Result<()> {
        for at in 0..streams {
            let session = u32::try_from(at % self.board.sessions()).expect("a few thousand sessions");
            self.readers.open(&self.epoll, session, &mut self.board)?;
            if self.board.behind() >= at_once {
                self.until(|load| load.board.behind() < at_once)?;
            }
        }
        self.settle()
    }

    /// Closes a stream and opens it again, without waiting.
    pub(crate) fn reopen(&mut self, reader: usize) -> Result<()> {
        self.readers.reopen(&self.epoll, reader, &mut self.board)
    }

    /// One change in each session.
    pub(crate) fn publish_round(&mut self) -> Result<()> {
        for session in 0..self.board.sessions() {
            let session = u32::try_from(session).expect("a few thousand sessions");
            self.publisher.publish(session, self.now(), &mut self.board)?;
        }
        Ok(())
    }

    /// Waits until each reader has the newest list of its session.
    ///
    /// # Errors
    /// When one has not, or was closed by the server.
    pub(crate) fn all_current(&mut self) -> Result<()> {
        self.settle()?;
        match self.readers.lost.len() {
            0 => Ok(()),
            readers => Err(Problem::Lost { readers, of: self.readers.len() }),
        }
    }

    fn settle(&mut self) -> Result<()> {
        self.until(|load| load.board.behind() == 0 && load.publisher.pending() == 0)
    }

    /// Closed loop: for that long, one change in each session, and the next when all readers have it.
    /// Returns the changes made.
    pub(crate) fn closed_loop(&mut self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        let mut changes = 0;
        while Instant::now() < end {
            self.publish_round()?;
            self.all_current()?;
            changes += self.board.sessions() as u64;
        }
        Ok(changes)
    }

    /// Open rate: that many changes, one each `period`, going round the sessions, whatever the server
    /// does; then waits for all readers. `also` is called at each change with its number.
    pub(crate) fn open_rate(
        &mut self,
        changes: u64,
        period: Duration,
        mut also: impl FnMut(&mut Self, u64) -> Result<()>,
    ) -> Result<()> {
        let period_ns = nanoseconds(period);
        self.timer.set(Expiration::Interval(period.into()), TimerSetTimeFlags::empty())?;
        let began = self.now();
        let mut made = 0;
        while made < changes {
            let due = (self.now() - began) / period_ns;
            while made < due.min(changes) {
                let session = u32::try_from(made % self.board.sessions() as u64).expect("a few thousand sessions");
                self.publisher.publish(session, began + (made + 1) * period_ns, &mut self.board)?;
                also(self, made)?;
                made += 1;
            }
            self.turn(EpollTimeout::NONE)?;
        }
        self.timer.unset()?;
        self.all_current()
    }

    /// Forgets what was counted.
    pub(crate) fn reset(&mut self) {
        self.readers.deliveries = 0;
        self.readers.bytes = 0;
        self.readers.latency.clear();
    }

    /// Serves events for that long.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| left.as_millis() > 0) {
            self.turn(timeout(left))?;
        }
        Ok(())
    }

    fn until(&mut self, mut reached: impl FnMut(&Self) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !reached(self) {
            let left = end.saturating_duration_since(Instant::now());
            if left.as_millis() == 0 {
                return Err(Problem::Late { readers: self.board.behind(), of: self.readers.len(), patience: PATIENCE });
            }
            self.turn(timeout(left))?;
        }
        Ok(())
    }

    fn turn(&mut self, patience: EpollTimeout) -> Result<()> {
        let mut events = [EpollEvent::empty(); BATCH];
        let ready = match self.epoll.wait(&mut events, patience) {
            Err(nix::Error::EINTR) => 0,
            ready => ready?,
        };
        let started = self.started;
        for event in &events[..ready] {
            match event.data() {
                TIMER => {
                    let _ = self.timer.wait();
                }
                token if token >= PUBLISHER => self.publisher.ready(&self.epoll, token, &mut self.board)?,
                token => {
                    let token = usize::try_from(token).expect("a reader's token");
                    self.readers.ready(&self.epoll, token, &mut self.board, || nanoseconds(started.elapsed()))?;
                }
            }
        }
        Ok(())
    }
}

fn timeout(left: Duration) -> EpollTimeout {
    EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
