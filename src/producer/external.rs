//! Tasks whose work is done elsewhere, by a producer that reports by its own words.
//!
//! Promises:
//! - A task with a lease whose producer says nothing for as long settles `failed`. Any word renews
//!   the lease, and so does one that is still arriving; a task without a lease waits for ever.
//! - A producer that speaks in time never loses its task, even when the gateway itself was held up:
//!   at the end of a lease it listens once more before it believes the silence.
//! - A kill turns the task `stopping`, and no more: the producer sees that in its session's list,
//!   ends its work and reports the end. Its lease goes on meanwhile.
//! - When its session is disposed, the producer has the grace to report its end; then the task is
//!   `killed`. When the gateway shuts down, the task is `killed` at once and never `stopping`: the
//!   work is not the gateway's to end, and its producer may go on and register it again.
//!
//! Never here: processes. Who works, and how, only the producer knows.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    id::{Scope, TaskId},
    registry::{
        AccessError, Finished, LaunchError, Launched, Producer, Registry, Stop, StopError, StopReason, TaskHandle,
        Update,
    },
    task::{End, Outcome, TaskView},
};

/// How long past a lease's end the gateway listens. After it was stopped or starved, it finds the
/// end of the lease and the words that renew it at the same moment. 250 ms: to serve what waits.
const LAST_CALL: Duration = Duration::from_millis(250);

/// How long a producer may say nothing: 1 s to 24 h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
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

impl TryFrom<u64> for Lease {
    type Error = InvalidLease;
    fn try_from(millis: u64) -> Result<Self, InvalidLease> {
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

/// Keeps the external tasks of one registry and their leases. Clones are the same keeper.
#[derive(Clone)]
pub struct Externals {
    shared: Arc<Shared>,
}

struct Shared {
    grace: Duration,
    tasks: Mutex<Tasks>,
    /// Rung when a deadline was set that is earlier than all others.
    earlier: Notify,
}

#[derive(Default)]
struct Tasks {
    live: HashMap<TaskId, External>,
    /// Each live task that has a deadline, once, the earliest first.
    deadlines: BTreeSet<(Instant, TaskId)>,
}

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
enum Patience {
    /// One more look.
    Lease,
    /// The lease has run out.
    LastCall,
    /// The session is over, and no word but an end counts any more.
    Farewell,
}

/// Why a producer is not heard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HearError {
    /// The task cannot be reached.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// It has ended: nothing is to be added.
    #[error("task {0} has ended")]
    Finished(TaskId),
    /// It is run by the gateway, which knows better.
    #[error("task {0} is run by the gateway")]
    NotExternal(TaskId),
}

impl Externals {
    /// `grace`: how long a producer may take to report its end when its session is over.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { shared: Arc::new(Shared { grace, tasks: Mutex::default(), earlier: Notify::new() }) }
    }

    /// The producer of one task that somebody else works on.
    #[must_use]
    pub fn task(&self, lease: Option<Lease>) -> impl Producer {
        Remote { shared: Arc::clone(&self.shared), lease }
    }

    /// Listens to a task's producer, which has begun to speak: the lease cannot run out before the
    /// word is dropped.
    ///
    /// # Errors
    /// See [`HearError`].
    pub fn hear(&self, registry: &Registry, caller: &Scope, id: &TaskId) -> Result<Word, HearError> {
        registry.get(caller, id)?;
        if let Some(external) = lock(&self.shared.tasks).live.get_mut(id) {
            external.words += 1;
            return Ok(Word { shared: Arc::clone(&self.shared), task: Arc::clone(&external.handle) });
        }
        // Looked at after the live ones, so that one which ended in between is not taken for another kind.
        let ended = registry.get(caller, id)?.status.is_terminal();
        Err(if ended { HearError::Finished(id.clone()) } else { HearError::NotExternal(id.clone()) })
    }

    /// Settles the tasks whose producers fell silent, for as long as it is polled: the one timer of
    /// all leases.
    pub async fn expire(&self) -> Infallible {
        loop {
            let next = lock(&self.shared.tasks).deadlines.first().map(|(at, _)| *at);
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.shared.earlier.notified() => continue,
            }
            let silent = lock(&self.shared.tasks).silent(Instant::now());
            for (task, outcome) in silent {
                task.settle(outcome);
                self.shared.forget(task.id());
            }
        }
    }
}

impl fmt::Debug for Externals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Externals").field("live", &lock(&self.shared.tasks).live.len()).finish()
    }
}

/// Something that a producer says about its live task. Renews the lease, whatever it is.
pub struct Word {
    shared: Arc<Shared>,
    task: Arc<TaskHandle>,
}

impl Word {
    /// Changes the task; returns it as it stands then.
    ///
    /// # Errors
    /// When the task has ended meanwhile.
    pub fn update(&self, update: Update) -> Result<TaskView, HearError> {
        let ends = update.end.is_some();
        let updated = self.task.update(update).map_err(|Finished| HearError::Finished(self.task.id().clone()));
        if ends && updated.is_ok() {
            self.shared.forget(self.task.id());
        }
        updated
    }

    /// Adds to the task's output, when there is room for it.
    ///
    /// # Errors
    /// When the task has ended meanwhile.
    pub async fn append(&self, text: &str) -> Result<(), HearError> {
        self.task.room().await;
        self.update(Update::default())?;
        self.task.append(text.as_bytes());
        Ok(())
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        let mut tasks = lock(&self.shared.tasks);
        if let Some(external) = tasks.live.get_mut(self.task.id()) {
            external.words -= 1;
            tasks.renew(self.task.id(), Instant::now());
        }
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Word").field(&self.task.id()).finish()
    }
}

struct Remote {
    shared: Arc<Shared>,
    lease: Option<Lease>,
}

impl Producer for Remote {
    fn launch(self) -> Result<Launched, LaunchError> {
        let Self { shared, lease } = self;
        let line = Arc::new(Line { shared, standing: Mutex::new(Standing::Registering(None)) });
        let stop = Arc::clone(&line);
        Ok(Launched::new(stop, move |task| line.adopt(task, lease)))
    }
}

/// Kept with a task's record, and gone with it.
struct Line {
    shared: Arc<Shared>,
    standing: Mutex<Standing>,
}

enum Standing {
    /// Not known to the keeper yet; what was asked in that moment.
    Registering(Option<StopReason>),
    Registered(TaskId),
}

impl Line {
    fn adopt(&self, task: TaskHandle, lease: Option<Lease>) {
        let id = task.id().clone();
        self.shared.add(task, lease);
        let before = std::mem::replace(&mut *lock(&self.standing), Standing::Registered(id.clone()));
        if let Standing::Registering(Some(reason)) = before {
            self.shared.asked(&id, &reason);
        }
    }
}

impl Stop for Arc<Line> {
    fn stop(&self, reason: &StopReason) -> Result<(), StopError> {
        let id = match &mut *lock(&self.standing) {
            Standing::Registering(early) => {
                *early = Some(reason.clone());
                return Ok(());
            }
            Standing::Registered(id) => id.clone(),
        };
        self.shared.asked(&id, reason);
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Standing::Registered(id) = &*lock(&self.standing) {
            self.shared.forget(id);
        }
    }
}

impl Shared {
    fn add(&self, task: TaskHandle, lease: Option<Lease>) {
        let id = task.id().clone();
        let external = External { handle: Arc::new(task), lease, deadline: None, patience: Patience::Lease, words: 0 };
        let mut tasks = lock(&self.tasks);
        tasks.live.insert(id.clone(), external);
        tasks.renew(&id, Instant::now());
        self.ring_if_first(&tasks, &id);
    }

    fn asked(&self, id: &TaskId, reason: &StopReason) {
        match reason {
            // It shows in the list, where the producer sees it.
            StopReason::Requested(_) => {}
            StopReason::OwnerDisposed => {
                let mut tasks = lock(&self.tasks);
                tasks.set(id, Patience::Farewell, Instant::now() + self.grace);
                self.ring_if_first(&tasks, id);
            }
            StopReason::Shutdown => {
                let Some(external) = lock(&self.tasks).remove(id) else { return };
                external.handle.settle(killed(reason));
            }
        }
    }

    /// Whatever is left of the task here goes, outside the lock: its handle's drop settles.
    fn forget(&self, id: &TaskId) {
        let gone = lock(&self.tasks).remove(id);
        drop(gone);
    }

    fn ring_if_first(&self, tasks: &Tasks, id: &TaskId) {
        if tasks.deadlines.first().is_some_and(|(_, first)| first == id) {
            self.earlier.notify_one();
        }
    }
}

impl Tasks {
    /// Gives a task all its lease again. One whose session is over has none any more.
    fn renew(&mut self, id: &TaskId, now: Instant) {
        let Some(External { lease: Some(Lease(lease)), patience, .. }) = self.live.get(id) else { return };
        if *patience != Patience::Farewell {
            self.set(id, Patience::Lease, now + *lease);
        }
    }

    fn set(&mut self, id: &TaskId, patience: Patience, at: Instant) {
        let Some(external) = self.live.get_mut(id) else { return };
        external.patience = patience;
        if let Some(before) = external.deadline.replace(at) {
            self.deadlines.remove(&(before, id.clone()));
        }
        self.deadlines.insert((at, id.clone()));
    }

    fn remove(&mut self, id: &TaskId) -> Option<External> {
        let external = self.live.remove(id)?;
        if let Some(deadline) = external.deadline {
            self.deadlines.remove(&(deadline, id.clone()));
        }
        Some(external)
    }

    /// The tasks whose time is over at `now`, and how they end. They stay here until they have
    /// ended, so that a word which comes meanwhile finds them.
    fn silent(&mut self, now: Instant) -> Vec<(Arc<TaskHandle>, Outcome)> {
        let due: Vec<_> = self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| id.clone()).collect();
        let mut silent = Vec::new();
        for id in due {
            let Some(external) = self.live.get_mut(&id) else { continue };
            let outcome = match (external.patience, external.lease) {
                (Patience::Lease | Patience::LastCall, _) if external.words > 0 => {
                    self.renew(&id, now);
                    continue;
                }
                (Patience::Lease, _) => {
                    self.set(&id, Patience::LastCall, now + LAST_CALL);
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

fn killed(reason: &StopReason) -> Outcome {
    Outcome::new(End::Killed).with_detail(reason.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
