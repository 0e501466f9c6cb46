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

mod lease;

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use self::lease::{External, Patience, Tasks, killed};
pub use self::lease::{InvalidLease, Lease};
use crate::{
    id::{Scope, TaskId},
    registry::{
        AccessError, Finished, LaunchError, Launched, Producer, Registry, Stop, StopError, StopReason, TaskHandle,
        Update,
    },
    sync::lock,
    task::{TaskView, row::Row},
};

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

    /// The producer of one task that somebody else works on. Its lease runs out only while
    /// [`Externals::expire`] is polled.
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
        if let Some(external) = lock(&self.shared.tasks).begin_word(caller, id) {
            return Ok(Word { shared: Arc::clone(&self.shared), external });
        }
        // Looked at after the live ones, so that one which ended in between is not taken for another kind.
        let ended = registry.get(caller, id)?.status.is_terminal();
        Err(if ended { HearError::Finished(id.clone()) } else { HearError::NotExternal(id.clone()) })
    }

    /// Settles the tasks whose producers fell silent, for as long as it is polled: the one timer of
    /// all leases.
    pub async fn expire(&self) -> Infallible {
        loop {
            let next = lock(&self.shared.tasks).next().map(|(at, _)| *at);
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
            for (external, outcome) in silent {
                external.handle().settle(outcome);
                self.shared.forget(external.handle().id());
            }
        }
    }
}

impl fmt::Debug for Externals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Externals").field("live", &lock(&self.shared.tasks).size().0).finish()
    }
}

/// Something that a producer says about its live task. Renews the lease, whatever it is.
pub struct Word {
    shared: Arc<Shared>,
    external: Arc<External>,
}

impl Word {
    /// Changes the task; returns it as it stands then.
    ///
    /// # Errors
    /// When the task has ended meanwhile.
    pub fn update(&self, update: Update) -> Result<TaskView, HearError> {
        self.report(update).map(|row| row.task().clone())
    }

    /// The same; returns the task as all who look share it.
    pub(crate) fn report(&self, update: Update) -> Result<Arc<Row>, HearError> {
        let (ends, task) = (update.end.is_some(), self.external.handle());
        let updated = task.report(update).map_err(|Finished| HearError::Finished(task.id().clone()));
        if ends && updated.is_ok() {
            self.shared.forget(task.id());
        }
        updated
    }

    /// Adds to the task's output, when there is room for it.
    ///
    /// # Errors
    /// When the task has ended meanwhile.
    pub async fn append(&self, text: &str) -> Result<(), HearError> {
        let task = self.external.handle();
        task.room().await;
        self.report(Update::default())?;
        task.append(text.as_bytes());
        Ok(())
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.external.end_word(Instant::now());
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Word").field(self.external.handle().id()).finish()
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
        let mut tasks = lock(&self.tasks);
        tasks.add(task, lease, Instant::now());
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
                external.handle().settle(killed(reason));
            }
        }
    }

    /// Whatever is left of the task here goes, outside the lock: its handle's drop settles.
    fn forget(&self, id: &TaskId) {
        let gone = lock(&self.tasks).remove(id);
        drop(gone);
    }

    fn ring_if_first(&self, tasks: &Tasks, id: &TaskId) {
        if tasks.next().is_some_and(|(_, first)| first == id) {
            self.earlier.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;
    use crate::{
        clock::{Clock, UnixMillis},
        config::RegistryLimits,
        id::{Kind, SessionId},
        registry::{Disposal, NewTask, StartError},
        task::{Detail, End, Label, Status},
    };

    const GRACE: Duration = Duration::from_secs(3);

    fn session() -> SessionId {
        SessionId::new("demo").unwrap()
    }

    fn scope() -> Scope {
        Scope::Session(session())
    }

    struct House {
        session: SessionId,
        registry: Registry,
        externals: Externals,
    }

    impl House {
        /// A registry, and a keeper whose timer runs.
        fn new() -> Self {
            let externals = Externals::new(GRACE);
            let timer = externals.clone();
            tokio::spawn(async move { timer.expire().await });
            let registry = Registry::new(Clock::manual(UnixMillis(1_000)), RegistryLimits::default());
            Self { session: session(), registry, externals }
        }

        fn try_start(&self, lease: Option<u64>) -> Result<TaskId, StartError> {
            let task = NewTask { kind: Kind::new("subagent").unwrap(), label: Label::new("review").unwrap() };
            let lease = lease.map(|millis| Lease::from_millis(millis).unwrap());
            self.registry.start(&scope(), task, self.externals.task(lease)).map(|task| task.id)
        }

        fn start(&self, lease: Option<u64>) -> TaskId {
            self.try_start(lease).unwrap()
        }

        fn hear(&self, id: &TaskId) -> Result<Word, HearError> {
            self.externals.hear(&self.registry, &scope(), id)
        }

        fn update(&self, id: &TaskId, update: Update) -> Result<TaskView, HearError> {
            self.hear(id)?.update(update)
        }

        fn stands(&self, id: &TaskId) -> (Status, Option<String>) {
            let task = self.registry.get(&scope(), id).unwrap();
            (task.status, task.detail.as_deref().map(str::to_owned))
        }

        fn kept(&self) -> (usize, usize) {
            let tasks = lock(&self.externals.shared.tasks);
            tasks.size()
        }
    }

    fn said(detail: &str) -> Update {
        Update { detail: Some(Detail::new(detail).unwrap()), ..Update::default() }
    }

    fn ended(end: End) -> Update {
        Update { end: Some(end), ..Update::default() }
    }

    #[test]
    fn a_lease_is_a_second_to_a_day() {
        for good in [1_000, 86_400_000] {
            assert!(Lease::from_millis(good).is_ok());
        }
        for bad in [0, 999, 86_400_001, u64::MAX] {
            assert_eq!(Lease::from_millis(bad), Err(InvalidLease { millis: bad }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_for_a_lease_fails_the_task_and_says_for_how_long() {
        let house = House::new();
        let (short, long, none) = (house.start(Some(1_500)), house.start(Some(60_000)), house.start(None));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(house.stands(&short).0, Status::Running, "it is listened to once more");
        sleep(lease::LAST_CALL + Duration::from_millis(1)).await;
        let failed = (Status::Failed, Some("no word from its producer for 1.5 s".to_owned()));
        assert_eq!(house.stands(&short), failed);
        assert_eq!(house.update(&short, ended(End::Completed)), Err(HearError::Finished(short.clone())));
        assert_eq!(house.stands(&short), failed, "the first end counts");
        sleep(Duration::from_mins(1)).await;
        assert_eq!(house.stands(&long).1.unwrap(), "no word from its producer for 60 s");
        sleep(Duration::from_hours(1_000)).await;
        assert_eq!(house.stands(&none).0, Status::Running);
        assert_eq!(house.kept(), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn any_word_renews_a_lease_also_at_the_last_call() {
        let house = House::new();
        let id = house.start(Some(1_000));
        for round in 0..100 {
            sleep(Duration::from_millis(if round % 2 == 0 { 999 } else { 1_200 })).await;
            match round % 3 {
                0 => drop(house.update(&id, Update::default()).unwrap()),
                1 => house.hear(&id).unwrap().append("x").await.unwrap(),
                _ => drop(house.update(&id, said("on it")).unwrap()),
            }
        }
        assert_eq!(house.stands(&id).0, Status::Running);
        sleep(Duration::from_millis(1_300)).await;
        assert_eq!(house.stands(&id).0, Status::Failed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_that_is_still_arriving_keeps_the_task() {
        let house = House::new();
        let id = house.start(Some(1_000));
        let word = house.hear(&id).unwrap();
        sleep(Duration::from_secs(10)).await;
        word.update(said("slow")).unwrap();
        drop(word);
        sleep(Duration::from_millis(999)).await;
        assert_eq!(house.stands(&id), (Status::Running, Some("slow".to_owned())));
        sleep(Duration::from_millis(300)).await;
        assert_eq!(house.stands(&id).0, Status::Failed, "it counts once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kill_shows_as_stopping_until_the_producer_says_how_it_ended() {
        let house = House::new();
        let id = house.start(Some(1_000));
        house.registry.kill(&scope(), &id, None).unwrap();
        for _ in 0..10 {
            sleep(Duration::from_millis(900)).await;
            assert_eq!(house.update(&id, Update::default()).unwrap().status, Status::Stopping);
        }
        let end = Update { detail: Some(Detail::new("cancelled").unwrap()), ..ended(End::Killed) };
        assert_eq!(house.update(&id, end).unwrap().status, Status::Killed);
        assert_eq!(house.stands(&id), (Status::Killed, Some("cancelled".to_owned())));
        assert_eq!(house.kept(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn every_change_fires_the_feed_and_a_bare_renewal_does_not() {
        let house = House::new();
        let id = house.start(Some(1_000));
        let fired = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&fired);
        let _listening = house.registry.on_tasks_changed(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let label = Update { label: Some(Label::new("review 2").unwrap()), ..Update::default() };
        for (update, changes) in [
            (Update::default(), 0),
            (said("reads"), 1),
            (said("reads"), 1),
            (label.clone(), 2),
            (label, 2),
            (said(""), 3),
            (ended(End::Completed), 4),
        ] {
            house.update(&id, update).unwrap();
            assert_eq!(fired.load(Ordering::Relaxed), changes);
        }
        assert!(house.update(&id, said("late")).is_err());
        assert_eq!(fired.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disposal_gives_the_producer_the_grace_and_no_more() {
        let house = House::new();
        house.start(None);
        let silent = house.start(Some(60_000));
        let began = Instant::now();
        let disposal = house.registry.dispose_owner(&house.session, Duration::from_secs(5));
        let producer = async {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(house.update(&silent, Update::default()).unwrap().status, Status::Stopping);
        };
        assert_eq!(tokio::join!(disposal, producer).0, Disposal::Clean);
        assert_eq!(began.elapsed().as_secs(), GRACE.as_secs());
        assert_eq!(house.kept(), (0, 0));

        let heard = house.start(None);
        let began = Instant::now();
        let disposal = house.registry.dispose_owner(&house.session, Duration::from_secs(5));
        let producer = async {
            sleep(Duration::from_secs(1)).await;
            house.update(&heard, ended(End::Killed)).unwrap();
        };
        assert_eq!(tokio::join!(disposal, producer).0, Disposal::Clean);
        assert_eq!(began.elapsed().as_secs(), 1);
        assert!(matches!(house.hear(&heard), Err(HearError::Access(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_disposal_that_is_given_up_leaves_nothing_behind() {
        let house = House::new();
        house.start(Some(1_000));
        let disposal = house.registry.dispose_owner(&house.session, Duration::from_secs(5));
        assert!(tokio::time::timeout(Duration::from_millis(10), disposal).await.is_err());
        assert_eq!((house.registry.size(), house.kept()), ((0, 0), (0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_the_rows_at_once_and_asks_no_producer_to_stop() {
        let house = House::new();
        let id = house.start(None);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (list, rows) = (house.registry.clone(), Arc::clone(&seen));
        let _listening = house.registry.on_tasks_changed(move |_| lock(&rows).push(list.list(&scope())[0].status));
        let began = Instant::now();
        assert_eq!(house.registry.close(Duration::from_secs(5)).await, 0);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(house.stands(&id), (Status::Killed, Some("gateway shut down".to_owned())));
        assert_eq!(*lock(&seen), [Status::Killed]);
        assert_eq!(house.kept(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn admission_and_retention_hold_and_nothing_is_kept_of_what_ended() {
        let house = House::new();
        for _ in 0..10 {
            house.start(Some(1_000));
        }
        assert!(matches!(house.try_start(None), Err(StartError::TooManyLive { limit: 10, .. })));
        sleep(Duration::from_secs(2)).await;
        for _ in 0..200 {
            let id = house.start(Some(1_000));
            house.update(&id, ended(End::Completed)).unwrap();
        }
        assert_eq!((house.registry.size(), house.kept()), ((1, 100), (0, 0)));
        drop(house.registry);
        assert_eq!(Arc::strong_count(&house.externals.shared), 2, "the timer's and this");
    }
}
