//! The truth: which tasks there are, and the only way to change one.
//!
//! Promises, in the order in which a task meets them:
//! 1. A start is admitted, then launched, then registered; one that fails registers nothing and
//!    uses up no id.
//! 2. A record changes in one commit under one lock. The lock is released before anybody is told.
//! 3. The first outcome counts. A producer that panics or goes away settles its task `failed`.
//! 4. Every commit that changes what a list returns fires the change feed: registration,
//!    `stopping`, settlement, removal.
//!
//! Never here: sockets, processes, encoding. A restart begins with an empty registry.

mod census;
mod handle;
mod listeners;
mod notices;
mod observer;
mod producer;
mod state;
mod update;

use std::{
    fmt,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::time::timeout_at;

pub use self::{
    census::{ByEnd, ByStatus, Census},
    handle::{TaskHandle, TaskWriter},
    listeners::ListenerGuard,
    notices::{InvalidNoticeId, Notice, NoticeId, Notices},
    observer::TaskObserver,
    producer::{LaunchError, Launched, Producer, Stop, StopError, StopReason},
    update::{Finished, Update},
};
use self::{
    handle::TaskOutput,
    listeners::Listeners,
    state::{Entry, Generation, Refused, Seq, Settled, State},
};
use crate::{
    clock::Clock,
    config::RegistryLimits,
    id::{Kind, Scope, SessionId, TaskId},
    output::More,
    spill::{Spilled, Spills},
    sync::lock,
    task::{Label, Outcome, TaskView},
};

/// The registry of tasks. Clones are the same registry.
///
/// Dropping the last one announces nothing: whoever observed it learns so by its own end.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    limits: RegistryLimits,
    spills: Option<Spills>,
    state: Mutex<State>,
    changed: Listeners<Scope>,
    done: Listeners<DoneTask>,
    removed: Listeners<SessionId>,
}

/// What a new task is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// What sort of work.
    pub kind: Kind,
    /// Its label.
    pub label: Label,
}

/// A task's last record, as [`Registry::on_task_done`] gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoneTask {
    /// Whose it was.
    pub scope: Scope,
    /// How it ended.
    pub task: TaskView,
    /// Whether the model was told already, because somebody waited for it: no notice is owed.
    pub reported: bool,
}

/// What a read gives to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Bytes that fell out of the tail before anybody read them; they stood in front of `text`.
    pub dropped: u64,
    /// What came since the last read.
    pub text: String,
    /// The file that has what fell out, if there is one.
    pub spilled: Option<Spilled>,
    /// The task as it stood when it was read.
    pub task: TaskView,
}

/// How a kill went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kill {
    /// The producer was asked. The task is `stopping`, or has ended in the same moment.
    Asked(TaskView),
    /// There was nothing to ask: the task had ended before.
    AlreadyFinished(TaskView),
}

/// What a disposal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposal {
    /// The owner is gone, and all its tasks had ended first.
    Clean,
    /// The owner is gone; so many tasks had not ended in time, and have no record any more.
    Abandoned(usize),
    /// There was no such owner.
    Unknown,
}

/// Why a task did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The owner has as many live tasks as it may.
    #[error("{scope} has {limit} live tasks, which is the limit; kill one or wait until one ends")]
    TooManyLive {
        /// Whose tasks.
        scope: Scope,
        /// [`RegistryLimits::max_live_tasks`].
        limit: usize,
    },
    /// There are as many sessions as there may be, and this would be one more.
    #[error("there are {limit} sessions, which is the limit; dispose one that is over")]
    TooManySessions {
        /// [`RegistryLimits::max_sessions`].
        limit: usize,
    },
    /// There have been as many kinds as there may be, and this would be one more.
    #[error("there are {limit} kinds, which is the limit; use one of those, and tell tasks apart by their labels")]
    TooManyKinds {
        /// [`RegistryLimits::max_kinds`].
        limit: usize,
    },
    /// The owner has been, or is just being, disposed.
    #[error("the session is disposed; nothing starts in it any more")]
    OwnerDisposed,
    /// The registry is closed.
    #[error("the gateway is shutting down; nothing starts any more")]
    Closed,
    /// The producer could not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// Why a task cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// There is none of that id, or its record is gone.
    #[error("unknown task {0}")]
    UnknownTask(TaskId),
    /// It is neither the caller's nor unowned.
    #[error("task {0} belongs to another session")]
    AnotherSession(TaskId),
}

/// Why a kill did nothing.
#[derive(Debug, thiserror::Error)]
pub enum KillError {
    /// The task cannot be reached.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Its producer could not be asked.
    #[error("the task could not be asked to end: {0}")]
    Stop(#[from] StopError),
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(clock: Clock, limits: RegistryLimits) -> Self {
        Self::with_spills(clock, limits, None)
    }

    /// An empty registry whose tasks keep in files what falls out of their output's tail.
    #[must_use]
    pub fn with_spills(clock: Clock, limits: RegistryLimits, spills: Option<Spills>) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                limits,
                spills,
                state: Mutex::default(),
                changed: Listeners::new("tasks changed"),
                done: Listeners::new("task done"),
                removed: Listeners::new("session removed"),
            }),
        }
    }

    /// The clock that stamps its records.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }

    /// The view for whatever serves browsers.
    #[must_use]
    pub fn observer(&self) -> TaskObserver {
        TaskObserver::new(Arc::clone(&self.shared))
    }

    /// Opens a session by name, or takes it up as it is; it stays, empty or not, until it is
    /// disposed. The handle is good for this life of the session only.
    #[must_use]
    pub fn open(&self, session: SessionId) -> Owner {
        let generation = lock(&self.shared.state).open(&session);
        Owner { registry: self.clone(), session, generation }
    }

    /// Starts a task. A session that is not open is opened by its first task.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is registered then.
    pub fn start(&self, scope: &Scope, task: NewTask, producer: impl Producer) -> Result<TaskView, StartError> {
        self.shared.start(scope, None, task, producer)
    }

    /// Registers a task whose work the caller does, or has done elsewhere. The caller reports by
    /// the handle; `stop` is told when somebody wants the task to end.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is registered then.
    pub fn register(
        &self,
        scope: &Scope,
        task: NewTask,
        stop: impl Stop + 'static,
    ) -> Result<(TaskView, TaskHandle), StartError> {
        let launch = || Ok((Arc::new(stop) as Arc<dyn Stop>, ()));
        self.shared.register(scope, None, task, launch).map(|(view, handle, ())| (view, handle))
    }

    /// What the caller sees: its own tasks and the unowned ones, in the order of registration.
    #[must_use]
    pub fn list(&self, caller: &Scope) -> Vec<TaskView> {
        lock(&self.shared.state).list(caller.session())
    }

    /// Every open session. Who serves browsers cannot ask this: no [`TaskObserver`] can.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionId> {
        lock(&self.shared.state).sessions()
    }

    /// Like [`Registry::list`], but none where the session is not open.
    #[must_use]
    pub fn list_open(&self, session: &SessionId) -> Option<Vec<TaskView>> {
        let state = lock(&self.shared.state);
        state.is_open(session).then(|| state.list(Some(session)))
    }

    /// One task.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn get(&self, caller: &Scope, id: &TaskId) -> Result<TaskView, AccessError> {
        lock(&self.shared.state).entry(caller, id).map(|(_, entry)| entry.task.view())
    }

    /// Asks a live task to end: its producer first, then the record turns `stopping`. One that is
    /// `stopping` is asked again.
    ///
    /// # Errors
    /// See [`KillError`]; nothing has changed then.
    pub fn kill(&self, caller: &Scope, id: &TaskId, reason: Option<String>) -> Result<Kill, KillError> {
        self.shared.kill(caller, id, &StopReason::Requested(reason))
    }

    /// What the task put out since the last read, by whoever that was: there is one cursor, the
    /// model's. On a task that has ended it marks the end as told.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn read(&self, caller: &Scope, id: &TaskId) -> Result<Reading, AccessError> {
        let mut state = lock(&self.shared.state);
        let (_, entry) = state.entry(caller, id)?;
        let more = entry.more();
        if more == More::No {
            entry.task.mark_reported();
        }
        let unread = entry.output.read(more);
        let spilled = entry.output.spilled();
        Ok(Reading { dropped: unread.dropped, text: unread.text, spilled, task: entry.task.view() })
    }

    /// Like [`Registry::read`], but held for up to `wait` until there is something to read or the
    /// task has ended. Dropped before that, it has read nothing.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn read_within(&self, caller: &Scope, id: &TaskId, wait: Duration) -> Result<Reading, AccessError> {
        let output = Arc::clone(&lock(&self.shared.state).entry(caller, id)?.1.output);
        let mut news = output.news();
        let something = news.wait_for(|more| *more == More::No || output.has_unread(*more));
        // Neither a timeout nor a record that went meanwhile is an end of its own: the read says.
        let _ = timeout_at(later(wait), something).await;
        output.flushed().await;
        self.read(caller, id)
    }

    /// The task as it stands at its end, or after `timeout` if it is live still. A waiter that is
    /// present at the end counts as told; one that was dropped before does not.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub async fn wait(&self, caller: &Scope, id: &TaskId, timeout: Duration) -> Result<TaskView, AccessError> {
        let waiter = Waiter::enter(&self.shared, caller, id)?;
        let mut news = waiter.output.news();
        let _ = timeout_at(later(timeout), news.wait_for(|more| *more == More::No)).await;
        drop(waiter);
        self.get(caller, id)
    }

    /// Ends an owner: each live task is asked to stop and awaited, all together for at most
    /// `bound`; then the owner's records go, and the change feed fires. Dropped before that, it
    /// does not wait any longer, and the records go at once.
    pub async fn dispose_owner(&self, session: &SessionId, bound: Duration) -> Disposal {
        let scope = Scope::Session(session.clone());
        let Some((generation, first, mut gone)) = lock(&self.shared.state).begin_disposal(session) else {
            return Disposal::Unknown;
        };
        if !first {
            let _ = gone.changed().await;
            return Disposal::Clean;
        }
        let removal = Removal { shared: &self.shared, session, generation };
        let abandoned = self.shared.stop_all(Some(&scope), &StopReason::OwnerDisposed, bound).await;
        drop(removal);
        if abandoned == 0 { Disposal::Clean } else { Disposal::Abandoned(abandoned) }
    }

    /// Refuses every start from now on, asks every live task to end, and waits for them for at
    /// most `bound`. The records stay, with their ends. Returns how many had not ended.
    pub async fn close(&self, bound: Duration) -> usize {
        lock(&self.shared.state).closed = true;
        self.shared.stop_all(None, &StopReason::Shutdown, bound).await
    }

    /// See [`TaskObserver::on_tasks_changed`].
    pub fn on_tasks_changed(&self, listener: impl Fn(Option<&SessionId>) + Send + Sync + 'static) -> ListenerGuard {
        self.observer().on_tasks_changed(listener)
    }

    /// See [`TaskObserver::on_session_removed`].
    pub fn on_session_removed(&self, listener: impl Fn(&SessionId) + Send + Sync + 'static) -> ListenerGuard {
        self.observer().on_session_removed(listener)
    }

    /// Calls `listener` with each task's last record, once, after the change feed told of it.
    pub fn on_task_done(&self, listener: impl Fn(&DoneTask) + Send + Sync + 'static) -> ListenerGuard {
        self.shared.done.add(listener)
    }

    /// How many owners and how many records there are, for gauges and tests.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        lock(&self.shared.state).size()
    }
}

impl Default for Registry {
    /// An empty registry on the machine's clock, with the default limits.
    fn default() -> Self {
        Self::new(Clock::system(), RegistryLimits::default())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owners, tasks) = self.size();
        f.debug_struct("Registry").field("owners", &owners).field("tasks", &tasks).finish()
    }
}

/// One life of a session. After its disposal the handle can start nothing, even when the session
/// has been opened again.
#[derive(Debug, Clone)]
pub struct Owner {
    registry: Registry,
    session: SessionId,
    generation: Generation,
}

impl Owner {
    /// The session's name.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Whether this life of the session is over, or its disposal has begun.
    #[must_use]
    pub fn is_disposed(&self) -> bool {
        let disposing = lock(&self.registry.shared.state).disposing(&self.session, self.generation);
        disposing.is_none_or(|disposing| *disposing.borrow())
    }

    /// Returns once this life of the session is over, or its disposal has begun: what was opened
    /// for the session and is no task is to end then.
    pub async fn disposed(&self) {
        let disposing = lock(&self.registry.shared.state).disposing(&self.session, self.generation);
        if let Some(mut disposing) = disposing {
            // An error says that the owner is gone, which is later still.
            let _ = disposing.wait_for(|disposing| *disposing).await;
        }
    }

    /// Starts a task of this session.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is registered then.
    pub fn start(&self, task: NewTask, producer: impl Producer) -> Result<TaskView, StartError> {
        let scope = Scope::Session(self.session.clone());
        self.registry.shared.start(&scope, Some(self.generation), task, producer)
    }
}

impl Shared {
    fn start(
        self: &Arc<Self>,
        scope: &Scope,
        expected: Option<Generation>,
        task: NewTask,
        producer: impl Producer,
    ) -> Result<TaskView, StartError> {
        let launch = || producer.launch().map(|Launched { stop, adopt }| (stop, adopt));
        let (view, handle, adopt) = self.register(scope, expected, task, launch)?;
        adopt(handle);
        Ok(view)
    }

    /// Admits, launches, registers, and tells of it, in this order.
    fn register<T>(
        self: &Arc<Self>,
        scope: &Scope,
        expected: Option<Generation>,
        task: NewTask,
        launch: impl FnOnce() -> Result<(Arc<dyn Stop>, T), LaunchError>,
    ) -> Result<(TaskView, TaskHandle, T), StartError> {
        let refused = |refused| match refused {
            Refused::TooManyLive => StartError::TooManyLive { scope: scope.clone(), limit: self.limits.max_live_tasks },
            Refused::TooManySessions => StartError::TooManySessions { limit: self.limits.max_sessions },
            Refused::TooManyKinds => StartError::TooManyKinds { limit: self.limits.max_kinds },
            Refused::OwnerDisposed => StartError::OwnerDisposed,
            Refused::Closed => StartError::Closed,
        };
        let generation = lock(&self.state).reserve(scope, expected, &task.kind, &self.limits).map_err(refused)?;
        let place = Place { shared: self, scope, generation };
        let (stop, launched) = launch()?;
        let output = Arc::new(TaskOutput::new(self.limits.output_tail, self.spills.as_ref()));
        let entry = |task| Entry { task, output: Arc::clone(&output), stop, waiters: 0 };
        let registered = lock(&self.state).register(scope, generation, &task.kind, task.label, self.clock.now(), entry);
        drop(place);
        let (view, seq) = registered.map_err(refused)?;
        tracing::info!(task = %view.id, session = %scope, "started");
        self.changed.notify(scope);
        let (shared, id) = (Arc::downgrade(self), view.id.clone());
        let handle = TaskHandle { shared, scope: scope.clone(), seq, id, output };
        Ok((view, handle, launched))
    }

    fn kill(&self, caller: &Scope, id: &TaskId, reason: &StopReason) -> Result<Kill, KillError> {
        let stop = {
            let mut state = lock(&self.state);
            let (_, entry) = state.entry(caller, id)?;
            if !entry.task.is_live() {
                return Ok(Kill::AlreadyFinished(entry.task.view()));
            }
            Arc::clone(&entry.stop)
        };
        stop.stop(reason)?;
        tracing::info!(task = %id, session = %caller, %reason, "asked to end");
        let (scope, view, changed) = {
            let mut state = lock(&self.state);
            let (scope, entry) = state.entry(caller, id)?;
            // It may have settled since the first look: then it stays so.
            let changed = entry.task.stopping() == Ok(true);
            (scope, entry.task.view(), changed)
        };
        if changed {
            self.changed.notify(&scope);
        }
        Ok(Kill::Asked(view))
    }

    fn settle(&self, scope: &Scope, seq: Seq, outcome: Outcome) {
        let settled = lock(&self.state).settle(scope, seq, outcome, self.clock.now(), &self.limits);
        if let Some(settled) = settled {
            self.announce(scope, settled);
        }
    }

    fn announce(&self, scope: &Scope, settled: Settled) {
        drop(settled.retired);
        let task = settled.view;
        tracing::info!(task = %task.id, session = %scope, status = %task.status, detail = task.detail.as_deref(), "settled");
        self.changed.notify(scope);
        self.done.notify(&DoneTask { scope: scope.clone(), task, reported: settled.reported });
    }

    /// Asks live tasks to end and waits for them; returns how many had not ended within `bound`.
    async fn stop_all(&self, scope: Option<&Scope>, reason: &StopReason, bound: Duration) -> usize {
        let deadline = later(bound);
        let live = lock(&self.state).live(scope);
        let ends: Vec<_> = live
            .iter()
            .filter_map(|(scope, id)| {
                let news = lock(&self.state).entry(scope, id).ok()?.1.output.news();
                if let Err(error) = self.kill(scope, id, reason) {
                    tracing::warn!(task = %id, session = %scope, %error, "could not be asked to end");
                }
                Some(news)
            })
            .collect();
        let mut abandoned = 0;
        for mut end in ends {
            if timeout_at(deadline, end.wait_for(|more| *more == More::No)).await.is_err() {
                abandoned += 1;
            }
        }
        abandoned
    }
}

impl Entry {
    fn more(&self) -> More {
        if self.task.is_live() { More::Expected } else { More::No }
    }
}

/// A place held for a task; given back when dropped.
struct Place<'a> {
    shared: &'a Shared,
    scope: &'a Scope,
    generation: Generation,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(&self.shared.state).release(self.scope, self.generation);
    }
}

/// A disposal under way; when dropped, the owner's records go and everybody is told.
struct Removal<'a> {
    shared: &'a Shared,
    session: &'a SessionId,
    generation: Generation,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let removed = lock(&self.shared.state).remove_owner(self.session, self.generation);
        if removed.is_some() {
            drop(removed);
            tracing::info!(session = %self.session, "disposed");
            self.shared.removed.notify(self.session);
            self.shared.changed.notify(&Scope::Session(self.session.clone()));
        }
    }
}

/// Somebody who waits for a task's end; counted while it lives.
struct Waiter {
    shared: Weak<Shared>,
    caller: Scope,
    id: TaskId,
    output: Arc<TaskOutput>,
}

impl Waiter {
    fn enter(shared: &Arc<Shared>, caller: &Scope, id: &TaskId) -> Result<Self, AccessError> {
        let mut state = lock(&shared.state);
        let (_, entry) = state.entry(caller, id)?;
        entry.waiters += 1;
        let output = Arc::clone(&entry.output);
        if !entry.task.is_live() {
            entry.task.mark_reported();
        }
        Ok(Self { shared: Arc::downgrade(shared), caller: caller.clone(), id: id.clone(), output })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if let Ok((_, entry)) = lock(&shared.state).entry(&self.caller, &self.id) {
            entry.waiters -= 1;
        }
    }
}

fn later(wait: Duration) -> tokio::time::Instant {
    let now = tokio::time::Instant::now();
    // A wait that is longer than time can be told is one of thirty years.
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_hours(24 * 365 * 30))
}
