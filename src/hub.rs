//! One slot for each watched session: what changed there, and the newest list, encoded once.
//!
//! Promises:
//! - Looking creates nothing: a slot exists while somebody subscribes to it, and no longer.
//! - A list is encoded at most once a change, and only where somebody watches; every subscriber
//!   shares the bytes. Of a list that changed, only the rows that changed are written anew.
//! - A subscriber that is late skips what it missed, and always comes to the newest list.
//! - Without a registry there are no tasks: streams stay silent but for signs of life.
//!
//! Never here: sockets and HTTP, and anything of the registry but list and change feeds.

mod bell;
mod mux;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval},
};

pub(crate) use self::{
    bell::Bell,
    mux::{MAX_SESSIONS, Mux, MuxNews},
};
use self::{bell::Cord, mux::Inboxes};
use crate::{
    clock::{Clock, UnixMillis},
    id::SessionId,
    registry::{ListenerGuard, TaskObserver},
    sse::{ChunkedEvent, EventId},
    sync::lock,
    task::row::{self, Row},
};

/// A frame that is older than this when it is sent gets the time of now.
const STALE_MS: u64 = 1_000;

/// Where streams come from.
pub struct Hub {
    shared: Arc<Shared>,
    _feeds: Option<[ListenerGuard; 2]>,
}

struct Shared {
    observer: Option<TaskObserver>,
    clock: Clock,
    heartbeat: Duration,
    slots: Mutex<HashMap<SessionId, Watched>>,
    /// A sign of life for all that has no slot of its own, at every heartbeat.
    beats: watch::Sender<UnixMillis>,
    /// Lists encoded.
    encoded: AtomicU64,
}

/// A slot, and how many subscribe to it: counted under the lock by which slots come and go.
struct Watched {
    slot: Arc<Slot>,
    subscribers: usize,
}

/// One watched session.
struct Slot {
    session: SessionId,
    signal: Mutex<Signal>,
    newest: Mutex<Newest>,
    /// For subscribers that wait one by one.
    news: Notify,
    /// Those who watch this session among others.
    inboxes: Inboxes,
}

/// What has happened in a slot, and who is told so.
#[derive(Default)]
struct Signal {
    pulse: Pulse,
    /// Rung for whoever serves many slots at once.
    cord: Option<Cord>,
}

/// What has happened in a slot, in numbers that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pulse {
    /// Changes told by the registry.
    revision: u64,
    /// Signs of life owed after silence, and when the last was owed.
    beats: u64,
    beat_at: Option<UnixMillis>,
}

/// The newest list as it was read.
struct Newest {
    /// The revision before which the list was read; none before the first read.
    revision: Option<u64>,
    rows: Vec<Arc<Row>>,
    frame: Frame,
    /// When this slot last had something to say.
    spoke: Instant,
}

/// One list, encoded, shared by all who get it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// Counts the lists of a slot that differ, from 1; 0 is the empty list before the first.
    version: u64,
    stamp: UnixMillis,
    event: ChunkedEvent,
}

impl Frame {
    fn new(version: u64, rows: &[Arc<Row>], stamp: UnixMillis) -> Self {
        let id = Self::id(rows.is_empty(), stamp);
        let event = ChunkedEvent::new(id, row::list_length(rows), |json| row::write_list(rows, json));
        Self { version, stamp, event }
    }

    fn id(is_empty: bool, stamp: UnixMillis) -> EventId<'static> {
        if is_empty { EventId::Reset } else { EventId::Stamp(stamp) }
    }

    /// Counts the lists of a slot that differ; a later one has a higher version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether the list has no task.
    pub(crate) fn is_empty(&self) -> bool {
        self.json() == b"[]"
    }

    /// The server's clock when the list was encoded.
    pub(crate) fn stamp(&self) -> UnixMillis {
        self.stamp
    }

    /// The list as JSON.
    pub(crate) fn json(&self) -> &[u8] {
        self.event.chunk.get(self.event.data.clone()).unwrap_or_default()
    }

    /// The event framed as one chunk, for HTTP/1.1.
    pub(crate) fn chunk(&self) -> Bytes {
        self.event.chunk.clone()
    }

    /// The event as it is, for HTTP/1.0.
    pub(crate) fn event(&self) -> Bytes {
        self.event.chunk.slice(self.event.event.clone())
    }

    /// Whether it may be sent at `now` as it is, to a reader whose newest id is `after`: not when it waited,
    /// and not when it was overtaken.
    pub(crate) fn is_timely(&self, now: UnixMillis, after: UnixMillis) -> bool {
        now.0.saturating_sub(self.stamp.0) < STALE_MS && self.stamp >= after
    }

    /// The same list with the time of now: for a reader who gets it late, since a client takes the
    /// stamp for the time of sending.
    pub(crate) fn restamped(&self, now: UnixMillis) -> Self {
        let (id, json) = (Self::id(self.is_empty(), now), self.json());
        let event = ChunkedEvent::new(id, json.len(), |copy| copy.extend_from_slice(json));
        Self { version: self.version, stamp: now, event }
    }
}

/// What a subscriber learns next.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// The list is another one now.
    List(Frame),
    /// Nothing changed for a while; the server's clock when that was noticed.
    Beat(UnixMillis),
}

impl Hub {
    /// A hub of that registry's lists, or of none; `heartbeat` is how long a stream stays silent.
    #[must_use]
    pub fn new(observer: Option<TaskObserver>, clock: Clock, heartbeat: Duration) -> Self {
        let shared = Arc::new(Shared {
            beats: watch::Sender::new(clock.now()),
            observer,
            clock,
            heartbeat,
            slots: Mutex::default(),
            encoded: AtomicU64::new(0),
        });
        let feeds = shared.observer.as_ref().map(|observer| {
            // Weak: the registry keeps these listeners, and the hub keeps the registry.
            let (hub, same_hub) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
            let changed = observer.on_tasks_changed(move |owner| {
                if let Some(hub) = hub.upgrade() {
                    hub.changed(owner);
                }
            });
            let removed = observer.on_session_removed(move |session| {
                if let Some(hub) = same_hub.upgrade() {
                    hub.removed(session);
                }
            });
            [changed, removed]
        });
        Self { shared, _feeds: feeds }
    }

    /// Subscribes to a session's list, known or not.
    pub(crate) fn subscribe(&self, session: SessionId) -> Subscription {
        let mut slots = lock(&self.shared.slots);
        let watched = slots
            .entry(session)
            .or_insert_with_key(|session| Watched { slot: Arc::new(Slot::new(session.clone())), subscribers: 0 });
        watched.subscribers += 1;
        let slot = Arc::clone(&watched.slot);
        drop(slots);
        let seen = lock(&slot.signal).pulse;
        Subscription { hub: Arc::clone(&self.shared), slot, seen, version: 0 }
    }

    /// A session's list as JSON, once.
    pub(crate) fn list(&self, session: &SessionId) -> Bytes {
        let rows = self.shared.rows(session);
        let mut json = Vec::with_capacity(row::list_length(&rows));
        row::write_list(&rows, &mut json);
        json.into()
    }

    /// Signs of life, one each heartbeat, for a stream of other things than one session's list.
    pub(crate) fn beats(&self) -> Beats {
        Beats { clock: self.shared.clock.clone(), beats: self.shared.beats.subscribe() }
    }

    /// How many lists were encoded so far.
    #[must_use]
    pub fn encoded(&self) -> u64 {
        self.shared.encoded.load(Ordering::Relaxed)
    }

    /// How many sessions are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        lock(&self.shared.slots).len()
    }

    /// Beats for silent slots, for as long as it is polled: the one ticker of all streams.
    pub async fn beat(&self) -> std::convert::Infallible {
        let mut tick = interval((self.shared.heartbeat / 15).max(Duration::from_millis(1)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat_at = Instant::now() + self.shared.heartbeat;
        loop {
            let now = tick.tick().await;
            if now >= beat_at {
                beat_at = now + self.shared.heartbeat;
                self.shared.beats.send_replace(self.shared.clock.now());
            }
            let slots: Vec<_> = lock(&self.shared.slots).values().map(Watched::slot).collect();
            for slot in slots {
                slot.beat_if_silent(now, self.shared.heartbeat, self.shared.clock.now());
            }
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("watched", &self.watched()).finish()
    }
}

impl Shared {
    fn changed(&self, owner: Option<&SessionId>) {
        let Some(session) = owner else {
            // An unowned task: every session's list changed.
            let slots: Vec<_> = lock(&self.slots).values().map(Watched::slot).collect();
            return slots.iter().for_each(|slot| slot.changed());
        };
        let slot = lock(&self.slots).get(session).map(Watched::slot);
        if let Some(slot) = slot {
            slot.changed();
        }
    }

    fn removed(&self, session: &SessionId) {
        let slot = lock(&self.slots).get(session).map(Watched::slot);
        if let Some(slot) = slot {
            // First of all: whoever learns of the removal reads the list anew.
            slot.touch();
            slot.inboxes.removed();
        }
    }

    fn rows(&self, session: &SessionId) -> Vec<Arc<Row>> {
        self.observer.as_ref().map(|observer| observer.rows(Some(session))).unwrap_or_default()
    }
}

impl Watched {
    fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.slot)
    }
}

impl Slot {
    fn new(session: SessionId) -> Self {
        let newest = Newest {
            revision: None,
            rows: Vec::new(),
            frame: Frame::new(0, &[], UnixMillis(0)),
            spoke: Instant::now(),
        };
        Self {
            session,
            signal: Mutex::default(),
            newest: Mutex::new(newest),
            news: Notify::new(),
            inboxes: Inboxes::default(),
        }
    }

    fn changed(&self) {
        self.touch();
        self.inboxes.changed();
    }

    fn touch(&self) {
        self.tell(|pulse| pulse.revision += 1);
    }

    fn tell(&self, what: impl FnOnce(&mut Pulse)) {
        let mut signal = lock(&self.signal);
        what(&mut signal.pulse);
        let woken = signal.cord.as_mut().and_then(Cord::pull);
        drop(signal);
        if let Some(woken) = woken {
            woken.wake();
        }
        self.news.notify_waiters();
    }

    /// The list as of `revision` or later. Read after the revision was taken, so a change that
    /// comes between is either in the list, or has a later revision that encodes again.
    fn frame(&self, revision: u64, hub: &Shared) -> Frame {
        let mut newest = lock(&self.newest);
        if newest.revision.is_none_or(|read| read < revision) {
            let rows = hub.rows(&self.session);
            if rows != newest.rows {
                newest.frame = Frame::new(newest.frame.version + 1, &rows, hub.clock.now());
                newest.rows = rows;
                newest.spoke = Instant::now();
                hub.encoded.fetch_add(1, Ordering::Relaxed);
            }
            newest.revision = Some(revision);
        }
        newest.frame.clone()
    }

    fn beat_if_silent(&self, now: Instant, heartbeat: Duration, stamp: UnixMillis) {
        let mut newest = lock(&self.newest);
        if now.saturating_duration_since(newest.spoke) >= heartbeat {
            newest.spoke = now;
            drop(newest);
            self.tell(|pulse| {
                pulse.beats += 1;
                pulse.beat_at = Some(stamp);
            });
        }
    }
}

/// One subscriber of one session. The last one to leave takes the slot away.
pub(crate) struct Subscription {
    hub: Arc<Shared>,
    slot: Arc<Slot>,
    seen: Pulse,
    /// The list that this subscriber had last; 0 is the empty one that goes without saying.
    version: u64,
}

impl Subscription {
    /// The session that is watched.
    pub(crate) fn session(&self) -> &SessionId {
        &self.slot.session
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> UnixMillis {
        self.hub.clock.now()
    }

    /// The list as it is now. What comes from [`Subscription::next`] is newer.
    pub(crate) fn baseline(&mut self) -> Frame {
        self.seen = lock(&self.slot.signal).pulse;
        let frame = self.slot.frame(self.seen.revision, &self.hub);
        self.version = frame.version;
        frame
    }

    /// The list as it is now, if it is another one than this subscriber had last.
    fn newer(&mut self) -> Option<Frame> {
        let before = self.version;
        let frame = self.baseline();
        (frame.version != before).then_some(frame)
    }

    /// Takes it that the subscriber has no rows any more.
    fn forget(&mut self) {
        self.version = 0;
    }

    /// The list at the end of all, unless this subscriber has it. What was committed by now is in
    /// it, even where the change feed has not told of it yet; nothing newer follows.
    pub(crate) fn last(&mut self) -> Option<Frame> {
        let frame = self.slot.frame(u64::MAX, &self.hub);
        let known = std::mem::replace(&mut self.version, frame.version);
        (frame.version != known).then_some(frame)
    }

    /// The version of the list that this subscriber had last; 0 is the empty one that goes without saying.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The next news. Safe to drop: what was not returned is not lost.
    pub(crate) async fn next(&mut self) -> News {
        let slot = Arc::clone(&self.slot);
        loop {
            // Made before it is looked, so that whatever comes later is told.
            let more = slot.news.notified();
            if let Some(news) = self.try_next() {
                return news;
            }
            more.await;
        }
    }

    fn try_next(&mut self) -> Option<News> {
        let pulse = lock(&self.slot.signal).pulse;
        self.news_of(pulse)
    }

    /// What is new to this subscriber once that has happened.
    fn news_of(&mut self, pulse: Pulse) -> Option<News> {
        let seen = std::mem::replace(&mut self.seen, pulse);
        if pulse.revision != seen.revision {
            let frame = self.slot.frame(pulse.revision, &self.hub);
            if frame.version != self.version {
                self.version = frame.version;
                return Some(News::List(frame));
            }
        }
        if pulse.beats == seen.beats { None } else { pulse.beat_at.map(News::Beat) }
    }
}

/// See [`Hub::beats`].
pub(crate) struct Beats {
    clock: Clock,
    beats: watch::Receiver<UnixMillis>,
}

impl Beats {
    /// The server's clock.
    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// The next sign of life: the server's clock then. Safe to drop.
    pub(crate) async fn next(&mut self) -> UnixMillis {
        if self.beats.changed().await.is_err() {
            // The hub is gone, and nothing beats any more.
            std::future::pending::<()>().await;
        }
        *self.beats.borrow_and_update()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut slots = lock(&self.hub.slots);
        let Some(watched) = slots.get_mut(&self.slot.session) else { return };
        watched.subscribers -= 1;
        if watched.subscribers == 0 {
            slots.remove(&self.slot.session);
            if slots.is_empty() {
                slots.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        config::RegistryLimits,
        id::{Kind, Scope},
        registry::{LaunchError, Launched, NewTask, Producer, Registry, Stop, StopError, StopReason, TaskHandle},
        task::{End, Label, Outcome},
    };

    const HEARTBEAT: Duration = Duration::from_secs(15);

    struct Idle(std::sync::mpsc::Sender<TaskHandle>);

    impl Stop for Idle {
        fn stop(&self, _: &StopReason) -> Result<(), StopError> {
            Ok(())
        }
    }

    impl Producer for Idle {
        fn launch(self) -> Result<Launched, LaunchError> {
            let handles = self.0.clone();
            Ok(Launched::new(self, move |task| handles.send(task).unwrap()))
        }
    }

    fn started(registry: &Registry, scope: &Scope) -> TaskHandle {
        let (sender, handles) = std::sync::mpsc::channel();
        let task = NewTask { kind: Kind::bash(), label: Label::new("work").unwrap() };
        registry.start(scope, task, Idle(sender)).unwrap();
        handles.recv().unwrap()
    }

    fn watched() -> (Registry, Hub, Clock) {
        let clock = Clock::manual(UnixMillis(1_000));
        let registry = Registry::new(clock.clone(), RegistryLimits::default());
        let hub = Hub::new(Some(registry.observer()), clock.clone(), HEARTBEAT);
        (registry, hub, clock)
    }

    fn session(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    fn ready(subscription: &mut Subscription) -> Option<News> {
        match pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(news) => Some(news),
            Poll::Pending => None,
        }
    }

    fn rung(bell: &Bell) -> Vec<usize> {
        let mut slots = Vec::new();
        let _ = bell.poll_rung(&mut Context::from_waker(Waker::noop()), &mut slots);
        slots
    }

    #[test]
    fn a_bell_names_each_slot_that_has_news_once() {
        let (registry, hub, _) = watched();
        let bell = Arc::new(Bell::default());
        let mut subscribers = [hub.subscribe(session("a")), hub.subscribe(session("b"))];
        for (key, subscriber) in (7..).zip(&subscribers) {
            subscriber.ring(&bell, key);
        }
        assert_eq!(subscribers.each_ref().map(|subscriber| subscriber.rings(&bell)), [Some(7), Some(8)]);
        let a = Scope::Session(session("a"));
        for _ in 0..3 {
            started(&registry, &a).settle(Outcome::new(End::Completed));
        }
        assert_eq!(rung(&bell), [7]);
        assert!(matches!(subscribers[0].answer(), Some(News::List(_))));
        assert!(subscribers[0].answer().is_none() && rung(&bell).is_empty());
        let _unowned = started(&registry, &Scope::Unowned);
        let mut both = rung(&bell);
        both.sort_unstable();
        assert_eq!(both, [7, 8]);
    }

    #[test]
    fn a_slot_rings_no_more_for_whoever_let_go() {
        let (registry, hub, _) = watched();
        let bell = Arc::new(Bell::default());
        let (kept, gone) = (hub.subscribe(session("a")), hub.subscribe(session("a")));
        gone.ring(&bell, 7);
        gone.let_go();
        started(&registry, &Scope::Session(session("a"))).settle(Outcome::new(End::Completed));
        assert!(rung(&bell).is_empty() && kept.rings(&bell).is_none());
    }

    fn event(news: Option<News>) -> String {
        let Some(News::List(frame)) = news else { panic!("{news:?} is not a list") };
        String::from_utf8(frame.event().to_vec()).unwrap()
    }

    #[test]
    fn the_last_subscriber_of_a_session_takes_its_slot_away() {
        let (registry, hub, _) = watched();
        let mut all: Vec<_> = (0..10_000).map(|n| hub.subscribe(session(&format!("s{n}")))).collect();
        all.extend((0..10_000).map(|n| hub.subscribe(session(&format!("s{n}")))));
        assert_eq!(hub.watched(), 10_000);
        all.truncate(10_000);
        assert_eq!(hub.watched(), 10_000);
        drop(all);
        assert_eq!(hub.watched(), 0);
        assert_eq!(registry.size(), (0, 0), "looking created no owner");
    }

    #[test]
    fn subscribers_that_leave_at_once_leave_no_slot() {
        let (_registry, hub, _) = watched();
        for _ in 0..500 {
            let pair = [hub.subscribe(session("a")), hub.subscribe(session("a"))];
            std::thread::scope(|threads| {
                for subscription in pair {
                    threads.spawn(|| drop(subscription));
                }
            });
            assert_eq!(hub.watched(), 0);
        }
    }

    #[test]
    fn one_change_is_one_frame_that_all_subscribers_share() {
        let (registry, hub, _) = watched();
        let a = Scope::Session(session("a"));
        let mut subscribers: Vec<_> = (0..3).map(|_| hub.subscribe(session("a"))).collect();
        for subscriber in &mut subscribers {
            assert!(subscriber.baseline().is_empty());
        }
        let _task = started(&registry, &a);
        let frames = subscribers.iter_mut().map(|subscriber| match ready(subscriber) {
            Some(News::List(frame)) => frame.chunk(),
            other => panic!("{other:?}"),
        });
        let frames: Vec<_> = frames.collect();
        assert!(frames.iter().all(|frame| frame.as_ptr() == frames[0].as_ptr()), "the same bytes");
        assert!(subscribers.iter_mut().all(|subscriber| ready(subscriber).is_none()));
    }

    #[test]
    fn a_late_subscriber_skips_to_the_newest_list() {
        let (registry, hub, _) = watched();
        let a = Scope::Session(session("a"));
        let mut late = hub.subscribe(session("a"));
        late.baseline();
        for _ in 0..100 {
            started(&registry, &a).settle(Outcome::new(End::Completed));
        }
        let newest = event(ready(&mut late));
        assert!(newest.contains("bash-100") && ready(&mut late).is_none());
    }

    #[test]
    fn a_change_between_subscribing_and_the_baseline_is_told_once() {
        let (registry, hub, _) = watched();
        let mut subscriber = hub.subscribe(session("a"));
        let _task = started(&registry, &Scope::Session(session("a")));
        assert!(!subscriber.baseline().is_empty());
        assert!(ready(&mut subscriber).is_none());
    }

    #[test]
    fn a_list_that_came_and_went_unseen_says_nothing() {
        let (registry, hub, _) = watched();
        let a = session("a");
        let mut subscriber = hub.subscribe(a.clone());
        subscriber.baseline();
        let _task = started(&registry, &Scope::Session(a.clone()));
        let mut disposal = pin!(registry.dispose_owner(&a, Duration::ZERO));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(disposal.as_mut());
        assert!(ready(&mut subscriber).is_none());
    }

    #[test]
    fn an_unowned_change_reaches_every_slot_and_an_owned_one_only_its_own() {
        let (registry, hub, _) = watched();
        let mut both = [hub.subscribe(session("a")), hub.subscribe(session("b"))];
        for subscriber in &mut both {
            subscriber.baseline();
        }
        let _unowned = started(&registry, &Scope::Unowned);
        assert!(both.iter_mut().all(|subscriber| ready(subscriber).is_some()));
        let _owned = started(&registry, &Scope::Session(session("a")));
        assert_eq!(both.map(|mut subscriber| ready(&mut subscriber).is_some()), [true, false]);
    }

    #[test]
    fn the_empty_list_resets_the_id_and_others_bear_the_clock() {
        let (registry, hub, clock) = watched();
        let a = session("a");
        let mut subscriber = hub.subscribe(a.clone());
        subscriber.baseline();
        clock.set(UnixMillis(5_000));
        started(&registry, &Scope::Session(a.clone())).settle(Outcome::new(End::Completed));
        assert!(event(ready(&mut subscriber)).starts_with("id: 5000\ndata: [{"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(registry.dispose_owner(&a, Duration::ZERO));
        assert_eq!(event(ready(&mut subscriber)), "id:\ndata: []\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn one_ticker_beats_for_silent_slots_only() {
        let (registry, hub, _) = watched();
        let hub = Arc::new(hub);
        let ticker = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.beat().await }
        });
        let (mut silent, mut busy) = (hub.subscribe(session("silent")), hub.subscribe(session("busy")));
        silent.baseline();
        busy.baseline();
        let start = Instant::now();
        let changes = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                started(&registry, &Scope::Session(session("busy"))).settle(Outcome::new(End::Completed));
                assert!(matches!(busy.next().await, News::List(_)));
            }
        };
        let beats = async {
            for beat in 1..=2 {
                assert!(matches!(silent.next().await, News::Beat(_)));
                let silence = start.elapsed();
                assert!(silence >= HEARTBEAT * beat && silence <= (HEARTBEAT + Duration::from_secs(1)) * beat);
            }
        };
        tokio::join!(changes, beats);
        assert!(ready(&mut busy).is_none(), "it was never silent for so long");
        ticker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_without_a_registry_serves_streams_that_only_beat() {
        let hub = Hub::new(None, Clock::system(), HEARTBEAT);
        let mut subscriber = hub.subscribe(session("a"));
        assert!(subscriber.baseline().is_empty());
        assert_eq!(hub.list(&session("a")), "[]");
        tokio::select! {
            news = subscriber.next() => assert!(matches!(news, News::Beat(_))),
            never = hub.beat() => match never {},
        }
    }
}
