//! Work that this process does itself: a future, a thread, or whatever a held task stands for.
//!
//! Promises:
//! - Work that returns settles its task by what it returned; work that panics, is dropped or
//!   forgets to say settles it `failed`, with a detail saying so.
//! - A kill is a request that the work can await or ask for. However the work ends after that, the
//!   task is `killed`. A future that does not end within its grace is dropped; a thread cannot be,
//!   so its task stays `stopping` until it returns.
//! - Work that was not registered (its session was disposed in the same moment) never begins.
//!
//! A future:
//!
//! ```
//! use std::{io::Write, time::Duration};
//! use tasklight::{Kind, Label, NewTask, Registry, Scope, SessionId, Status, producer::in_process};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::default();
//! let demo = Scope::Session(SessionId::new("demo")?);
//! let task = NewTask { kind: Kind::new("subagent")?, label: Label::new("review the change")? };
//! let task = registry.start(
//!     &demo,
//!     task,
//!     in_process::future(async |work| {
//!         for page in 1.. {
//!             let _ = writeln!(work.output(), "page {page} is read");
//!             tokio::select! {
//!                 () = tokio::time::sleep(Duration::from_millis(10)) => {} // read on
//!                 _ = work.stopping() => return Err(format!("stopped at page {page}")),
//!             }
//!         }
//!         Ok(())
//!     }),
//! )?;
//!
//! registry.kill(&demo, &task.id, None)?;
//! let ended = registry.wait(&demo, &task.id, Duration::from_secs(10)).await?;
//! assert_eq!((ended.status, ended.detail.as_deref()), (Status::Killed, Some("stopped at page 1")));
//! # Ok(())
//! # }
//! ```
//!
//! A thread, which needs no runtime:
//!
//! ```
//! # use std::time::Duration;
//! # use tasklight::{Kind, Label, NewTask, Registry, Scope, Status, producer::in_process};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let registry = Registry::default();
//! let task = NewTask { kind: Kind::new("index")?, label: Label::new("index the sources")? };
//! let task = registry.start(
//!     &Scope::Unowned,
//!     task,
//!     in_process::thread(|work| {
//!         for file in ["a.rs", "b.rs"] {
//!             if work.is_stopping() {
//!                 return Ok(());
//!             }
//!             std::fs::read(file).map(drop)?;
//!         }
//!         std::io::Result::Ok(())
//!     }),
//! )?;
//! let ended = registry.wait(&Scope::Unowned, &task.id, Duration::from_secs(10)).await?;
//! assert_eq!(ended.status, Status::Failed); // there is no a.rs here
//! # Ok(())
//! # }
//! ```
//!
//! Work of any other shape holds its task by a value, see [`held`].

use std::{
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::mpsc,
    task::Poll,
    time::Duration,
};

use tokio::{runtime, sync::watch, time::sleep};

use super::bell::Bell;
use crate::{
    id::{Scope, TaskId},
    registry::{LaunchError, Launched, NewTask, Producer, Registry, StartError, StopReason, TaskHandle, TaskWriter},
    task::{End, Outcome},
};

/// How long a future has from being asked to end until it is dropped, unless it was told
/// otherwise. 3 s, as processes have.
pub const GRACE: Duration = Duration::from_secs(3);

/// What work in this process knows of its task. Clones speak of the same task.
#[derive(Debug, Clone)]
pub struct Work {
    id: TaskId,
    output: TaskWriter,
    asked: Asked,
}

impl Work {
    fn of(task: &TaskHandle, asked: Asked) -> Self {
        Self { id: task.id().clone(), output: task.output(), asked }
    }

    /// The task's id.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Where the task's output goes.
    #[must_use]
    pub fn output(&self) -> TaskWriter {
        self.output.clone()
    }

    /// Whether the task was asked to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.asked.reason().is_some()
    }

    /// Returns once the task is asked to end, with the reason. Safe to drop and to call again.
    pub async fn stopping(&self) -> StopReason {
        self.asked.clone().reached().await
    }
}

/// Where a kill is heard.
#[derive(Debug, Clone)]
struct Asked(watch::Receiver<Option<StopReason>>);

impl Asked {
    fn reason(&self) -> Option<StopReason> {
        let reason = self.0.borrow().clone();
        // A record that is gone is an owner that is gone.
        reason.or_else(|| self.0.has_changed().is_err().then_some(StopReason::OwnerDisposed))
    }

    async fn reached(&mut self) -> StopReason {
        let reason = self.0.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or(StopReason::OwnerDisposed)
    }

    /// What the outcome is once it is known whether the task was asked to end.
    fn judge(&self, outcome: Outcome) -> Outcome {
        match self.reason() {
            None => outcome,
            Some(reason @ StopReason::Shutdown) => outcome.killed(Some(&reason.to_string())),
            Some(StopReason::Requested(_) | StopReason::OwnerDisposed) => outcome.killed(None),
        }
    }
}

/// A producer whose work is a future, made when the task is registered. What it returns says how
/// the task ended: nothing, a [`Result`], or an [`Outcome`].
///
/// It must be launched within a tokio runtime with time, which then polls it.
pub fn future<F, R>(work: F) -> FutureWork<F>
where
    F: FnOnce(Work) -> R + Send + 'static,
    R: Future<Output: Into<Outcome>> + Send + 'static,
{
    FutureWork { work, grace: GRACE }
}

/// See [`future`].
pub struct FutureWork<F> {
    work: F,
    grace: Duration,
}

impl<F> FutureWork<F> {
    /// How long the future has from being asked to end until it is dropped. It is dropped between
    /// two polls: one that blocks its thread cannot be.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }
}

impl<F> fmt::Debug for FutureWork<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FutureWork").field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl<F, R> Producer for FutureWork<F>
where
    F: FnOnce(Work) -> R + Send + 'static,
    R: Future<Output: Into<Outcome>> + Send + 'static,
{
    fn launch(self) -> Result<Launched, LaunchError> {
        let Self { work, grace } = self;
        let no_runtime = |error| LaunchError::System {
            action: "start a future outside a tokio runtime",
            source: std::io::Error::other(error),
        };
        let runtime = runtime::Handle::try_current().map_err(no_runtime)?;
        let (bell, heard) = Bell::new();
        Ok(Launched::new(bell, move |task| {
            let asked = Asked(heard);
            let of_task = Work::of(&task, asked.clone());
            let future = Box::pin(async move { work(of_task).await.into() });
            // Its end is the work's own, or the grace's after the record's: both are bound to come.
            runtime.spawn(supervise(task, asked, grace, future));
        }))
    }
}

async fn supervise(
    task: TaskHandle,
    asked: Asked,
    grace: Duration,
    mut future: Pin<Box<dyn Future<Output = Outcome> + Send>>,
) {
    let outcome = {
        let ended = poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))).unwrap_or_else(|_| Poll::Ready(panicked()))
        });
        let overdue = async {
            asked.clone().reached().await;
            sleep(grace).await;
        };
        tokio::select! {
            biased;
            outcome = ended => outcome,
            () = overdue => {
                let grace = humantime::format_duration(grace);
                Outcome::new(End::Killed).with_detail(format!("dropped: it had not ended after {grace}"))
            }
        }
    };
    // What the future holds goes before its task is said to have ended.
    drop(future);
    task.settle(asked.judge(outcome));
}

/// A producer whose work is done by a thread of its own. What it returns says how the task ended:
/// nothing, a [`Result`], or an [`Outcome`].
///
/// A thread cannot be ended from outside: work that takes long asks [`Work::is_stopping`].
pub fn thread<F, R>(work: F) -> impl Producer
where
    F: FnOnce(Work) -> R + Send + 'static,
    R: Into<Outcome>,
{
    ThreadWork(work)
}

struct ThreadWork<F>(F);

impl<F, R> Producer for ThreadWork<F>
where
    F: FnOnce(Work) -> R + Send + 'static,
    R: Into<Outcome>,
{
    fn launch(self) -> Result<Launched, LaunchError> {
        let (bell, heard) = Bell::new();
        let (adopt, adopted) = mpsc::sync_channel::<TaskHandle>(1);
        let work = move || {
            // Never registered: there is nothing to do.
            let Ok(task) = adopted.recv() else { return };
            let asked = Asked(heard);
            let of_task = Work::of(&task, asked.clone());
            let outcome = catch_unwind(AssertUnwindSafe(|| self.0(of_task).into()));
            task.settle(asked.judge(outcome.unwrap_or_else(|_| panicked())));
        };
        let thread = std::thread::Builder::new().name("tasklight-work".into()).spawn(work);
        thread.map_err(|source| LaunchError::System { action: "start a thread", source })?;
        Ok(Launched::new(bell, move |task| {
            // Its one receiver waits for this one handle; a handle that is not taken settles.
            let _ = adopt.send(task);
        }))
    }
}

fn panicked() -> Outcome {
    Outcome::new(End::Failed).with_detail("its producer panicked")
}

/// Registers a task whose work the caller does, wherever and however.
///
/// ```
/// # use tasklight::{Kind, Label, NewTask, Registry, Scope, Status, producer::in_process};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let registry = Registry::default();
/// let task = NewTask { kind: Kind::new("subagent")?, label: Label::new("plan")? };
/// let held = in_process::held(&registry, &Scope::Unowned, task)?;
/// let id = held.work().id().clone();
/// held.settle(Err("the model is not there")); // or dropped: `failed` too
///
/// let ended = registry.get(&Scope::Unowned, &id)?;
/// assert_eq!((ended.status, ended.detail.as_deref()), (Status::Failed, Some("the model is not there")));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// See [`StartError`]; nothing is registered then.
pub fn held(registry: &Registry, scope: &Scope, task: NewTask) -> Result<HeldTask, StartError> {
    let (bell, heard) = Bell::new();
    let (_, task) = registry.register(scope, task, bell)?;
    let work = Work::of(&task, Asked(heard));
    Ok(HeldTask { task, work })
}

/// A task that is live for as long as this is held. Dropped, it is settled: `killed` if it was
/// asked to end, else `failed`.
#[derive(Debug)]
pub struct HeldTask {
    task: TaskHandle,
    work: Work,
}

impl HeldTask {
    /// What the work knows of its task.
    #[must_use]
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Settles the task: by nothing, a [`Result`] or an [`Outcome`].
    pub fn settle(self, outcome: impl Into<Outcome>) {
        self.task.settle(self.work.asked.judge(outcome.into()));
    }
}

impl Drop for HeldTask {
    fn drop(&mut self) {
        if self.work.is_stopping() {
            self.task.settle(self.work.asked.judge(Outcome::new(End::Killed)));
        }
        // Else the handle's own drop says how it came.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        config::RegistryLimits,
        id::{Kind, SessionId},
        task::{Label, Status, TaskView},
    };

    fn registry() -> Registry {
        Registry::new(Clock::system(), RegistryLimits::default())
    }

    fn demo() -> Scope {
        Scope::Session(SessionId::new("demo").unwrap())
    }

    fn task() -> NewTask {
        NewTask { kind: Kind::new("subagent").unwrap(), label: Label::new("plan").unwrap() }
    }

    async fn ended(registry: &Registry, task: &TaskView) -> (Status, Option<String>) {
        let ended = registry.wait(&demo(), &task.id, Duration::from_hours(1)).await.unwrap();
        (ended.status, ended.detail.as_deref().map(str::to_owned))
    }

    #[tokio::test]
    async fn what_a_future_returns_says_how_its_task_ended() {
        let registry = registry();
        let task_of = |producer| registry.start(&demo(), task(), producer).unwrap();
        let done = task_of(future(async |_: Work| ()));
        assert_eq!(ended(&registry, &done).await, (Status::Completed, None));
        let failed = registry.start(&demo(), task(), future(async |_: Work| Err("no model"))).unwrap();
        assert_eq!(ended(&registry, &failed).await, (Status::Failed, Some("no model".into())));
        let told = future(async |_: Work| Outcome::new(End::Completed).with_detail("3 findings"));
        let told = registry.start(&demo(), task(), told).unwrap();
        assert_eq!(ended(&registry, &told).await, (Status::Completed, Some("3 findings".into())));
    }

    #[tokio::test]
    async fn work_that_panics_settles_failed() {
        let registry = registry();
        let in_future = future(async |_: Work| -> () { panic!("a panic that a test wants") });
        let in_future = registry.start(&demo(), task(), in_future).unwrap();
        let in_thread = thread(|_: Work| -> () { panic!("a panic that a test wants") });
        let in_thread = registry.start(&demo(), task(), in_thread).unwrap();
        for task in [in_future, in_thread] {
            assert_eq!(ended(&registry, &task).await, (Status::Failed, Some("its producer panicked".into())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_future_hears_of_it_and_its_end_is_killed() {
        let registry = registry();
        let work = future(async |work: Work| {
            let reason = work.stopping().await;
            assert!(work.is_stopping());
            Err(format!("stopped: {reason}"))
        });
        let view = registry.start(&demo(), task(), work).unwrap();
        registry.kill(&demo(), &view.id, Some("enough".into())).unwrap();
        assert_eq!(registry.get(&demo(), &view.id).unwrap().status, Status::Stopping);
        assert_eq!(ended(&registry, &view).await, (Status::Killed, Some("stopped: requested: enough".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_does_not_heed_a_kill_is_dropped_after_its_grace() {
        let registry = registry();
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let work = future(move |_: Work| async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        let view = registry.start(&demo(), task(), work.with_grace(Duration::from_secs(7))).unwrap();
        tokio::task::yield_now().await;
        let start = tokio::time::Instant::now();
        registry.kill(&demo(), &view.id, None).unwrap();
        let (status, detail) = ended(&registry, &view).await;
        assert_eq!((status, detail.as_deref()), (Status::Killed, Some("dropped: it had not ended after 7s")));
        assert_eq!(start.elapsed(), Duration::from_secs(7));
        assert!(gone.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn disposal_and_shutdown_end_futures_too() {
        let registry = registry();
        let waits = || future(async |work: Work| drop(work.stopping().await));
        registry.start(&demo(), task(), waits()).unwrap();
        let disposal = registry.dispose_owner(demo().session().unwrap(), Duration::from_secs(1)).await;
        assert_eq!(disposal, crate::registry::Disposal::Clean);
        let view = registry.start(&demo(), task(), waits()).unwrap();
        assert_eq!(registry.close(Duration::from_secs(1)).await, 0);
        assert_eq!(ended(&registry, &view).await, (Status::Killed, Some("gateway shut down".into())));
    }

    #[tokio::test]
    async fn a_thread_writes_output_and_heeds_a_kill() {
        use std::io::Write;
        let registry = registry();
        let work = thread(|work: Work| {
            writeln!(work.output(), "begun").unwrap();
            while !work.is_stopping() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let view = registry.start(&demo(), task(), work).unwrap();
        let reading = registry.read_within(&demo(), &view.id, Duration::from_secs(30)).await.unwrap();
        assert_eq!(reading.text, "begun\n");
        registry.kill(&demo(), &view.id, None).unwrap();
        assert_eq!(ended(&registry, &view).await, (Status::Killed, None));
    }

    #[tokio::test]
    async fn a_held_task_settles_on_drop() {
        let registry = registry();
        let hold = || held(&registry, &demo(), task()).unwrap();
        let stands = |id: &TaskId| {
            let task = registry.get(&demo(), id).unwrap();
            (task.status, task.detail.as_deref().map(str::to_owned))
        };
        let (a, b, c) = (hold(), hold(), hold());
        let [a_id, b_id, c_id] = [&a, &b, &c].map(|held| held.work().id().clone());
        assert_eq!(stands(&a_id), (Status::Running, None));
        drop(a);
        let silent = "its producer went away without saying how it ended";
        assert_eq!(stands(&a_id), (Status::Failed, Some(silent.into())));
        registry.kill(&demo(), &b_id, None).unwrap();
        assert_eq!(b.work().stopping().await, StopReason::Requested(None));
        drop(b);
        assert_eq!(stands(&b_id), (Status::Killed, None));
        c.settle(());
        assert_eq!(stands(&c_id), (Status::Completed, None));
    }

    #[tokio::test]
    async fn a_task_whose_record_is_gone_is_asked_to_end() {
        let registry = registry();
        let held = held(&registry, &demo(), task()).unwrap();
        let work = held.work().clone();
        assert!(!work.is_stopping());
        registry.dispose_owner(demo().session().unwrap(), Duration::ZERO).await;
        drop(registry);
        assert_eq!(work.stopping().await, StopReason::OwnerDisposed);
        held.settle(());
    }

    #[test]
    fn a_future_outside_a_runtime_registers_nothing() {
        let registry = registry();
        let refused = registry.start(&demo(), task(), future(async |_: Work| ())).unwrap_err();
        assert!(matches!(refused, StartError::Launch(LaunchError::System { .. })), "{refused}");
        assert!(registry.list(&demo()).is_empty());
        let in_thread = registry.start(&demo(), task(), thread(|_: Work| ())).unwrap();
        assert_eq!(in_thread.id.to_string(), "subagent-1");
    }
}
