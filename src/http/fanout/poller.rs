//! The epoll (epoll(7)) of the streams' sockets, which tokio waits for as for one descriptor.
//!
//! Level-triggered: what is not attended to now is told of again, so that a turn may end anywhere.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    task::{Context, Poll, ready},
};

use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};
use tokio::io::{Interest as TokioInterest, unix::AsyncFd};

use crate::http::socket::watched;

/// The most sockets that are told of at once.
const BATCH: usize = 64;

/// What a socket is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Whatever its peer sends, if only its end.
    Word,
    /// That, and room for more.
    WordAndRoom,
}

/// What a socket is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) key: usize,
    /// There is something to read: bytes, the end, or an error.
    pub(super) word: bool,
    pub(super) room: bool,
}

#[derive(Debug)]
pub(super) struct Poller {
    epoll: AsyncFd<OwnedFd>,
}

impl Poller {
    /// Must be called within a tokio runtime.
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll: watched(epoll, TokioInterest::READABLE)? })
    }

    /// Waits for a socket until it is closed. `key` tells it apart.
    pub(super) fn add(&self, socket: impl AsFd, key: usize, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(self.epoll.get_ref(), socket, EventData::new_u64(key as u64), interest.flags())?)
    }

    /// Waits for something else of it.
    pub(super) fn modify(&self, socket: impl AsFd, key: usize, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(self.epoll.get_ref(), socket, EventData::new_u64(key as u64), interest.flags())?)
    }

    /// Ready when sockets are, with a bounded number of them added to `ready`. One task may wait.
    pub(super) fn poll_ready(&self, cx: &mut Context<'_>, ready: &mut Vec<Ready>) -> Poll<()> {
        loop {
            let Ok(mut readable) = ready!(self.epoll.poll_read_ready(cx)) else {
                // The runtime ends, and drops this.
                return Poll::Pending;
            };
            match self.ready_now(ready) {
                // tokio is told of each change from "none" to "some" only, so it is to wait after "none".
                Ok(0) => readable.clear_ready(),
                Ok(_) => return Poll::Ready(()),
                Err(error) => {
                    tracing::debug!(%error, "cannot wait for streams");
                    readable.clear_ready();
                }
            }
        }
    }

    fn ready_now(&self, ready: &mut Vec<Ready>) -> io::Result<usize> {
        let mut events = [const { MaybeUninit::uninit() }; BATCH];
        let at_once = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
        let (events, _) = epoll::wait(self.epoll.get_ref(), &mut events, at_once)?;
        ready.extend(events.iter().copied().map(Ready::from));
        Ok(events.len())
    }
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Word => EventFlags::IN,
            Self::WordAndRoom => EventFlags::IN | EventFlags::OUT,
        }
    }
}

impl From<Event> for Ready {
    fn from(event: Event) -> Self {
        let Event { data, flags } = event;
        Self {
            key: usize::try_from(data.u64()).unwrap_or(usize::MAX),
            word: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
            room: flags.contains(EventFlags::OUT),
        }
    }
}
