//! Several sessions on one connection.
//!
//! Promises:
//! - It says what each session's own stream would: a list when it is not empty, every change, `[]`
//!   when one empties; and when a session was disposed.
//! - After a removal the list is told as it is now, whether or not it was told before: so a removal
//!   that comes late does not take the rows of a session that was opened again.
//! - What waits for a slow reader is two bits a session: which list is another one, and whether the
//!   session was removed. The list itself is read when its turn comes. Every session has its turn
//!   before any has a second.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use super::{Beats, Frame, Hub, Subscription, lock};
use crate::{clock::UnixMillis, id::SessionId};

/// The most sessions of one connection: a bit for each.
pub(crate) const MAX_SESSIONS: usize = 64;

/// One connection's sessions.
pub(crate) struct Mux {
    members: Vec<Subscription>,
    inbox: Arc<Inbox>,
    /// Of what the inbox had, the members whose turn is to come.
    listed: u64,
    removed: u64,
    /// Members whose list is to be told even if it is the empty one that goes without saying.
    asked: u64,
    beats: Beats,
}

/// What one connection has not heard yet, a bit for each member.
#[derive(Default)]
struct Inbox {
    changed: AtomicU64,
    removed: AtomicU64,
    news: Notify,
}

/// The connections that watch one session among others, with its bit in each.
#[derive(Default)]
pub(super) struct Inboxes(Mutex<Vec<(Weak<Inbox>, u64)>>);

/// What a connection hears next.
pub(crate) enum MuxNews {
    /// A session's list is another one now.
    List(SessionId, Frame),
    /// The session was disposed.
    Removed(SessionId),
    /// See [`Beats`].
    Beat(UnixMillis),
}

impl Hub {
    /// Subscribes to the lists of up to [`MAX_SESSIONS`] different sessions, known or not. `resumes`:
    /// the reader may hold rows, so each session is answered, the empty ones too.
    pub(crate) fn mux(&self, sessions: impl IntoIterator<Item = SessionId>, resumes: bool) -> Mux {
        let inbox = Arc::new(Inbox::default());
        let members: Vec<_> = sessions.into_iter().take(MAX_SESSIONS).map(|session| self.subscribe(session)).collect();
        for (at, member) in members.iter().enumerate() {
            member.slot.inboxes.add(&inbox, 1 << at);
        }
        let all = members.iter().enumerate().fold(0, |all, (at, _)| all | 1 << at);
        // Each list is read after its inbox was put up: a change that comes between is in both.
        Mux { members, inbox, listed: all, removed: 0, asked: if resumes { all } else { 0 }, beats: self.beats() }
    }
}

impl Mux {
    /// The sessions that are watched.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.members.iter().map(Subscription::session)
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> UnixMillis {
        self.beats.now()
    }

    /// The next news. Safe to drop: what was not returned is not lost.
    pub(crate) async fn next(&mut self) -> MuxNews {
        loop {
            if let Some(news) = self.next_in_turn() {
                return news;
            }
            self.removed |= self.inbox.removed.swap(0, Ordering::AcqRel);
            self.listed |= self.removed | self.inbox.changed.swap(0, Ordering::AcqRel);
            if self.listed == 0 {
                tokio::select! {
                    () = self.inbox.news.notified() => {}
                    at = self.beats.next() => return MuxNews::Beat(at),
                }
            }
        }
    }

    /// What is left to say at the end of all: removals, and the lists that the reader does not have.
    pub(crate) fn last(&mut self) -> Option<MuxNews> {
        self.removed |= self.inbox.removed.swap(0, Ordering::AcqRel);
        self.listed = self.removed | self.asked;
        self.next_in_turn().or_else(|| {
            self.members
                .iter_mut()
                .find_map(|member| member.last().map(|frame| MuxNews::List(member.session().clone(), frame)))
        })
    }

    /// Goes through those whose turn it is until one has something to say.
    fn next_in_turn(&mut self) -> Option<MuxNews> {
        for (at, member) in self.members.iter_mut().enumerate() {
            let bit = 1 << at;
            if self.removed & bit != 0 {
                self.removed &= !bit;
                member.forget();
                return Some(MuxNews::Removed(member.session().clone()));
            }
            if self.listed & bit != 0 {
                self.listed &= !bit;
                let asked = self.asked & bit != 0;
                self.asked &= !bit;
                let frame = if asked { Some(member.baseline()) } else { member.newer() };
                if let Some(frame) = frame {
                    return Some(MuxNews::List(member.session().clone(), frame));
                }
            }
        }
        None
    }
}

impl Drop for Mux {
    fn drop(&mut self) {
        for member in &self.members {
            member.slot.inboxes.remove(&self.inbox);
        }
    }
}

impl Inboxes {
    fn add(&self, inbox: &Arc<Inbox>, bit: u64) {
        lock(&self.0).push((Arc::downgrade(inbox), bit));
    }

    fn remove(&self, inbox: &Arc<Inbox>) {
        lock(&self.0).retain(|(other, _)| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(inbox)));
    }

    pub(super) fn changed(&self) {
        self.each(|inbox, bit| {
            inbox.changed.fetch_or(bit, Ordering::AcqRel);
        });
    }

    pub(super) fn removed(&self) {
        self.each(|inbox, bit| {
            inbox.removed.fetch_or(bit, Ordering::AcqRel);
        });
    }

    fn each(&self, mark: impl Fn(&Inbox, u64)) {
        for (inbox, bit) in &*lock(&self.0) {
            if let Some(inbox) = inbox.upgrade() {
                mark(&inbox, *bit);
                inbox.news.notify_one();
            }
        }
    }
}
