//! Leases and other deadlines: plain data, without a timer or a listener.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    id::{Scope, TaskId},
    registry::{StopReason, TaskHandle},
    sync::lock,
    task::{End, Outcome},
    whole::Whole,
};

/// How long past a lease's end the gateway listens. After it was stopped or starved, it finds the
/// end of the lease and the words that renew it at the same moment. 250 ms: to serve what waits.
pub(super) const LAST_CALL: Duration = Duration::from_millis(250);

/// How long a producer may say nothing: 1 s to 24 h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Whole")]
pub struct Lease(Duration);

impl Lease {
    /// Takes a number of milliseconds.
    ///
    /// # Errors
    /// When it is below 1,000 or above 86,400,000.
    pub fn from_millis(millis: u64) -> Result<Self, InvalidLease> {
        if (1_000..=86_400_000).contains(&millis) {
            Ok(Self(Duration::from_millis(millis)))
        } else {
            Err(InvalidLease { millis })
        }
    }
}

impl TryFrom<Whole> for Lease {
    type Error = InvalidLease;
    fn try_from(Whole(millis): Whole) -> Result<Self, InvalidLease> {
        Self::from_millis(millis)
    }
}

/// Why a number is not a [`Lease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease is 1000 to 86400000 milliseconds, this one is {millis}")]
pub struct InvalidLease {
    /// The number.
    pub millis: u64,
}

#[derive(Default)]
pub(super) struct Tasks {
    live: HashMap<TaskId, Arc<External>>,
    /// When each live task that has a deadline is looked at, once, the earliest first.
    looks: BTreeSet<(Instant, TaskId)>,
}

/// A live task.
pub(super) struct External {
    handle: TaskHandle,
    lease: Option<Lease>,
    /// Locked after the tasks, or without them.
    standing: Mutex<Standing>,
}

struct Standing {
    patience: Patience,
    /// When its producer had last spoken.
    heard: Instant,
    /// Words that are arriving.
    words: usize,
    /// When it is looked at: at its deadline or before. A word moves the deadline on, and not this.
    look_at: Option<Instant>,
}

/// What a task is given yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Its lease.
    Lease,
    /// One more moment after the end of the lease.
    LastCall,
    /// The session is over, and no word but an end counts any more.
    Farewell,
}

/// What is found of a task when it is looked at.
enum Found {
    /// It is to be looked at again.
    Waits(Patience, Instant),
    Silent(Outcome),
}

impl External {
    pub(super) fn handle(&self) -> &TaskHandle {
        &self.handle
    }

    /// A word has arrived: the task has all its lease again. One whose session is over has none any more.
    pub(super) fn end_word(&self, now: Instant) {
        let mut standing = lock(&self.standing);
        standing.words -= 1;
        standing.heard = now;
    }

    fn look(&self, standing: &Standing, now: Instant) -> Found {
        match (standing.patience, self.lease) {
            (Patience::Farewell, _) => Found::Silent(killed(&StopReason::OwnerDisposed)),
            (_, Some(Lease(lease))) if standing.words > 0 => Found::Waits(Patience::Lease, now + lease),
            // Whatever it was given: a word may have come since.
            (_, Some(Lease(lease))) if standing.heard + lease > now => {
                Found::Waits(Patience::Lease, standing.heard + lease)
            }
            (Patience::Lease, _) => Found::Waits(Patience::LastCall, now + LAST_CALL),
            (Patience::LastCall, lease) => {
                let seconds = lease.map_or(0.0, |Lease(lease)| lease.as_secs_f64());
                Found::Silent(
                    Outcome::new(End::Failed).with_detail(format!("no word from its producer for {seconds} s")),
                )
            }
        }
    }
}

impl Tasks {
    pub(super) fn add(&mut self, handle: TaskHandle, lease: Option<Lease>, now: Instant) {
        let id = handle.id().clone();
        let standing = Standing { patience: Patience::Lease, heard: now, words: 0, look_at: None };
        let external = External { handle, lease, standing: Mutex::new(standing) };
        self.live.insert(id.clone(), Arc::new(external));
        if let Some(Lease(lease)) = lease {
            self.set(&id, Patience::Lease, now + lease);
        }
    }

    /// When the next is looked at.
    pub(super) fn next(&self) -> Option<&(Instant, TaskId)> {
        self.looks.first()
    }

    /// A producer begins to speak of a live task that it may see.
    pub(super) fn begin_word(&self, caller: &Scope, id: &TaskId) -> Option<Arc<External>> {
        let external = self.live.get(id).filter(|external| external.handle.is_seen_by(caller))?;
        lock(&external.standing).words += 1;
        Some(Arc::clone(external))
    }

    /// How many tasks there are, and how many that are looked at.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.live.len(), self.looks.len())
    }

    pub(super) fn set(&mut self, id: &TaskId, patience: Patience, at: Instant) {
        let Some(external) = self.live.get(id) else { return };
        let mut standing = lock(&external.standing);
        standing.patience = patience;
        if let Some(before) = standing.look_at.replace(at) {
            self.looks.remove(&(before, id.clone()));
        }
        self.looks.insert((at, id.clone()));
    }

    pub(super) fn remove(&mut self, id: &TaskId) -> Option<Arc<External>> {
        let external = self.live.remove(id)?;
        if let Some(look_at) = lock(&external.standing).look_at {
            self.looks.remove(&(look_at, id.clone()));
        }
        Some(external)
    }

    /// The tasks whose time is over at `now`, and how they end. They stay here until they have
    /// ended, so that a word which comes meanwhile finds them.
    pub(super) fn silent(&mut self, now: Instant) -> Vec<(Arc<External>, Outcome)> {
        let due: Vec<_> = self.looks.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| id.clone()).collect();
        let mut silent = Vec::new();
        for id in due {
            let Some(external) = self.live.get(&id) else { continue };
            let found = external.look(&lock(&external.standing), now);
            match found {
                Found::Waits(patience, at) => self.set(&id, patience, at),
                Found::Silent(outcome) => silent.push((Arc::clone(external), outcome)),
            }
        }
        silent
    }
}

pub(super) fn killed(reason: &StopReason) -> Outcome {
    Outcome::new(End::Killed).with_detail(reason.to_string())
}
