//! How one server of many slots learns which of them have news.
//!
//! Promises:
//! - A slot is named at most once until it is asked for its news, however often it changes: what waits
//!   is never more than the slots there are.
//! - Ringing wakes one task, and costs the same for a slot of one reader and of ten thousand.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::{News, Subscription};
use crate::sync::lock;

/// The slots that have news, by the keys that their server gave them.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Vec<usize>>,
    news: Notify,
}

/// What joins a slot to a bell.
pub(super) struct Cord {
    bell: Arc<Bell>,
    key: usize,
    pulled: bool,
}

impl Bell {
    /// Adds to `slots` those that have rung since the last call.
    pub(crate) fn take(&self, slots: &mut impl Extend<usize>) {
        slots.extend(lock(&self.rung).drain(..));
    }

    /// Returns when a slot has rung. Safe to drop.
    pub(crate) async fn rung(&self) {
        self.news.notified().await;
    }
}

impl Cord {
    pub(super) fn pull(&mut self) {
        if !std::mem::replace(&mut self.pulled, true) {
            lock(&self.bell.rung).push(self.key);
            self.bell.news.notify_one();
        }
    }
}

impl Subscription {
    /// Has the slot ring `bell`, under `key`, at all news from now on. A slot rings one bell.
    pub(crate) fn ring(&self, bell: &Arc<Bell>, key: usize) {
        *lock(&self.slot.cord) = Some(Cord { bell: Arc::clone(bell), key, pulled: false });
    }

    /// The key under which the slot rings `bell`, if it does.
    pub(crate) fn rings(&self, bell: &Arc<Bell>) -> Option<usize> {
        let cord = lock(&self.slot.cord);
        cord.as_ref().filter(|cord| Arc::ptr_eq(&cord.bell, bell)).map(|cord| cord.key)
    }

    /// Has the slot ring no more.
    pub(crate) fn let_go(&self) {
        *lock(&self.slot.cord) = None;
    }

    /// The next news, if there is any. The slot rings again for what comes after it.
    pub(crate) fn answer(&mut self) -> Option<News> {
        if let Some(cord) = &mut *lock(&self.slot.cord) {
            cord.pulled = false;
        }
        self.try_next()
    }
}
