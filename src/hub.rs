//! One slot for each watched session: what changed there, and the newest list, encoded once.
//!
//! Promises:
//! - Looking creates nothing: a slot exists while somebody subscribes to it, and no longer.
//! - A list is encoded at most once a change, and only where somebody watches; every subscriber
//!   shares the bytes. Nothing here is per subscriber but a place in the slot's `watch`.
//! - A subscriber that is late skips what it missed, and always comes to the newest list.
//! - Without a registry there are no tasks: streams stay silent but for signs of life.
//!
//! Never here: sockets and HTTP, and anything of the registry but list and change feeds.

mod mux;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

use self::mux::Inboxes;
pub(crate) use self::mux::{MAX_SESSIONS, Mux, MuxNews};
use crate::{
    clock::{Clock, UnixMillis},
    id::SessionId,
    registry::{ListenerGuard, TaskObserver},
    sse::{self, EventId},
};

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
    pulse: watch::Sender<Pulse>,
    newest: Mutex<Newest>,
    /// Those who watch this session among others.
    inboxes: Inboxes,
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
    frame: Frame,
    /// When this slot last had something to say.
    spoke: Instant,
}

/// One list, encoded, shared by all who get it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// Counts the lists of a slot that differ, from 1; 0 is the empty list before the first.
    version: u64,
    json: Bytes,
    stamp: UnixMillis,
    /// The event, framed as a chunk; the event alone stands at `event` in it.
    chunk: Bytes,
    event: std::ops::Range<usize>,
}

impl Frame {
    fn new(version: u64, json: Bytes, stamp: UnixMillis) -> Self {
        let id = if Self::is_empty_list(&json) { EventId::Reset } else { EventId::Stamp(stamp) };
        let event = sse::event(id, &json);
        let chunk = sse::chunk(&event);
        let start = chunk.len() - event.len() - 2;
        Self { version, json, stamp, event: start..start + event.len(), chunk }
    }

    fn is_empty_list(json: &[u8]) -> bool {
        json == b"[]"
    }

    /// Whether the list has no task.
    pub(crate) fn is_empty(&self) -> bool {
        Self::is_empty_list(&self.json)
    }

    /// The server's clock when the list was encoded.
    pub(crate) fn stamp(&self) -> UnixMillis {
        self.stamp
    }

    /// The list as JSON.
    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }

    /// The event framed as one chunk, for HTTP/1.1.
    pub(crate) fn chunk(&self) -> Bytes {
        self.chunk.clone()
    }

    /// The event as it is, for HTTP/1.0.
    pub(crate) fn event(&self) -> Bytes {
        self.chunk.slice(self.event.clone())
    }

    /// The same list with the time of now: for a reader who gets it late, since a client takes the
    /// stamp for the time of sending.
    pub(crate) fn restamped(&self, now: UnixMillis) -> Self {
        Self::new(self.version, self.json.clone(), now)
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
        let pulse = slot.pulse.subscribe();
        let seen = *pulse.borrow();
        Subscription { hub: Arc::clone(&self.shared), slot, pulse, seen, version: 0 }
    }

    /// A session's list as JSON, once.
    pub(crate) fn list(&self, session: &SessionId) -> Bytes {
        self.shared.list(session)
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
        let slots = lock(&self.slots);
        let touched: Vec<_> = match owner {
            Some(session) => slots.get(session).map(Watched::slot).into_iter().collect(),
            // An unowned task: every session's list changed.
            None => slots.values().map(Watched::slot).collect(),
        };
        drop(slots);
        for slot in touched {
            slot.touch();
            slot.inboxes.changed();
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

    fn list(&self, session: &SessionId) -> Bytes {
        match &self.observer {
            Some(observer) => sse::json_line(&observer.list(Some(session))),
            None => Bytes::from_static(b"[]"),
        }
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
            frame: Frame::new(0, Bytes::from_static(b"[]"), UnixMillis(0)),
            spoke: Instant::now(),
        };
        Self {
            session,
            pulse: watch::Sender::new(Pulse::default()),
            newest: Mutex::new(newest),
            inboxes: Inboxes::default(),
        }
    }

    fn touch(&self) {
        self.pulse.send_modify(|pulse| pulse.revision += 1);
    }

    /// The list as of `revision` or later. Read after the revision was taken, so a change that
    /// comes between is either in the list, or has a later revision that encodes again.
    fn frame(&self, revision: u64, hub: &Shared) -> Frame {
        let mut newest = lock(&self.newest);
        if newest.revision.is_none_or(|read| read < revision) {
            let json = hub.list(&self.session);
            if json != newest.frame.json {
                newest.frame = Frame::new(newest.frame.version + 1, json, hub.clock.now());
                hub.encoded.fetch_add(1, Ordering::Relaxed);
                newest.spoke = Instant::now();
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
            self.pulse.send_modify(|pulse| {
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
    pulse: watch::Receiver<Pulse>,
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
        self.seen = *self.pulse.borrow_and_update();
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

    /// The next news. Safe to drop: what was not returned is not lost.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            // The slot holds the sender and this holds the slot, so there is no error.
            let _ = self.pulse.changed().await;
            let pulse = *self.pulse.borrow_and_update();
            let seen = std::mem::replace(&mut self.seen, pulse);
            if pulse.revision != seen.revision {
                let frame = self.slot.frame(pulse.revision, &self.hub);
                if frame.version != self.version {
                    self.version = frame.version;
                    return News::List(frame);
                }
            }
            if pulse.beats != seen.beats
                && let Some(at) = pulse.beat_at
            {
                return News::Beat(at);
            }
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
