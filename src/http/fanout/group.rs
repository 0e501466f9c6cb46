//! The readers of one session's list, and whose turn it is among them.
//!
//! A round goes over all readers once, wherever it begins; news begins a new one where the last was
//! left, so that those at its end are not put off by news that comes often.

use super::reader::Reader;
use crate::{
    clock::UnixMillis,
    hub::{Frame, News, Subscription},
};

pub(super) struct Group {
    subscription: Subscription,
    pub(super) newest: Newest,
    /// Keys of readers, in no order.
    readers: Vec<usize>,
    /// Whose turn is next.
    at: usize,
    /// How many are to be looked at until all know what there is to know.
    left: usize,
    /// Whether the engine has it among those that are due.
    pub(super) due: bool,
}

/// What each reader of a group is to know.
pub(super) struct Newest {
    /// None until the list changes for the first time after the group's first reader came.
    pub(super) list: Option<Frame>,
    /// Counts signs of life.
    pub(super) beats: u64,
    /// When the last sign of life was due, by the server's clock.
    pub(super) beat_at: UnixMillis,
    /// The server's clock when this was last looked at.
    pub(super) now: UnixMillis,
}

impl Newest {
    /// The list, if it is later than `version`, as a reader is to get it now whose newest id is `after`.
    pub(super) fn list_since(&mut self, version: u64, after: UnixMillis) -> Option<&Frame> {
        let list = self.list.as_mut().filter(|list| list.version() > version)?;
        if !list.is_timely(self.now, after) {
            *list = list.restamped(self.now);
        }
        Some(list)
    }
}

impl Group {
    pub(super) fn new(subscription: Subscription) -> Self {
        let now = subscription.now();
        let newest = Newest { list: None, beats: 0, beat_at: now, now };
        Self { subscription, newest, readers: Vec::new(), at: 0, left: 0, due: false }
    }

    /// Asks for news, and has all readers learn it if there is any.
    pub(super) fn learn(&mut self) {
        while let Some(news) = self.subscription.answer() {
            match news {
                News::List(frame) => self.newest.list = Some(frame),
                News::Beat(at) => {
                    self.newest.beats += 1;
                    self.newest.beat_at = at;
                }
            }
            self.left = self.readers.len();
        }
        self.newest_now();
    }

    /// Learns what is the last there will be.
    pub(super) fn learn_last(&mut self) {
        if let Some(frame) = self.subscription.last() {
            self.newest.list = Some(frame);
        }
        self.newest_now();
    }

    /// What is known, at the time of now.
    pub(super) fn newest_now(&mut self) -> &mut Newest {
        self.newest.now = self.subscription.now();
        &mut self.newest
    }

    /// The reader whose turn it is; none once all were looked at.
    pub(super) fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        if self.at >= self.readers.len() {
            self.at = 0;
        }
        self.at += 1;
        self.readers.get(self.at - 1).copied()
    }

    pub(super) fn all_know(&self) -> bool {
        self.left == 0
    }

    /// Takes a reader in. The keys are its own and this group's.
    pub(super) fn join(&mut self, key: usize, group: usize, reader: &mut Reader) {
        (reader.group, reader.place, reader.beats) = (group, self.readers.len(), self.newest.beats);
        self.readers.push(key);
        if self.left > 0 || self.newest.list.as_ref().is_some_and(|list| list.version() > reader.version) {
            self.left = self.readers.len();
        }
    }

    /// Lets the reader in that place go; returns who has its place now.
    pub(super) fn leave(&mut self, place: usize) -> Option<usize> {
        if place < self.readers.len() {
            self.readers.swap_remove(place);
        }
        if self.left > 0 {
            // Whoever moved may have been moved out of this round.
            self.left = self.readers.len();
        }
        self.readers.get(place).copied()
    }

    /// Whether nobody is left.
    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.subscription.let_go();
    }
}
