//! The registry by itself, through the library: every commit point and every rule, with a producer
//! that the test plays.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use tasklight::{
    AccessError, Disposal, End, Kill, KillError, Kind, Label, LaunchError, Launched, NewTask, Outcome, Producer,
    Registry, Scope, SessionId, StartError, Status, Stop, StopError, StopReason, TaskHandle, TaskId,
    clock::{Clock, UnixMillis},
    config::RegistryLimits,
};

/// A producer that does what the test says.
struct Scripted {
    handle: mpsc::Sender<TaskHandle>,
    on_stop: StopFn,
}

type StopFn = Box<dyn Fn(&StopReason) -> Result<(), StopError> + Send + Sync>;

struct OnStop(StopFn);

impl Stop for OnStop {
    fn stop(&self, reason: &StopReason) -> Result<(), StopError> {
        (self.0)(reason)
    }
}

impl Producer for Scripted {
    fn launch(self) -> Result<Launched, LaunchError> {
        let handle = self.handle;
        Ok(Launched::new(OnStop(self.on_stop), move |task| handle.send(task).unwrap()))
    }
}

struct Broken;

impl Producer for Broken {
    fn launch(self) -> Result<Launched, LaunchError> {
        Err(LaunchError::Field { field: "cwd", problem: "not there".into() })
    }
}

fn registry() -> Registry {
    Registry::new(Clock::manual(UnixMillis(1_000)), RegistryLimits::default())
}

fn session(name: &str) -> Scope {
    Scope::Session(SessionId::new(name).unwrap())
}

fn named(kind: &str) -> NewTask {
    NewTask { kind: Kind::new(kind).unwrap(), label: Label::new("work").unwrap() }
}

/// A producer that agrees to be stopped, and where its handle will be.
fn scripted() -> (Scripted, mpsc::Receiver<TaskHandle>) {
    stoppable(|_| Ok(()))
}

fn stoppable(
    on_stop: impl Fn(&StopReason) -> Result<(), StopError> + Send + Sync + 'static,
) -> (Scripted, mpsc::Receiver<TaskHandle>) {
    let (handle, handles) = mpsc::channel();
    (Scripted { handle, on_stop: Box::new(on_stop) }, handles)
}

fn start(registry: &Registry, scope: &Scope) -> TaskHandle {
    let (producer, handles) = scripted();
    registry.start(scope, named("bash"), producer).unwrap();
    handles.recv().unwrap()
}

fn completed() -> Outcome {
    Outcome::new(End::Completed)
}

fn ids(registry: &Registry, scope: &Scope) -> Vec<String> {
    registry.list(scope).iter().map(|task| task.id.to_string()).collect()
}

fn status(registry: &Registry, scope: &Scope, id: &TaskId) -> Status {
    registry.get(scope, id).unwrap().status
}

/// What the change feed said, in order.
type Changes = Arc<Mutex<Vec<Option<String>>>>;

fn watch(registry: &Registry) -> (Changes, tasklight::ListenerGuard) {
    let changes = Changes::default();
    let told = Arc::clone(&changes);
    let guard = registry.on_tasks_changed(move |owner| told.lock().unwrap().push(owner.map(ToString::to_string)));
    (changes, guard)
}

fn take(changes: &Changes) -> Vec<Option<String>> {
    std::mem::take(&mut changes.lock().unwrap())
}

#[test]
fn the_feed_fires_at_registration_stopping_and_settlement_with_the_owner() {
    let registry = registry();
    let (changes, _guard) = watch(&registry);
    let a = session("a");
    let task = start(&registry, &a);
    assert_eq!(take(&changes), [Some("a".into())], "registration");
    registry.kill(&a, task.id(), None).unwrap();
    assert_eq!(take(&changes), [Some("a".into())], "stopping");
    registry.kill(&a, task.id(), None).unwrap();
    assert_eq!(take(&changes), [], "asked again, nothing changed");
    task.settle(completed());
    assert_eq!(take(&changes), [Some("a".into())], "settlement");
    task.settle(completed());
    drop(task);
    assert_eq!(take(&changes), [], "settled already");
    start(&registry, &Scope::Unowned);
    assert_eq!(take(&changes), [None, None], "an unowned task changes every list");
}

#[tokio::test]
async fn the_feed_fires_when_a_disposal_removes_records_and_the_list_is_empty_by_then() {
    let registry = registry();
    let a = session("a");
    start(&registry, &a).settle(completed());
    let (lists, told) = mpsc::channel();
    let observer = registry.observer();
    let _guard = registry.on_tasks_changed(move |owner| {
        let _ = lists.send((owner.map(ToString::to_string), observer.list(owner).len()));
    });
    assert_eq!(registry.dispose_owner(a.session().unwrap(), Duration::ZERO).await, Disposal::Clean);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Some("a".into()), 0)]);
    assert_eq!(registry.size(), (0, 0));
    assert_eq!(registry.dispose_owner(a.session().unwrap(), Duration::ZERO).await, Disposal::Unknown);
    assert_eq!(told.try_iter().count(), 0, "nothing was there to remove");
}

#[test]
fn a_listener_reads_the_new_list_since_no_lock_is_held() {
    let registry = registry();
    let a = session("a");
    let (seen, list) = mpsc::channel();
    let (reader, scope) = (registry.clone(), a.clone());
    let _guard = registry.on_tasks_changed(move |_| seen.send(reader.list(&scope)[0].status).unwrap());
    let task = start(&registry, &a);
    task.settle(completed());
    assert_eq!(list.try_iter().collect::<Vec<_>>(), [Status::Running, Status::Completed]);
}

#[test]
fn a_panicking_listener_is_contained_and_the_others_still_run() {
    let registry = registry();
    let _first = registry.on_tasks_changed(|_| panic!("a listener's own fault"));
    let (changes, _second) = watch(&registry);
    let _done = registry.on_task_done(|_| panic!("another"));
    let (told, done) = mpsc::channel();
    let _also = registry.on_task_done(move |task| told.send(task.task.status).unwrap());
    start(&registry, &session("a")).settle(completed());
    assert_eq!(take(&changes).len(), 2);
    assert_eq!(done.try_iter().collect::<Vec<_>>(), [Status::Completed]);
}

#[test]
fn a_dropped_guard_unsubscribes() {
    let registry = registry();
    let (changes, guard) = watch(&registry);
    let (kept, _kept_guard) = watch(&registry);
    start(&registry, &session("a"));
    assert_eq!(take(&changes).len(), 2);
    drop(guard);
    start(&registry, &session("a"));
    assert_eq!(take(&changes), []);
    assert_eq!(take(&kept).len(), 4);
}

#[test]
fn dropping_the_registry_announces_nothing() {
    let registry = registry();
    let (changes, _guard) = watch(&registry);
    let task = start(&registry, &session("a"));
    take(&changes);
    drop(registry);
    task.settle(completed());
    assert_eq!(take(&changes), []);
}

#[test]
fn the_first_outcome_counts_and_the_done_feed_tells_it_once_after_the_change() {
    let registry = registry();
    let a = session("a");
    let order = Arc::new(Mutex::new(Vec::new()));
    let (changed, done) = (Arc::clone(&order), Arc::clone(&order));
    let _changed = registry.on_tasks_changed(move |_| changed.lock().unwrap().push("changed".to_owned()));
    let _done = registry.on_task_done(move |told| {
        let detail = told.task.detail.clone().unwrap();
        done.lock().unwrap().push(format!("done {} {} {detail}", told.scope, told.task.status));
    });
    let task = start(&registry, &a);
    task.settle(Outcome::new(End::Failed).with_detail("exit code: 1"));
    task.settle(completed());
    assert_eq!(*order.lock().unwrap(), ["changed", "changed", "done a failed exit code: 1"]);
    assert_eq!(status(&registry, &a, task.id()), Status::Failed);
}

#[test]
fn a_producer_that_goes_away_or_panics_settles_its_task_failed_and_says_so() {
    let registry = registry();
    let a = session("a");
    let gone = start(&registry, &a);
    let id = gone.id().clone();
    drop(gone);
    let task = registry.get(&a, &id).unwrap();
    assert_eq!(task.status, Status::Failed);
    assert_eq!(task.detail.as_deref(), Some("its producer went away without saying how it ended"));

    let task = start(&registry, &a);
    let id = task.id().clone();
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _task = task;
        panic!("a producer's own fault");
    }));
    assert!(panicked.is_err());
    let task = registry.get(&a, &id).unwrap();
    assert_eq!((task.status, task.detail.as_deref()), (Status::Failed, Some("its producer panicked")));
}

#[test]
fn a_start_that_fails_registers_nothing_uses_no_id_and_opens_no_session() {
    let registry = registry();
    let (changes, _guard) = watch(&registry);
    let error = registry.start(&session("a"), named("bash"), Broken).unwrap_err();
    assert!(matches!(error, StartError::Launch(LaunchError::Field { field: "cwd", .. })));
    assert_eq!(registry.size(), (0, 0));
    assert_eq!(take(&changes), []);
    assert_eq!(start(&registry, &session("a")).id().to_string(), "bash-1");
}

#[test]
fn ids_count_per_kind_over_all_owners() {
    let registry = registry();
    let start = |scope: &Scope, kind| {
        let (producer, _handles) = scripted();
        let task = std::panic::catch_unwind(AssertUnwindSafe(|| registry.start(scope, named(kind), producer)));
        task.unwrap().unwrap().id.to_string()
    };
    let (a, b) = (session("a"), session("b"));
    let all = [start(&a, "bash"), start(&b, "bash"), start(&a, "sub-agent"), start(&Scope::Unowned, "bash")];
    assert_eq!(all, ["bash-1", "bash-2", "sub-agent-1", "bash-3"]);
}

#[test]
fn a_list_is_the_callers_own_and_the_unowned_in_the_order_of_registration() {
    let registry = registry();
    let (a, b) = (session("a"), session("b"));
    let _tasks: Vec<_> =
        [&a, &Scope::Unowned, &b, &a, &Scope::Unowned].iter().map(|scope| start(&registry, scope)).collect();
    assert_eq!(ids(&registry, &a), ["bash-1", "bash-2", "bash-4", "bash-5"]);
    assert_eq!(ids(&registry, &b), ["bash-2", "bash-3", "bash-5"]);
    assert_eq!(ids(&registry, &session("nobody")), ["bash-2", "bash-5"]);
    assert_eq!(ids(&registry, &Scope::Unowned), ["bash-2", "bash-5"]);
    assert_eq!(registry.size(), (2, 5), "looking opened no session");
}

#[tokio::test]
async fn a_task_of_another_session_is_told_from_one_that_is_not_there() {
    let registry = registry();
    let (a, b) = (session("a"), session("b"));
    let task = start(&registry, &a);
    let (id, missing) = (task.id().clone(), "bash-9".parse::<TaskId>().unwrap());
    for caller in [&b, &Scope::Unowned] {
        let denied = AccessError::AnotherSession(id.clone());
        assert_eq!(registry.get(caller, &id), Err(denied.clone()));
        assert_eq!(registry.read(caller, &id).unwrap_err(), denied);
        assert_eq!(registry.wait(caller, &id, Duration::ZERO).await.unwrap_err(), denied);
        assert!(matches!(registry.kill(caller, &id, None), Err(KillError::Access(error)) if error == denied));
        assert_eq!(denied.to_string(), "task bash-1 belongs to another session");
    }
    assert_eq!(registry.get(&a, &missing), Err(AccessError::UnknownTask(missing.clone())));
    assert_eq!(status(&registry, &a, &id), Status::Running);
    let unowned = start(&registry, &Scope::Unowned);
    assert!(matches!(registry.kill(&b, unowned.id(), None), Ok(Kill::Asked(_))), "unowned is everybody's");
}

#[test]
fn admission_counts_running_and_stopping_tasks_of_each_owner_apart() {
    let registry = registry();
    let (a, b) = (session("a"), session("b"));
    let mut tasks: Vec<_> = (0..10).map(|_| start(&registry, &a)).collect();
    registry.kill(&a, tasks[0].id(), None).unwrap();
    let refused = |scope: &Scope| {
        let (producer, handles) = scripted();
        let error = registry.start(scope, named("bash"), producer).unwrap_err();
        assert!(matches!(error, StartError::TooManyLive { limit: 10, .. }));
        assert!(handles.try_recv().is_err(), "the producer did not run");
        error.to_string()
    };
    assert_eq!(refused(&a), "a has 10 live tasks, which is the limit; kill one or wait until one ends");
    let _others: Vec<_> = (0..10).map(|_| start(&registry, &Scope::Unowned)).chain([start(&registry, &b)]).collect();
    refused(&Scope::Unowned);
    tasks.pop().unwrap().settle(completed());
    start(&registry, &a);
}

#[test]
fn admission_holds_while_producers_start_side_by_side() {
    struct Slow(mpsc::Sender<()>, Arc<std::sync::Barrier>);
    impl Producer for Slow {
        fn launch(self) -> Result<Launched, LaunchError> {
            self.0.send(()).unwrap();
            self.1.wait();
            Ok(Launched::new(OnStop(Box::new(|_| Ok(()))), std::mem::forget))
        }
    }
    let registry = registry();
    let a = session("a");
    let (launching, launched) = mpsc::channel();
    let all = Arc::new(std::sync::Barrier::new(11));
    std::thread::scope(|threads| {
        for _ in 0..10 {
            let producer = Slow(launching.clone(), Arc::clone(&all));
            threads.spawn(|| registry.start(&a, named("bash"), producer).unwrap());
        }
        assert_eq!(launched.iter().take(10).count(), 10);
        assert_eq!(registry.list(&a), [], "ten are launching, and none is registered");
        let eleventh = registry.start(&a, named("bash"), Broken);
        assert!(matches!(eleventh, Err(StartError::TooManyLive { .. })));
        all.wait();
    });
    assert_eq!(registry.list(&a).len(), 10);
}

#[test]
fn a_kill_asks_the_producer_first_and_its_refusal_changes_nothing() {
    let registry = registry();
    let a = session("a");
    let (changes, _guard) = watch(&registry);
    let (producer, handles) = stoppable(|_| Err(StopError("it does not listen".into())));
    registry.start(&a, named("bash"), producer).unwrap();
    let task = handles.recv().unwrap();
    take(&changes);
    let error = registry.kill(&a, task.id(), None).unwrap_err();
    assert_eq!(error.to_string(), "the task could not be asked to end: it does not listen");
    assert_eq!(status(&registry, &a, task.id()), Status::Running);
    assert_eq!(take(&changes), []);
}

#[test]
fn a_kill_of_a_stopping_task_asks_again_and_of_an_ended_one_says_so() {
    let registry = registry();
    let a = session("a");
    let (asked, reasons) = mpsc::channel();
    let (producer, handles) = stoppable(move |reason| {
        asked.send(reason.clone()).unwrap();
        Ok(())
    });
    registry.start(&a, named("bash"), producer).unwrap();
    let task = handles.recv().unwrap();
    for why in [Some("slow".to_owned()), None] {
        let Kill::Asked(view) = registry.kill(&a, task.id(), why).unwrap() else { panic!("it is live") };
        assert_eq!(view.status, Status::Stopping);
    }
    let reasons: Vec<_> = reasons.try_iter().collect();
    assert_eq!(reasons, [StopReason::Requested(Some("slow".into())), StopReason::Requested(None)]);
    task.settle(Outcome::new(End::Killed));
    let Kill::AlreadyFinished(view) = registry.kill(&a, task.id(), None).unwrap() else { panic!("it has ended") };
    assert_eq!(view.status, Status::Killed);
}

#[test]
fn a_task_that_settles_while_it_is_being_killed_does_not_go_back_to_stopping() {
    let registry = registry();
    let a = session("a");
    let slot: Arc<Mutex<Option<TaskHandle>>> = Arc::default();
    let settles = Arc::clone(&slot);
    // The producer ends its task within the very call that asks for it.
    let (producer, handles) = stoppable(move |_| {
        settles.lock().unwrap().as_ref().unwrap().settle(Outcome::new(End::Killed).with_detail("signal: SIGTERM"));
        Ok(())
    });
    registry.start(&a, named("bash"), producer).unwrap();
    let task = handles.recv().unwrap();
    let id = task.id().clone();
    *slot.lock().unwrap() = Some(task);
    let (changes, _guard) = watch(&registry);
    let Kill::Asked(view) = registry.kill(&a, &id, None).unwrap() else { panic!("it was live") };
    assert_eq!((view.status, status(&registry, &a, &id)), (Status::Killed, Status::Killed));
    assert_eq!(take(&changes), [Some("a".into())], "one change: the settlement");
}

#[test]
fn kills_and_settlements_at_once_never_leave_a_task_stopping() {
    let registry = registry();
    let a = session("a");
    for _ in 0..2_000 {
        let task = start(&registry, &a);
        let id = task.id().clone();
        std::thread::scope(|threads| {
            threads.spawn(|| registry.kill(&a, &id, None).unwrap());
            threads.spawn(move || task.settle(completed()));
        });
        assert_eq!(status(&registry, &a, &id), Status::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disposal_asks_awaits_and_then_removes() {
    let registry = registry();
    let a = session("a");
    let (asked, mut was_asked) = tokio::sync::mpsc::channel(1);
    let (producer, handles) = stoppable(move |reason| {
        asked.try_send(reason.clone()).unwrap();
        Ok(())
    });
    registry.start(&a, named("bash"), producer).unwrap();
    let task = handles.recv().unwrap();
    start(&registry, &session("b"));
    let disposal = tokio::spawn({
        let (registry, session) = (registry.clone(), a.session().unwrap().clone());
        async move { registry.dispose_owner(&session, Duration::from_secs(5)).await }
    });
    assert_eq!(was_asked.recv().await.unwrap(), StopReason::OwnerDisposed);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(status(&registry, &a, task.id()), Status::Stopping);
    let (producer, _handles) = scripted();
    assert!(matches!(registry.start(&a, named("bash"), producer), Err(StartError::OwnerDisposed)));
    task.settle(Outcome::new(End::Killed));
    assert_eq!(disposal.await.unwrap(), Disposal::Clean);
    assert_eq!(registry.list(&a), []);
    assert_eq!(registry.list(&session("b")).len(), 1, "others keep theirs");
    start(&registry, &a);
}

#[tokio::test(start_paused = true)]
async fn a_disposal_is_bounded_and_a_late_outcome_is_ignored() {
    let registry = registry();
    let a = session("a");
    let task = start(&registry, &a);
    let before = tokio::time::Instant::now();
    assert_eq!(registry.dispose_owner(a.session().unwrap(), Duration::from_secs(5)).await, Disposal::Abandoned(1));
    assert_eq!(before.elapsed(), Duration::from_secs(5));
    assert_eq!(registry.size(), (0, 0));
    let (changes, _guard) = watch(&registry);
    task.settle(completed());
    drop(task);
    assert_eq!(take(&changes), []);
}

#[tokio::test]
async fn a_disposal_whose_caller_leaves_removes_at_once() {
    let registry = registry();
    let a = session("a");
    let _task = start(&registry, &a);
    let disposal = registry.dispose_owner(a.session().unwrap(), Duration::from_mins(1));
    assert!(tokio::time::timeout(Duration::from_millis(1), disposal).await.is_err());
    assert_eq!(registry.size(), (0, 0));
    start(&registry, &a);
}

#[tokio::test(start_paused = true)]
async fn disposals_at_once_all_return_when_the_owner_is_gone_and_not_before() {
    let registry = registry();
    let a = session("a");
    let task = start(&registry, &a);
    let session = a.session().unwrap();
    let settle = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        task.settle(Outcome::new(End::Killed));
    };
    let bound = Duration::from_secs(5);
    let dispose = || async {
        let disposal = registry.dispose_owner(session, bound).await;
        assert_eq!((disposal, registry.size()), (Disposal::Clean, (0, 0)));
    };
    tokio::join!(dispose(), dispose(), dispose(), settle);
    assert_eq!(registry.size(), (0, 0));
}

#[tokio::test]
async fn a_stale_handle_to_a_disposed_owner_can_start_nothing() {
    let registry = registry();
    let name = SessionId::new("a").unwrap();
    let stale = registry.open(name.clone());
    assert_eq!(registry.size(), (1, 0));
    registry.dispose_owner(&name, Duration::ZERO).await;
    let starts = |owner: &tasklight::Owner| {
        let (producer, handles) = scripted();
        let result = owner.start(named("bash"), producer);
        assert_eq!(result.is_ok(), handles.try_recv().is_ok(), "the producer runs exactly when it is admitted");
        result.map(|_| ())
    };
    assert!(matches!(starts(&stale), Err(StartError::OwnerDisposed)));
    let fresh = registry.open(name);
    assert!(starts(&fresh).is_ok());
    assert!(matches!(starts(&stale), Err(StartError::OwnerDisposed)), "nor when the session is open again");
}

#[tokio::test]
async fn an_owner_disposed_while_a_producer_launches_gets_no_task_and_the_work_is_dropped() {
    struct DisposesMeanwhile(Registry, Arc<()>);
    impl Producer for DisposesMeanwhile {
        fn launch(self) -> Result<Launched, LaunchError> {
            let registry = self.0;
            let name = SessionId::new("a").unwrap();
            let mut disposal = std::pin::pin!(registry.dispose_owner(&name, Duration::ZERO));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::future::Future::poll(disposal.as_mut(), &mut context).is_ready());
            let work = self.1;
            Ok(Launched::new(OnStop(Box::new(|_| Ok(()))), move |_| drop(work)))
        }
    }
    let registry = registry();
    let work = Arc::new(());
    let owner = registry.open(SessionId::new("a").unwrap());
    let started = owner.start(named("bash"), DisposesMeanwhile(registry.clone(), Arc::clone(&work)));
    assert!(matches!(started, Err(StartError::OwnerDisposed)));
    assert_eq!(Arc::strong_count(&work), 1, "what had launched was dropped");
    assert_eq!(registry.size(), (0, 0));
}

#[test]
fn the_oldest_settled_go_first_in_the_commit_that_settles_one_more() {
    let registry = registry();
    let a = session("a");
    let long = start(&registry, &a);
    let handles: Vec<_> = (0..2).map(|_| start(&registry, &a)).collect();
    // Settled in another order than started: the order of settlement counts.
    handles[1].settle(completed());
    handles[0].settle(completed());
    for _ in 0..98 {
        start(&registry, &a).settle(completed());
    }
    assert_eq!(registry.list(&a).len(), 101);
    let (sizes, seen) = mpsc::channel();
    let observer = registry.observer();
    let one_more = start(&registry, &a);
    let _guard = registry.on_tasks_changed(move |owner| sizes.send(observer.list(owner).len()).unwrap());
    one_more.settle(completed());
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [101], "one change: settled, and the oldest gone");
    assert!(matches!(registry.get(&a, handles[1].id()), Err(AccessError::UnknownTask(_))));
    assert!(registry.get(&a, handles[0].id()).is_ok());
    assert_eq!(status(&registry, &a, long.id()), Status::Running, "live tasks do not count");
}

#[test]
fn a_read_takes_the_one_cursor_forward_and_says_what_fell_out() {
    let mut limits = RegistryLimits::default();
    limits.output_tail = 8;
    let registry = Registry::new(Clock::system(), limits);
    let a = session("a");
    let task = start(&registry, &a);
    let read = || registry.read(&a, task.id()).map(|reading| (reading.dropped, reading.text)).unwrap();
    assert_eq!(read(), (0, String::new()));
    task.append(b"one\n");
    assert_eq!(read(), (0, "one\n".into()));
    assert_eq!(read(), (0, String::new()));
    task.append("0123456789é".as_bytes());
    assert_eq!(read(), (4, "456789é".into()));
    task.append(b"end");
    task.settle(completed());
    assert_eq!(read(), (0, "end".into()));
}

/// Whether the done feed calls the only task of `act` reported.
async fn reported<F: Future<Output = ()>>(act: impl FnOnce(Registry, Scope, TaskHandle) -> F) -> bool {
    let registry = registry();
    let a = session("a");
    let (told, done) = mpsc::channel();
    let _guard = registry.on_task_done(move |task| told.send(task.reported).unwrap());
    let task = start(&registry, &a);
    act(registry.clone(), a, task).await;
    done.try_recv().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_present_at_settlement_counts_as_told_and_one_that_left_does_not() {
    let waits = |registry: Registry, a: Scope, task: TaskHandle| async move {
        let id = task.id().clone();
        let settle = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            task.settle(completed());
        };
        let (waited, ()) = tokio::join!(registry.wait(&a, &id, Duration::from_mins(1)), settle);
        assert_eq!(waited.unwrap().status, Status::Completed);
    };
    let leaves = |registry: Registry, a: Scope, task: TaskHandle| async move {
        let live = registry.wait(&a, task.id(), Duration::from_secs(1)).await.unwrap();
        assert_eq!(live.status, Status::Running, "the live record at the timeout");
        let dropped = tokio::time::timeout(Duration::from_secs(1), registry.wait(&a, task.id(), Duration::MAX));
        assert!(dropped.await.is_err());
        task.settle(completed());
    };
    assert!(reported(waits).await);
    assert!(!reported(leaves).await);
}

#[tokio::test(start_paused = true)]
async fn a_held_read_returns_at_output_at_the_end_or_at_the_timeout() {
    let registry = registry();
    let a = session("a");
    let task = start(&registry, &a);
    let minute = Duration::from_mins(1);
    let second = || tokio::time::sleep(Duration::from_secs(1));
    let (read, ()) = tokio::join!(registry.read_within(&a, task.id(), minute), async {
        second().await;
        task.append(b"x");
    });
    assert_eq!(read.unwrap().text, "x");
    let read = registry.read_within(&a, task.id(), Duration::from_secs(1)).await.unwrap();
    assert_eq!((read.text.as_str(), read.task.status), ("", Status::Running));
    let (read, ()) = tokio::join!(registry.read_within(&a, task.id(), minute), async {
        second().await;
        task.settle(completed());
    });
    assert_eq!(read.unwrap().task.status, Status::Completed);
    let read = registry.read_within(&a, task.id(), minute).await.unwrap();
    assert_eq!(read.text, "", "nothing more can come, so nothing is waited for");
}

#[tokio::test(start_paused = true)]
async fn a_closed_registry_starts_nothing_asks_all_and_keeps_their_ends() {
    let registry = registry();
    let (a, b) = (session("a"), session("b"));
    let tasks = [start(&registry, &a), start(&registry, &b), start(&registry, &Scope::Unowned)];
    let settle = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tasks[0].settle(Outcome::new(End::Killed));
        tasks[1].settle(Outcome::new(End::Killed));
    };
    let (not_ended, ()) = tokio::join!(registry.close(Duration::from_secs(3)), settle);
    assert_eq!(not_ended, 1);
    assert_eq!(status(&registry, &a, tasks[0].id()), Status::Killed);
    assert_eq!(status(&registry, &a, tasks[2].id()), Status::Stopping);
    let (producer, _handles) = scripted();
    assert!(matches!(registry.start(&a, named("bash"), producer), Err(StartError::Closed)));
}
