//! Who makes changes: a few kept connections, one request at a time on each.
//!
//! A session's changes always take the same connection, so that they arrive in order.

use std::{collections::VecDeque, os::fd::AsFd};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::{
    board::Board,
    http::{Connection, Endpoint},
    list::Numbered,
    problem::{Problem, Result},
};

pub(crate) struct Publisher {
    lanes: Vec<Lane>,
    /// The first of the events' tokens.
    first_token: u64,
    /// What publishes each session's next list.
    requests: Vec<Numbered>,
    /// Changes that wait or are under way.
    pending: usize,
}

struct Lane {
    connection: Connection,
    busy: bool,
    waiting: VecDeque<Change>,
}

struct Change {
    session: u32,
    due: u64,
}

impl Publisher {
    pub(crate) fn new(
        epoll: &Epoll,
        endpoint: &Endpoint,
        lanes: usize,
        first_token: u64,
        requests: Vec<Numbered>,
    ) -> Result<Self> {
        let lanes = (0..lanes)
            .map(|_| Ok(Lane { connection: Connection::open(endpoint)?, busy: false, waiting: VecDeque::new() }));
        let publisher = Self { lanes: lanes.collect::<Result<_>>()?, first_token, requests, pending: 0 };
        for lane in 0..publisher.lanes.len() {
            publisher.watch(epoll, lane)?;
        }
        Ok(publisher)
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Makes a change as soon as its connection is free. `due` is when it should have been made.
    pub(crate) fn publish(&mut self, session: u32, due: u64, board: &mut Board) -> Result<()> {
        let lane = session as usize % self.lanes.len();
        self.pending += 1;
        self.lanes[lane].waiting.push_back(Change { session, due });
        self.pump(lane, board)
    }

    /// A connection is ready.
    pub(crate) fn ready(&mut self, epoll: &Epoll, token: u64, board: &mut Board) -> Result<()> {
        let at = usize::try_from(token - self.first_token).expect("a token of this publisher");
        let lane = &mut self.lanes[at];
        match lane.connection.receive() {
            Ok(None) => Ok(()),
            Ok(Some(answer)) if answer.is_good() => {
                lane.busy = false;
                self.pending -= 1;
                if answer.closes {
                    self.reopen(epoll, at)?;
                }
                self.pump(at, board)
            }
            Ok(Some(_)) => Err(lane.connection.refused()),
            // Closed between two requests, as a server may.
            Err(Problem::System(_)) if !lane.busy => self.reopen(epoll, at),
            Err(problem) => Err(problem),
        }
    }

    fn reopen(&mut self, epoll: &Epoll, lane: usize) -> Result<()> {
        epoll.delete(self.lanes[lane].connection.as_fd())?;
        self.lanes[lane].connection.reopen()?;
        self.watch(epoll, lane)
    }

    fn watch(&self, epoll: &Epoll, lane: usize) -> Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, self.first_token + lane as u64);
        Ok(epoll.add(self.lanes[lane].connection.as_fd(), event)?)
    }

    fn pump(&mut self, lane: usize, board: &mut Board) -> Result<()> {
        let lane = &mut self.lanes[lane];
        if lane.busy {
            return Ok(());
        }
        if let Some(Change { session, due }) = lane.waiting.pop_front() {
            let number = board.publish(session, due);
            lane.connection.send(self.requests[session as usize].with(number))?;
            lane.busy = true;
        }
        Ok(())
    }
}
