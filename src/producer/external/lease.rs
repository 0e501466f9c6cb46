//! Leases and other deadlines: plain data, without a timer, a listener or a lock.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    id::{Scope, TaskId},
    registry::{StopReason, TaskHandle},
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
    live: HashMap<TaskId, External>,
    /// Each live task that has a deadline, once, the earliest first.
    deadlines: Deadlines,
}

type Deadlines = BTreeSet<(Instant, TaskId)>;

struct External {
    handle: Arc<TaskHandle>,
    lease: Option<Lease>,
    deadline: Option<Instant>,
    patience: Patience,
    /// Words that are arriving.
    words: usize,
}

/// What happens at a task's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// One more look.
    Lease,
    /// The lease has run out.
    LastCall,
    /// The session is over, and no word but an end counts any more.
    Farewell,
}

impl External {
    /// Gives the task all its lease again. One whose session is over has none any more.
    fn renew(&mut self, now: Instant, deadlines: &mut Deadlines) {
        if let Some(Lease(lease)) = self.lease
            && self.patience != Patience::Farewell
        {
            self.set(Patience::Lease, now + lease, deadlines);
        }
    }

    fn set(&mut self, patience: Patience, at: Instant, deadlines: &mut Deadlines) {
        let id = self.handle.id();
        self.patience = patience;
        if let Some(before) = self.deadline.replace(at) {
            deadlines.remove(&(before, id.clone()));
        }
        deadlines.insert((at, id.clone()));
    }
}

impl Tasks {
    pub(super) fn add(&mut self, task: TaskHandle, lease: Option<Lease>, now: Instant) {
        let id = task.id().clone();
        let mut external =
            External { handle: Arc::new(task), lease, deadline: None, patience: Patience::Lease, words: 0 };
        external.renew(now, &mut self.deadlines);
        self.live.insert(id, external);
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<&(Instant, TaskId)> {
        self.deadlines.first()
    }

    /// A producer begins to speak of a live task that it may see.
    pub(super) fn begin_word(&mut self, caller: &Scope, id: &TaskId) -> Option<Arc<TaskHandle>> {
        let external = self.live.get_mut(id).filter(|external| external.handle.is_seen_by(caller))?;
        external.words += 1;
        Some(Arc::clone(&external.handle))
    }

    /// It has spoken.
    pub(super) fn end_word(&mut self, id: &TaskId, now: Instant) {
        if let Some(external) = self.live.get_mut(id) {
            external.words -= 1;
            external.renew(now, &mut self.deadlines);
        }
    }

    /// How many tasks and how many deadlines there are.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.live.len(), self.deadlines.len())
    }

    pub(super) fn set(&mut self, id: &TaskId, patience: Patience, at: Instant) {
        if let Some(external) = self.live.get_mut(id) {
            external.set(patience, at, &mut self.deadlines);
        }
    }

    pub(super) fn remove(&mut self, id: &TaskId) -> Option<Arc<TaskHandle>> {
        let external = self.live.remove(id)?;
        if let Some(deadline) = external.deadline {
            self.deadlines.remove(&(deadline, id.clone()));
        }
        Some(external.handle)
    }

    /// The tasks whose time is over at `now`, and how they end. They stay here until they have
    /// ended, so that a word which comes meanwhile finds them.
    pub(super) fn silent(&mut self, now: Instant) -> Vec<(Arc<TaskHandle>, Outcome)> {
        let due: Vec<_> = self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| id.clone()).collect();
        let mut silent = Vec::new();
        for id in due {
            let Some(external) = self.live.get_mut(&id) else { continue };
            let outcome = match (external.patience, external.lease) {
                (Patience::Lease | Patience::LastCall, _) if external.words > 0 => {
                    external.renew(now, &mut self.deadlines);
                    continue;
                }
                (Patience::Lease, _) => {
                    external.set(Patience::LastCall, now + LAST_CALL, &mut self.deadlines);
                    continue;
                }
                (Patience::LastCall, lease) => {
                    let seconds = lease.map_or(0.0, |Lease(lease)| lease.as_secs_f64());
                    Outcome::new(End::Failed).with_detail(format!("no word from its producer for {seconds} s"))
                }
                (Patience::Farewell, _) => killed(&StopReason::OwnerDisposed),
            };
            silent.push((Arc::clone(&external.handle), outcome));
        }
        silent
    }
}

pub(super) fn killed(reason: &StopReason) -> Outcome {
    Outcome::new(End::Killed).with_detail(reason.to_string())
}
