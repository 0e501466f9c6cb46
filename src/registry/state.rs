//! What the registry's lock protects: the owners, their records, and the order of registration.
//!
//! Promise: every method is one step of plain data, without a listener, a producer or a clock.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    num::NonZeroU64,
    sync::Arc,
};

use tokio::sync::watch;

use super::{AccessError, ByEnd, Stop, handle::TaskOutput, notices::Desk};
use crate::{
    clock::UnixMillis,
    config::RegistryLimits,
    id::{Kind, Scope, SessionId, TaskId},
    task::{Label, Outcome, Task, TaskView},
};

/// The whole truth.
#[derive(Default)]
pub(super) struct State {
    owners: HashMap<SessionId, Bucket>,
    unowned: Bucket,
    /// Where each record is. Only this knows every id.
    index: HashMap<TaskId, (Scope, Seq)>,
    counters: HashMap<Kind, u64>,
    last_seq: u64,
    last_generation: u64,
    pub(super) started: u64,
    pub(super) ended: ByEnd,
    /// Who reads notices.
    pub(super) desk: Desk,
    /// Set once, at shutdown: nothing starts any more.
    pub(super) closed: bool,
}

/// The order of registration over all owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Seq(u64);

/// Which life of an owner: a session that is disposed and opened again is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Generation(u64);

/// One owner's records.
#[derive(Default)]
pub(super) struct Bucket {
    pub(super) generation: Generation,
    /// Opened by name: it stays when it is empty. Else it goes with a start that failed.
    opened: bool,
    /// Whether it is being disposed: nothing starts in it any more. Receivers learn by the
    /// sender's end that the bucket is gone.
    disposing: watch::Sender<bool>,
    /// Admitted, and not registered yet.
    reserved: usize,
    live: usize,
    tasks: BTreeMap<Seq, Entry>,
    /// In the order of settlement.
    settled: VecDeque<Seq>,
}

/// One record and what belongs to it.
pub(super) struct Entry {
    pub(super) task: Task,
    pub(super) output: Arc<TaskOutput>,
    pub(super) stop: Arc<dyn Stop>,
    /// Waiters present now: at settlement they count as told.
    pub(super) waiters: usize,
}

impl Drop for Entry {
    /// The output's file goes with the record.
    fn drop(&mut self) {
        self.output.discard();
    }
}

/// Why a start is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    TooManyLive,
    TooManySessions,
    TooManyKinds,
    OwnerDisposed,
    Closed,
}

/// What a settlement changed.
pub(super) struct Settled {
    pub(super) view: TaskView,
    pub(super) reported: bool,
    /// Records that went to make room. Dropped outside the lock: their stop handles act on it.
    pub(super) retired: Vec<Entry>,
}

impl State {
    /// The owner's bucket, made if need be.
    fn bucket_or_new(&mut self, scope: &Scope) -> &mut Bucket {
        match scope {
            Scope::Unowned => &mut self.unowned,
            Scope::Session(session) => self.owners.entry(session.clone()).or_insert_with(|| {
                self.last_generation += 1;
                Bucket { generation: Generation(self.last_generation), ..Bucket::default() }
            }),
        }
    }

    pub(super) fn bucket_mut(&mut self, scope: &Scope) -> Option<&mut Bucket> {
        match scope {
            Scope::Unowned => Some(&mut self.unowned),
            Scope::Session(session) => self.owners.get_mut(session),
        }
    }

    pub(super) fn open(&mut self, session: &SessionId) -> Generation {
        let bucket = self.bucket_or_new(&Scope::Session(session.clone()));
        bucket.opened = true;
        bucket.generation
    }

    /// Holds a place for one task. `expected` is the life that the caller knows; none takes the
    /// present one.
    pub(super) fn reserve(
        &mut self,
        scope: &Scope,
        expected: Option<Generation>,
        kind: &Kind,
        limits: &RegistryLimits,
    ) -> Result<Generation, Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        // Counted from its reservation on. One that then fails to launch was of a kind like any other.
        if !self.counters.contains_key(kind) && self.counters.len() >= limits.max_kinds {
            return Err(Refused::TooManyKinds);
        }
        if let Some(expected) = expected
            && self.bucket_mut(scope).is_none_or(|bucket| bucket.generation != expected)
        {
            return Err(Refused::OwnerDisposed);
        }
        if self.bucket_mut(scope).is_none() && self.owners.len() >= limits.max_sessions {
            return Err(Refused::TooManySessions);
        }
        let bucket = self.bucket_or_new(scope);
        if bucket.is_disposing() {
            return Err(Refused::OwnerDisposed);
        }
        if bucket.live + bucket.reserved >= limits.max_live_tasks {
            // A bucket at its limit holds tasks or reservations, so none is left behind here,
            // but for a limit of zero.
            self.forget_if_unused(scope);
            return Err(Refused::TooManyLive);
        }
        bucket.reserved += 1;
        let generation = bucket.generation;
        self.counters.entry(kind.clone()).or_default();
        Ok(generation)
    }

    /// Gives a place back.
    pub(super) fn release(&mut self, scope: &Scope, generation: Generation) {
        if let Some(bucket) = self.bucket_mut(scope).filter(|bucket| bucket.generation == generation) {
            bucket.reserved -= 1;
            self.forget_if_unused(scope);
        }
    }

    fn forget_if_unused(&mut self, scope: &Scope) {
        if let Scope::Session(session) = scope
            && self.owners.get(session).is_some_and(Bucket::is_unused)
        {
            self.owners.remove(session);
        }
    }

    /// Registers a task for which a place is held. The place is still to be given back.
    pub(super) fn register(
        &mut self,
        scope: &Scope,
        generation: Generation,
        kind: &Kind,
        label: Label,
        now: UnixMillis,
        make: impl FnOnce(Task) -> Entry,
    ) -> Result<(TaskView, Seq), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.bucket_mut(scope).is_none_or(|bucket| bucket.generation != generation || bucket.is_disposing()) {
            return Err(Refused::OwnerDisposed);
        }
        // All tasks of a kind share its name in memory.
        let known = self.counters.get_key_value(kind).map(|(known, _)| known.clone());
        let kind = known.unwrap_or_else(|| kind.clone());
        let counter = self.counters.entry(kind.clone()).or_default();
        let number = NonZeroU64::MIN.saturating_add(*counter);
        *counter = number.get();
        let id = TaskId::new(kind, number);
        self.last_seq += 1;
        let seq = Seq(self.last_seq);
        self.started += 1;
        let entry = make(Task::new(id.clone(), label, now));
        let view = entry.task.view();
        self.index.insert(id, (scope.clone(), seq));
        let bucket = self.bucket_or_new(scope);
        bucket.live += 1;
        bucket.tasks.insert(seq, entry);
        Ok((view, seq))
    }

    /// What a session sees, or what everybody does: in the order of registration.
    pub(super) fn seen(&self, session: Option<&SessionId>) -> impl Iterator<Item = &Task> {
        let own = session.and_then(|session| self.owners.get(session));
        let mut own = own.map(|bucket| bucket.tasks.iter()).unwrap_or_default().peekable();
        let mut unowned = self.unowned.tasks.iter().peekable();
        std::iter::from_fn(move || match (own.peek(), unowned.peek()) {
            (Some((a, _)), Some((b, _))) if b < a => unowned.next(),
            (Some(_), _) => own.next(),
            (None, _) => unowned.next(),
        })
        .map(|(_, entry)| &entry.task)
    }

    pub(super) fn list(&self, session: Option<&SessionId>) -> Vec<TaskView> {
        self.seen(session).map(Task::view).collect()
    }

    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.owners.iter().filter(|(_, bucket)| bucket.is_open()).map(|(session, _)| session.clone()).collect()
    }

    pub(super) fn is_open(&self, session: &SessionId) -> bool {
        self.owners.get(session).is_some_and(Bucket::is_open)
    }

    /// Every record.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.owners.values().chain([&self.unowned]).flat_map(|bucket| bucket.tasks.values())
    }

    /// A record that the caller may see: its own or an unowned one.
    pub(super) fn entry(&mut self, caller: &Scope, id: &TaskId) -> Result<(Scope, &mut Entry), AccessError> {
        let (scope, seq) = self.index.get(id).cloned().ok_or_else(|| AccessError::UnknownTask(id.clone()))?;
        if !scope.is_seen_by(caller) {
            return Err(AccessError::AnotherSession(id.clone()));
        }
        let entry = self.bucket_mut(&scope).and_then(|bucket| bucket.tasks.get_mut(&seq));
        entry.map(|entry| (scope, entry)).ok_or_else(|| AccessError::UnknownTask(id.clone()))
    }

    /// A live record, by where it is.
    pub(super) fn live_task(&mut self, scope: &Scope, seq: Seq) -> Option<&mut Task> {
        let entry = self.bucket_mut(scope)?.tasks.get_mut(&seq)?;
        entry.task.is_live().then_some(&mut entry.task)
    }

    /// Settles a live record; none if it is gone or has ended.
    pub(super) fn settle(
        &mut self,
        scope: &Scope,
        seq: Seq,
        outcome: Outcome,
        now: UnixMillis,
        limits: &RegistryLimits,
    ) -> Option<Settled> {
        let bucket = self.bucket_mut(scope)?;
        let entry = bucket.tasks.get_mut(&seq)?;
        entry.task.settle(outcome, now).ok()?;
        if entry.waiters > 0 {
            entry.task.mark_reported();
        }
        entry.output.end();
        let (view, reported) = (entry.task.view(), entry.task.reported());
        bucket.live -= 1;
        bucket.settled.push_back(seq);
        let mut retired = Vec::new();
        while bucket.settled.len() > limits.max_settled_tasks {
            retired.extend(bucket.settled.pop_front().and_then(|oldest| bucket.tasks.remove(&oldest)));
        }
        for entry in &retired {
            self.index.remove(entry.task.id());
        }
        self.ended.count(view.status);
        Some(Settled { view, reported, retired })
    }

    /// Closes a bucket to new tasks. The receiver learns when it is gone; the flag says whether
    /// this call was the one that closed it.
    pub(super) fn begin_disposal(&mut self, session: &SessionId) -> Option<(Generation, bool, watch::Receiver<bool>)> {
        let bucket = self.owners.get_mut(session)?;
        // Told once: a receiver that hears more than that takes it for the bucket's end.
        let first = bucket.disposing.send_if_modified(|disposing| !std::mem::replace(disposing, true));
        Some((bucket.generation, first, bucket.disposing.subscribe()))
    }

    /// Whether that life of a session is being disposed, now and later; none if it is gone.
    pub(super) fn disposing(&self, session: &SessionId, generation: Generation) -> Option<watch::Receiver<bool>> {
        let bucket = self.owners.get(session).filter(|bucket| bucket.generation == generation)?;
        Some(bucket.disposing.subscribe())
    }

    /// Removes an owner and all its records.
    pub(super) fn remove_owner(&mut self, session: &SessionId, generation: Generation) -> Option<Bucket> {
        if self.owners.get(session)?.generation != generation {
            return None;
        }
        let bucket = self.owners.remove(session)?;
        for entry in bucket.tasks.values() {
            self.index.remove(entry.task.id());
            entry.output.end();
        }
        Some(bucket)
    }

    /// Every live record, of one owner or of all.
    pub(super) fn live(&self, scope: Option<&Scope>) -> Vec<(Scope, TaskId)> {
        let of = |scope: Scope, bucket: &Bucket| -> Vec<_> {
            let live = bucket.tasks.values().filter(|entry| entry.task.is_live());
            live.map(|entry| (scope.clone(), entry.task.id().clone())).collect()
        };
        match scope {
            Some(Scope::Unowned) => of(Scope::Unowned, &self.unowned),
            Some(scope @ Scope::Session(session)) => {
                self.owners.get(session).map(|bucket| of(scope.clone(), bucket)).unwrap_or_default()
            }
            None => {
                let owned =
                    self.owners.iter().flat_map(|(session, bucket)| of(Scope::Session(session.clone()), bucket));
                owned.chain(of(Scope::Unowned, &self.unowned)).collect()
            }
        }
    }

    /// How many owners and how many records there are.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.owners.len(), self.index.len())
    }
}

impl Bucket {
    /// Whether it is more than a place held for a first task that has not started.
    fn is_open(&self) -> bool {
        self.opened || !self.tasks.is_empty() || self.reserved == 0
    }

    /// The record that ended first of those of whose end nobody was told.
    pub(super) fn first_owed(&mut self) -> Option<&mut Entry> {
        let Self { settled, tasks, .. } = self;
        let owed = |seq: &&Seq| tasks.get(seq).is_some_and(|entry| !entry.task.reported());
        let owed = *settled.iter().find(owed)?;
        tasks.get_mut(&owed)
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.tasks.values_mut()
    }

    fn is_disposing(&self) -> bool {
        *self.disposing.borrow()
    }

    fn is_unused(&self) -> bool {
        !self.opened && !self.is_disposing() && self.reserved == 0 && self.tasks.is_empty()
    }
}
