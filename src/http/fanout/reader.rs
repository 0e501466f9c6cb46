//! One reader: a socket, what it was told, and what it did not take yet.

use std::{io, os::fd::OwnedFd};

use bytes::{Buf, Bytes};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
};

use super::{
    group::Newest,
    poller::{Interest, Poller},
};
use crate::{
    clock::UnixMillis,
    http::{
        admission::{Admitted, Seat},
        source::TaskList,
        stream::Stream,
        wire::Wire,
    },
    hub::Subscription,
    traffic::Counted,
};

pub(super) struct Reader {
    socket: OwnedFd,
    wire: Wire,
    /// None before it is waited for.
    interest: Option<Interest>,
    /// Boxed, since few have any at a time. It holds all of its frame in memory.
    unsent: Option<Box<Bytes>>,
    /// The version of the list that it was told last.
    pub(super) version: u64,
    /// The newest id sent: ids never go back on one connection.
    stamp: UnixMillis,
    pub(super) beats: u64,
    pub(super) group: usize,
    /// Where the group has it.
    pub(super) place: usize,
    counted: Counted,
    _admitted: Option<Box<Admitted>>,
    _seat: Seat,
}

/// Whether a reader is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Here,
    Gone,
}

impl Reader {
    /// A reader that was sent nothing yet and is in no group, and the session that it watches.
    pub(super) fn new(socket: OwnedFd, stream: Stream<TaskList>, seat: Seat) -> (Self, Subscription) {
        let Stream { source, wire, unsent, counted, admitted } = stream;
        let (subscription, stamp) = source.into_parts();
        let reader = Self {
            socket,
            wire,
            interest: None,
            unsent: Some(Box::new(unsent)),
            version: subscription.version(),
            stamp,
            beats: 0,
            group: 0,
            place: 0,
            counted,
            _admitted: admitted,
            _seat: seat,
        };
        (reader, subscription)
    }

    /// Whether its socket took no more, last time.
    pub(super) fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    /// Sends what is unsent, and then what it does not know.
    pub(super) fn serve(&mut self, newest: &mut Newest, poller: &Poller, key: usize) -> io::Result<Presence> {
        if let Some(rest) = self.unsent.take() {
            self.send(*rest)?;
        }
        if !self.is_blocked()
            && let Some(bytes) = self.unknown(newest)
        {
            self.send(bytes)?;
        }
        self.wait(poller, key)?;
        Ok(Presence::Here)
    }

    /// Sends what is unsent, the list if it does not know it, and the end.
    pub(super) fn finish(&mut self, newest: &mut Newest, poller: &Poller, key: usize) -> io::Result<Presence> {
        let mut last = self.unsent.take().map(|rest| rest.to_vec()).unwrap_or_default();
        last.extend(self.unknown(newest).into_iter().flatten());
        last.extend_from_slice(self.wire.framing.end());
        self.send(last.into())?;
        self.close(poller, key)
    }

    /// Goes on with the end.
    pub(super) fn go_on_to_end(&mut self, poller: &Poller, key: usize) -> io::Result<Presence> {
        if let Some(rest) = self.unsent.take() {
            self.send(*rest)?;
        }
        self.close(poller, key)
    }

    fn close(&mut self, poller: &Poller, key: usize) -> io::Result<Presence> {
        if self.is_blocked() {
            self.wait(poller, key)?;
            return Ok(Presence::Here);
        }
        shutdown(&self.socket, Shutdown::Write)?;
        Ok(Presence::Gone)
    }

    /// What this reader does not know, as it goes over the wire. It counts as known then.
    fn unknown(&mut self, newest: &mut Newest) -> Option<Bytes> {
        let beats = std::mem::replace(&mut self.beats, newest.beats);
        if let Some(list) = newest.list_since(self.version, self.stamp) {
            self.version = list.version();
            self.stamp = list.stamp();
            self.counted.sent();
            return Some(self.wire.list(list));
        }
        (beats < newest.beats).then(|| self.wire.beat(newest.beat_at))
    }

    fn send(&mut self, mut bytes: Bytes) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        loop {
            match send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => bytes.advance(sent),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
            if !bytes.is_empty() {
                self.unsent = Some(Box::new(bytes));
            }
            return Ok(());
        }
    }

    fn wait(&mut self, poller: &Poller, key: usize) -> io::Result<()> {
        let interest = if self.is_blocked() { Interest::WordAndRoom } else { Interest::Word };
        match self.interest.replace(interest) {
            None => poller.add(&self.socket, key, interest),
            Some(before) if before == interest => Ok(()),
            Some(_) => poller.modify(&self.socket, key, interest),
        }
    }

    /// Nothing that a client sends on a stream means anything; its end does.
    pub(super) fn hear(&self) -> io::Result<Presence> {
        let mut buffer = [0; 512];
        match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Ok(Presence::Gone),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(Presence::Here),
            Err(error) => Err(error.into()),
        }
    }
}
