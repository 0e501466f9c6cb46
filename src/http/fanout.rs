//! All streams of one session's list: one task writes them, over an epoll of its own.
//!
//! Promises:
//! - A change is one `send` a reader, of bytes that all readers share, and nothing else: no task, timer,
//!   buffer, allocation or wake-up is a reader's own.
//! - At most one frame is unsent for a reader; until its socket takes the rest it is skipped, and then
//!   gets the newest list alone.
//! - After [`TURN`] readers others get their share: other sessions, new readers, and whatever else the
//!   runtime has to do. No change, however frequent, keeps a reader from having its turn.
//! - A planned end comes after the newest list, within [`FAREWELL`].
//! - The last reader of a session to leave takes all that was kept for it away.
//!
//! Why not a task for each stream: tokio then queues, polls and parks one task for each delivery, and
//! three futures within it (the shutdown, the socket's readiness, the session's news). Counted at 200
//! readers, each with its share of the change, that was 3,700 instructions beside the kernel's `send`,
//! and 2,400 bytes a stream; this is 400 instructions (`scripts/test-cost` holds them) and 376 bytes. The
//! sockets are in an epoll of their own because tokio has a record of each of its, and asks it at each
//! send. tokio waits for that epoll as for any descriptor, so that this is a task like any other, on
//! whichever runtime.
//!
//! Never here: what a list holds, and which readers are admitted.

mod group;
mod poller;
mod reader;

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io,
    ops::ControlFlow,
    sync::Arc,
    task::{Context, Poll},
};

use slab::Slab;
use tokio::{
    sync::mpsc,
    task::yield_now,
    time::{Instant, sleep_until},
};

use self::{
    group::{Group, Newest},
    poller::{Poller, Ready},
    reader::{Presence, Reader},
};
use super::{
    admission::Seat,
    socket::Socket,
    source::TaskList,
    stream::{FAREWELL, Stream},
};
use crate::{
    hub::{Bell, Subscription},
    shutdown::{Phase, Shutdown, Until},
};

/// How many readers are served before others get their share: some 0.4 ms.
const TURN: usize = 64;
/// Streams that may wait to be taken over. Who brings one more waits.
const MAX_ARRIVALS: usize = 256;

/// Where streams are handed to the one that writes them, which ends when all of these are gone.
#[derive(Debug, Clone)]
pub(crate) struct Fanout(mpsc::Sender<Arrival>);

/// A stream that has begun, and whose socket has left the runtime.
struct Arrival {
    reader: Reader,
    subscription: Subscription,
}

impl Fanout {
    /// Hands a stream over.
    ///
    /// # Errors
    /// When the socket cannot leave the runtime.
    pub(crate) async fn join(&self, socket: impl Socket, stream: Stream<TaskList>, seat: Seat) -> io::Result<()> {
        let (reader, subscription) = Reader::new(socket.into_fd()?, stream, seat);
        // It is there for as long as this is, unless it panicked. The connection is closed then.
        let _ = self.0.send(Arrival { reader, subscription }).await;
        Ok(())
    }
}

/// The one that writes.
pub(crate) struct Engine {
    arrivals: mpsc::Receiver<Arrival>,
    poller: Poller,
    bell: Arc<Bell>,
    readers: Slab<Reader>,
    groups: Slab<Group>,
    /// The groups in which somebody may have to be told something, each once.
    due: VecDeque<usize>,
}

/// What there is to do, by sort.
#[derive(Default)]
struct Work {
    rung: Vec<usize>,
    ready: Vec<Ready>,
    arrivals: Vec<Arrival>,
}

/// A new engine, and the way to it. Must be called within a tokio runtime.
///
/// # Errors
/// When the system has no epoll, or no descriptor, left for it.
pub(crate) fn fanout() -> io::Result<(Fanout, Engine)> {
    let (sender, arrivals) = mpsc::channel(MAX_ARRIVALS);
    let engine = Engine {
        arrivals,
        poller: Poller::new()?,
        bell: Arc::default(),
        readers: Slab::new(),
        groups: Slab::new(),
        due: VecDeque::new(),
    };
    Ok((Fanout(sender), engine))
}

impl Engine {
    /// Writes streams until `shutdown` ends them, or nobody can bring one any more.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut ending = shutdown.until(Phase::Ending);
        let mut work = Work::default();
        while poll_fn(|cx| self.poll_work(cx, &mut ending, &mut work)).await.is_continue() {
            let mut served = work.ready.len() + work.arrivals.len();
            for ready in work.ready.drain(..) {
                self.attend(ready, Reader::serve);
            }
            for arrival in work.arrivals.drain(..) {
                let key = self.admit(arrival);
                self.act(key, Reader::serve);
            }
            for group in work.rung.drain(..) {
                self.enqueue(group);
            }
            served += self.deliver_due();
            if served >= TURN {
                yield_now().await;
            }
        }
        self.end(work).await;
    }

    /// Ready when there is something to do: what came meanwhile, at most a turn's worth of each sort, or
    /// that this is the end.
    fn poll_work(&mut self, cx: &mut Context<'_>, ending: &mut Until, work: &mut Work) -> Poll<ControlFlow<()>> {
        if ending.poll_once(cx).is_ready() {
            return Poll::Ready(ControlFlow::Break(()));
        }
        let mut some = !self.due.is_empty();
        some |= self.bell.poll_rung(cx, &mut work.rung).is_ready();
        some |= self.poller.poll_ready(cx, &mut work.ready).is_ready();
        match self.arrivals.poll_recv_many(cx, &mut work.arrivals, TURN) {
            Poll::Ready(0) => return Poll::Ready(ControlFlow::Break(())),
            Poll::Ready(_) => some = true,
            Poll::Pending => {}
        }
        if some { Poll::Ready(ControlFlow::Continue(())) } else { Poll::Pending }
    }

    /// Tells those who are due, up to a turn's worth; returns how many were looked at.
    fn deliver_due(&mut self) -> usize {
        let mut served = 0;
        while served < TURN
            && let Some(key) = self.due.pop_front()
        {
            served += self.deliver(key, TURN - served);
        }
        served
    }

    /// Tells up to `most` readers of a group what they do not know; returns how many were looked at.
    fn deliver(&mut self, group_key: usize, most: usize) -> usize {
        let Some(group) = self.groups.get_mut(group_key) else { return 0 };
        group.due = false;
        group.learn();
        let mut gone = Vec::new();
        let mut served = 0;
        while served < most
            && let Some(key) = group.next()
        {
            served += 1;
            if let Some(reader) = self.readers.get_mut(key)
                && !reader.is_blocked()
                && presence(reader.serve(&mut group.newest, &self.poller, key)) == Presence::Gone
            {
                gone.push(key);
            }
        }
        if !group.all_know() {
            self.enqueue(group_key);
        }
        for key in gone {
            self.remove(key);
        }
        served
    }

    fn enqueue(&mut self, group_key: usize) {
        if let Some(group) = self.groups.get_mut(group_key)
            && !std::mem::replace(&mut group.due, true)
        {
            self.due.push_back(group_key);
        }
    }

    /// Takes a reader into the group of its session; returns its key.
    fn admit(&mut self, arrival: Arrival) -> usize {
        let Arrival { mut reader, subscription } = arrival;
        let group_key = subscription.rings(&self.bell).unwrap_or_else(|| {
            let entry = self.groups.vacant_entry();
            let key = entry.key();
            subscription.ring(&self.bell, key);
            entry.insert(Group::new(subscription));
            key
        });
        let entry = self.readers.vacant_entry();
        let key = entry.key();
        if let Some(group) = self.groups.get_mut(group_key) {
            group.join(key, group_key, &mut reader);
        }
        entry.insert(reader);
        // What changed between the reader's first list and a new group's bell rang for nobody.
        self.enqueue(group_key);
        key
    }

    /// Attends to a reader; one whose socket has room does `with_room`.
    fn attend(
        &mut self,
        ready: Ready,
        with_room: impl FnOnce(&mut Reader, &mut Newest, &Poller, usize) -> io::Result<Presence>,
    ) {
        let Ready { key, word, room } = ready;
        if word {
            self.act(key, |reader, _, _, _| reader.hear());
        }
        if room {
            self.act(key, with_room);
        }
    }

    /// Has a reader act, and removes it if it is gone then.
    fn act(&mut self, key: usize, act: impl FnOnce(&mut Reader, &mut Newest, &Poller, usize) -> io::Result<Presence>) {
        let Some(reader) = self.readers.get_mut(key) else { return };
        let Some(group) = self.groups.get_mut(reader.group) else { return };
        if presence(act(reader, group.newest_now(), &self.poller, key)) == Presence::Gone {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: usize) {
        let Some(reader) = self.readers.try_remove(key) else { return };
        let Some(group) = self.groups.get_mut(reader.group) else { return };
        if let Some(moved) = group.leave(reader.place).and_then(|moved| self.readers.get_mut(moved)) {
            moved.place = reader.place;
        }
        if group.is_empty() {
            self.groups.remove(reader.group);
        }
        if self.readers.is_empty() {
            // Tables keep the room of their largest moment.
            (self.readers, self.groups, self.due) = Default::default();
        }
    }

    /// The planned end: each reader is told the newest list, and that this is all.
    async fn end(mut self, mut work: Work) {
        let deadline = Instant::now() + FAREWELL;
        let all: Vec<_> = self.readers.iter().map(|(key, _)| key).collect();
        for turn in all.chunks(TURN) {
            for key in turn {
                self.finish(*key);
            }
            yield_now().await;
        }
        let mut more_may_come = true;
        loop {
            for arrival in work.arrivals.drain(..) {
                let key = self.admit(arrival);
                self.finish(key);
            }
            for ready in work.ready.drain(..) {
                self.attend(ready, |reader, _, poller, key| reader.go_on_to_end(poller, key));
            }
            if !more_may_come && self.readers.is_empty() {
                return;
            }
            tokio::select! {
                count = self.arrivals.recv_many(&mut work.arrivals, TURN), if more_may_come => more_may_come = count > 0,
                () = poll_fn(|cx| self.poller.poll_ready(cx, &mut work.ready)) => {}
                () = sleep_until(deadline), if !self.readers.is_empty() => self.readers.clear(),
            }
        }
    }

    fn finish(&mut self, key: usize) {
        let group = self.readers.get(key).and_then(|reader| self.groups.get_mut(reader.group));
        if let Some(group) = group {
            group.learn_last();
        }
        self.act(key, Reader::finish);
    }
}

fn presence(acted: io::Result<Presence>) -> Presence {
    acted.unwrap_or_else(|error| {
        tracing::debug!(%error, "a stream broke");
        Presence::Gone
    })
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("readers", &self.readers.len())
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read},
        os::unix::net::UnixStream,
        time::Duration,
    };

    use hyper::HeaderMap;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{
        clock::Clock,
        config::RegistryLimits,
        http::{
            source::Source,
            stream::{Begun, StreamPlan},
            wire::{Framing, Heartbeat, Wire},
        },
        hub::Hub,
        id::{Kind, Scope, SessionId},
        registry::{NewTask, Registry, Stop, StopError, StopReason},
        task::Label,
        traffic::{Open, Traffic},
    };

    struct Unstoppable;

    impl Stop for Unstoppable {
        fn stop(&self, _: &StopReason) -> Result<(), StopError> {
            Ok(())
        }
    }

    /// An engine whose turns the test takes itself, and what feeds it.
    struct House {
        registry: Registry,
        hub: Hub,
        engine: Engine,
        traffic: Arc<Traffic>,
        work: Work,
    }

    impl House {
        fn new() -> Self {
            let registry = Registry::new(Clock::system(), RegistryLimits::default());
            let hub = Hub::new(Some(registry.observer()), Clock::system(), Duration::from_secs(15));
            let (_, engine) = fanout().unwrap();
            Self { registry, hub, engine, traffic: Arc::default(), work: Work::default() }
        }

        fn join(&mut self) -> (usize, UnixStream) {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let plan = StreamPlan {
                source: Source::tasks(self.hub.subscribe(SessionId::new("a").unwrap()), false),
                wire: Wire { framing: Framing::ToEndOfFile, heartbeat: Heartbeat::Comment },
                headers: HeaderMap::new(),
                admitted: None,
            };
            let Begun::List(stream) = Stream::begin(plan, &self.traffic) else { panic!("it is a list") };
            let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let seat = Seat { _place: place, _counted: self.traffic.count(Open::Browsers) };
            let (reader, subscription) = Reader::new(ours.into(), stream, seat);
            let key = self.engine.admit(Arrival { reader, subscription });
            self.engine.act(key, Reader::serve);
            self.engine.deliver_due();
            (key, theirs)
        }

        fn change(&mut self, label: &str) {
            let task = NewTask { kind: Kind::bash(), label: Label::new(label).unwrap() };
            let (_, handle) =
                self.registry.register(&Scope::Session(SessionId::new("a").unwrap()), task, Unstoppable).unwrap();
            // It goes on for as long as the registry does.
            std::mem::forget(handle);
        }

        /// Takes one turn.
        fn turn(&mut self) -> usize {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let _ = self.engine.bell.poll_rung(&mut cx, &mut self.work.rung);
            for group in self.work.rung.drain(..) {
                self.engine.enqueue(group);
            }
            self.engine.deliver_due()
        }
    }

    /// What has come, as text.
    fn read(peer: &mut UnixStream) -> String {
        let mut text = Vec::new();
        match peer.read_to_end(&mut text) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn news_that_comes_often_puts_nobody_off() {
        let mut house = House::new();
        let mut peers: Vec<_> = (0..3 * TURN).map(|_| house.join().1).collect();
        for turn in 0..3 {
            house.change(&format!("change {turn}"));
            assert_eq!(house.turn(), TURN, "a turn is no longer than that");
        }
        assert!(peers.iter_mut().all(|peer| read(peer).contains("change ")));
        while house.turn() > 0 {}
        // Whoever had the last change in its turn is not told again.
        let told: Vec<_> = peers.iter_mut().map(|peer| read(peer).matches("change 2").count()).collect();
        assert_eq!(told.iter().sum::<usize>(), 2 * TURN);
        assert!(told.iter().all(|times| *times <= 1));
    }

    #[tokio::test]
    async fn whoever_leaves_in_the_middle_of_a_round_takes_nobody_elses_turn() {
        let mut house = House::new();
        let (keys, mut peers): (Vec<_>, Vec<_>) = (0..2 * TURN).map(|_| house.join()).unzip();
        house.change("news");
        house.turn();
        // Its place is taken by the last of those whose turn is to come, just behind the one whose turn it is.
        house.engine.remove(keys[TURN - 1]);
        while house.turn() > 0 {}
        for peer in &mut peers {
            assert_eq!(read(peer).matches("news").count(), 1);
        }
    }

    #[tokio::test]
    async fn the_last_to_leave_takes_all_away() {
        let mut house = House::new();
        let all: Vec<_> = (0..100).map(|_| house.join()).collect();
        assert_eq!((house.hub.watched(), house.traffic.open(Open::Tasks)), (1, 100));
        for (key, _) in &all {
            house.engine.remove(*key);
        }
        assert_eq!((house.hub.watched(), house.traffic.open(Open::Tasks)), (0, 0));
        assert_eq!(house.traffic.open(Open::Browsers), 0);
        assert_eq!((house.engine.readers.capacity(), house.engine.groups.capacity()), (0, 0));
        house.change("nobody looks");
        assert_eq!(house.turn(), 0);
    }
}
