//! How one server of many slots learns which of them have news.
//!
//! Promises:
//! - A slot is named at most once until it is asked for its news, however often it changes: what waits
//!   is never more than the slots there are.
//! - Ringing wakes one task, and costs the same for a slot of one reader and of ten thousand.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use super::{News, Subscription};
use crate::sync::lock;

/// The slots that have news, by the keys that their server gave them.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<Rung>);

#[derive(Debug, Default)]
struct Rung {
    slots: Vec<usize>,
    waiting: Option<Waker>,
}

/// What joins a slot to a bell.
pub(super) struct Cord {
    bell: Arc<Bell>,
    key: usize,
    pulled: bool,
}

impl Bell {
    /// Ready with the slots that have rung since the last call, added to `slots`. One task may wait.
    pub(crate) fn poll_rung(&self, cx: &mut Context<'_>, slots: &mut Vec<usize>) -> Poll<()> {
        let mut rung = lock(&self.0);
        if rung.slots.is_empty() {
            rung.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        slots.append(&mut rung.slots);
        Poll::Ready(())
    }
}

impl Cord {
    /// Rings, and returns who is to be woken.
    pub(super) fn pull(&mut self) -> Option<Waker> {
        if std::mem::replace(&mut self.pulled, true) {
            return None;
        }
        let mut rung = lock(&self.bell.0);
        rung.slots.push(self.key);
        rung.waiting.take()
    }
}

impl Subscription {
    /// Has the slot ring `bell`, under `key`, at all news from now on. A slot rings one bell.
    pub(crate) fn ring(&self, bell: &Arc<Bell>, key: usize) {
        lock(&self.slot.signal).cord = Some(Cord { bell: Arc::clone(bell), key, pulled: false });
    }

    /// The key under which the slot rings `bell`, if it does.
    pub(crate) fn rings(&self, bell: &Arc<Bell>) -> Option<usize> {
        let signal = lock(&self.slot.signal);
        signal.cord.as_ref().filter(|cord| Arc::ptr_eq(&cord.bell, bell)).map(|cord| cord.key)
    }

    /// Has the slot ring no more.
    pub(crate) fn let_go(&self) {
        lock(&self.slot.signal).cord = None;
    }

    /// The next news, if there is any. The slot rings again for what comes after it.
    pub(crate) fn answer(&mut self) -> Option<News> {
        let mut signal = lock(&self.slot.signal);
        if let Some(cord) = &mut signal.cord {
            cord.pulled = false;
        }
        let pulse = signal.pulse;
        drop(signal);
        self.news_of(pulse)
    }
}
