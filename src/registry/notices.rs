//! Notices: how the end of each task is told once, to whoever reads its owner's notices.
//!
//! Promises:
//! - A task that has ended and of which nobody was told is owed one notice. A waiter that was
//!   present at the end, a read of the ended task, and an earlier notice count as told.
//! - A notice goes to one reader. Of several readers of one owner, whichever comes first has it;
//!   the notices go out in the order of the ends.
//! - A reader that comes back with the last id it holds misses none and has none twice, however its
//!   connection ended: what it was sent up to that id is told for good, and what it was sent after
//!   that id is owed again. It holds an id from the beginning, before its first notice
//!   ([`Notices::position`]).
//! - A reader that comes with no id, with one of another process, or with one that makes no sense
//!   is a new one: it gets what is owed.
//! - A notice that was taken counts as told unless its reader is dropped without
//!   [`Notices::delivered`]: then what it took is owed again, to anybody. (Where the reader got it all
//!   the same and comes back with its id, while another reader was here to get it too, both have it.)
//! - A reader is at one place at a time: where it comes again, an earlier visit gets nothing more.
//!
//! All state is a few numbers in the records, so it is bounded as they are: a record that is retired
//! or disposed takes its notice with it. Looking creates no owner.

use std::{collections::HashMap, fmt, num::ParseIntError, str::FromStr, sync::Arc};

use tokio::sync::Notify;

use super::{
    ListenerGuard, Registry, lock,
    state::{Bucket, State},
};
use crate::{
    id::Scope,
    task::{Delivery, TaskView},
};

/// One notice: a task's last record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// What its reader holds from now on.
    pub id: NoticeId,
    /// How the task ended.
    pub task: TaskView,
}

/// How far a reader of notices has come: `<process>-<reader>-<number>`, opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoticeId {
    process: u64,
    reader: u64,
    number: u64,
}

/// Why a text is not a [`NoticeId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a notice")]
pub struct InvalidNoticeId;

impl fmt::Display for NoticeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, reader, number } = self;
        write!(f, "{process:016x}-{reader}-{number}")
    }
}

impl FromStr for NoticeId {
    type Err = InvalidNoticeId;

    fn from_str(text: &str) -> Result<Self, InvalidNoticeId> {
        let mut parts = text.split('-');
        let (Some(process), Some(reader), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidNoticeId);
        };
        let bad = |_: ParseIntError| InvalidNoticeId;
        Ok(Self {
            process: u64::from_str_radix(process, 16).map_err(bad)?,
            reader: reader.parse().map_err(bad)?,
            number: number.parse().map_err(bad)?,
        })
    }
}

/// The readers that are here.
pub(super) struct Desk {
    /// Tells this process's ids from those of the one before.
    process: u64,
    last_reader: u64,
    last_visit: u64,
    /// The last notice's number.
    last_number: u64,
    present: HashMap<u64, Visit>,
}

/// One reader's presence.
struct Visit {
    /// When it came. The same reader can have a later visit while this one seems to go on.
    number: u64,
    scope: Scope,
    wake: Arc<Notify>,
}

impl Default for Desk {
    fn default() -> Self {
        Self { process: fastrand::u64(..), last_reader: 0, last_visit: 0, last_number: 0, present: HashMap::new() }
    }
}

impl Desk {
    /// The number of a new visit, and what its reader holds: the last id if it means something here.
    fn welcome(&mut self, last: Option<NoticeId>) -> (u64, NoticeId) {
        self.last_visit += 1;
        let known = last.filter(|last| {
            last.process == self.process
                && (1..=self.last_reader).contains(&last.reader)
                && last.number <= self.last_number
        });
        let held = known.unwrap_or_else(|| {
            self.last_reader += 1;
            NoticeId { process: self.process, reader: self.last_reader, number: 0 }
        });
        (self.last_visit, held)
    }

    fn is_present(&self, reader: u64, visit: u64) -> bool {
        self.present.get(&reader).is_some_and(|present| present.number == visit)
    }
}

/// What a reader finds.
enum Found {
    Notice(Notice),
    /// Nothing is owed.
    Nothing,
    /// The same reader is here a second time: this visit is over.
    TakenOver,
}

impl State {
    /// Lets a reader in, and settles what it was sent before.
    fn enter(&mut self, visit: Visit, held: NoticeId) {
        let Visit { number: this, ref scope, .. } = visit;
        // What this very reader was sent by a later visit is none of an earlier one's business.
        for entry in self.bucket_mut(scope).into_iter().flat_map(Bucket::entries_mut) {
            match entry.task.notice() {
                Some(sent) if sent.reader != held.reader || sent.visit > this => {}
                Some(sent) if sent.number <= held.number => entry.task.mark_reported(),
                Some(_) => entry.task.take_notice_back(),
                None => {}
            }
        }
        let present = &mut self.desk.present;
        if present.get(&held.reader).is_none_or(|present| present.number < this)
            && let Some(before) = present.insert(held.reader, visit)
        {
            before.wake.notify_one();
        }
    }

    fn take_notice(&mut self, scope: &Scope, reader: u64, visit: u64) -> Found {
        if !self.desk.is_present(reader, visit) {
            return Found::TakenOver;
        }
        let number = self.desk.last_number + 1;
        let Some(entry) = self.bucket_mut(scope).and_then(Bucket::first_owed) else { return Found::Nothing };
        entry.task.mark_noticed(Delivery { reader, visit, number });
        let task = entry.task.view();
        self.desk.last_number = number;
        Found::Notice(Notice { id: NoticeId { process: self.desk.process, reader, number }, task })
    }

    /// Lets a reader go; returns the others of its owner, to whom something may be owed now.
    fn leave(&mut self, reader: u64, visit: u64, delivered: bool) -> Vec<Arc<Notify>> {
        if !self.desk.is_present(reader, visit) {
            return Vec::new();
        }
        let Some(Visit { scope, .. }) = self.desk.present.remove(&reader) else { return Vec::new() };
        if !delivered {
            for entry in self.bucket_mut(&scope).into_iter().flat_map(Bucket::entries_mut) {
                if entry.task.notice().is_some_and(|sent| sent.visit == visit) {
                    entry.task.owe_again();
                }
            }
        }
        let others = self.desk.present.values().filter(|visit| visit.scope == scope);
        others.map(|visit| Arc::clone(&visit.wake)).collect()
    }
}

/// One reader of an owner's notices.
///
/// Dropped without [`Notices::delivered`], what it took is owed again.
pub struct Notices {
    registry: Registry,
    scope: Scope,
    visit: u64,
    position: NoticeId,
    wake: Arc<Notify>,
    entered: bool,
    delivered: bool,
    _done: ListenerGuard,
}

impl Registry {
    /// Reads the notices of a session's own tasks, or of the unowned ones. `last` is the last id
    /// that the reader holds.
    ///
    /// The reader comes in at its first [`Notices::next`]: until then it changes nothing. So whoever
    /// serves a connection can first see whether anybody is at its other end still.
    #[must_use]
    pub fn notices(&self, scope: Scope, last: Option<NoticeId>) -> Notices {
        let wake = Arc::new(Notify::new());
        let (bell, heeded) = (Arc::clone(&wake), scope.clone());
        let done = self.on_task_done(move |done| {
            if done.scope == heeded && !done.reported {
                bell.notify_one();
            }
        });
        let (visit, position) = lock(&self.shared.state).desk.welcome(last);
        let registry = self.clone();
        Notices { registry, scope, visit, position, wake, entered: false, delivered: false, _done: done }
    }
}

impl Notices {
    /// Whose notices.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The id that the reader holds: of the last notice, or of none yet.
    #[must_use]
    pub fn position(&self) -> NoticeId {
        self.position
    }

    /// The next notice; none when the same reader has come back elsewhere. Safe to drop: what was
    /// not returned is not taken.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.look() {
                Found::Notice(notice) => return Some(notice),
                Found::TakenOver => return None,
                // A bell that rang since is heard still.
                Found::Nothing => self.wake.notified().await,
            }
        }
    }

    /// The next notice, if one is owed now.
    pub fn try_next(&mut self) -> Option<Notice> {
        match self.look() {
            Found::Notice(notice) => Some(notice),
            Found::TakenOver | Found::Nothing => None,
        }
    }

    fn look(&mut self) -> Found {
        let mut state = lock(&self.registry.shared.state);
        if !std::mem::replace(&mut self.entered, true) {
            let visit = Visit { number: self.visit, scope: self.scope.clone(), wake: Arc::clone(&self.wake) };
            state.enter(visit, self.position);
        }
        let found = state.take_notice(&self.scope, self.position.reader, self.visit);
        if let Found::Notice(notice) = &found {
            self.position = notice.id;
        }
        found
    }

    /// The reader has all that it took.
    pub fn delivered(mut self) {
        self.delivered = true;
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        let reader = self.position.reader;
        let others = lock(&self.registry.shared.state).leave(reader, self.visit, self.delivered);
        for other in others {
            other.notify_one();
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices")
            .field("scope", &self.scope)
            .field("position", &self.position.to_string())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        clock::{Clock, UnixMillis},
        config::RegistryLimits,
        id::{Kind, SessionId, TaskId},
        registry::{LaunchError, Launched, NewTask, Producer, Stop, StopError, StopReason, TaskHandle},
        task::{End, Label, Outcome},
    };

    /// A producer whose handle the test holds.
    #[derive(Clone, Default)]
    struct ByHand(Arc<Mutex<Option<TaskHandle>>>);

    impl Producer for ByHand {
        fn launch(self) -> Result<Launched, LaunchError> {
            let hand = Arc::clone(&self.0);
            Ok(Launched::new(self, move |handle| *hand.lock().unwrap() = Some(handle)))
        }
    }

    impl Stop for ByHand {
        fn stop(&self, _: &StopReason) -> Result<(), StopError> {
            Ok(())
        }
    }

    fn registry() -> Registry {
        Registry::new(Clock::manual(UnixMillis(1_000)), RegistryLimits::default())
    }

    fn scope(name: &str) -> Scope {
        Scope::Session(SessionId::new(name).unwrap())
    }

    /// Starts a task and ends it.
    fn end_one(registry: &Registry, scope: &Scope) -> TaskId {
        let hand = ByHand::default();
        let task = NewTask { kind: Kind::bash(), label: Label::new("work").unwrap() };
        let task = registry.start(scope, task, hand.clone()).unwrap();
        hand.0.lock().unwrap().take().unwrap().settle(Outcome::new(End::Completed));
        task.id
    }

    /// Takes what is owed now.
    async fn taken(notices: &mut Notices) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            tokio::select! {
                biased;
                notice = notices.next() => match notice {
                    Some(notice) => taken.push(notice.task.id.to_string()),
                    None => return taken,
                },
                () = std::future::ready(()) => return taken,
            }
        }
    }

    #[tokio::test]
    async fn each_end_is_told_once_in_order_and_only_to_its_owner() {
        let (registry, a) = (registry(), scope("a"));
        end_one(&registry, &a);
        end_one(&registry, &scope("b"));
        end_one(&registry, &Scope::Unowned);
        end_one(&registry, &a);
        let mut reader = registry.notices(a.clone(), None);
        assert_eq!(taken(&mut reader).await, ["bash-1", "bash-4"]);
        reader.delivered();
        assert_eq!(taken(&mut registry.notices(a, None)).await, [""; 0]);
        assert_eq!(taken(&mut registry.notices(Scope::Unowned, None)).await, ["bash-3"]);
    }

    #[tokio::test]
    async fn a_read_of_the_end_and_a_waiter_at_the_end_leave_nothing_to_tell() {
        let (registry, a) = (registry(), scope("a"));
        let read = end_one(&registry, &a);
        registry.read(&a, &read).unwrap();
        let waited = end_one(&registry, &a);
        registry.wait(&a, &waited, std::time::Duration::ZERO).await.unwrap();
        assert_eq!(taken(&mut registry.notices(a.clone(), None)).await, [""; 0]);
        // Read after it was sent: who comes back for it is not told again.
        let sent = end_one(&registry, &a);
        let mut reader = registry.notices(a.clone(), None);
        let held = reader.position();
        assert_eq!(taken(&mut reader).await.len(), 1);
        registry.read(&a, &sent).unwrap();
        drop(reader);
        assert_eq!(taken(&mut registry.notices(a, Some(held))).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_gets_what_came_after_its_id_and_nothing_else() {
        let (registry, a) = (registry(), scope("a"));
        let mut reader = registry.notices(a.clone(), None);
        let opening = reader.position();
        for _ in 0..3 {
            end_one(&registry, &a);
        }
        let first = reader.next().await.unwrap();
        assert_eq!(taken(&mut reader).await.len(), 2);
        reader.delivered();
        // It says that it has only the first, whatever its connection looked like.
        let mut reader = registry.notices(a.clone(), Some(first.id));
        assert_eq!(taken(&mut reader).await, ["bash-2", "bash-3"]);
        drop(reader);
        // It holds the same id still: the last visit brought it nothing.
        let mut reader = registry.notices(a.clone(), Some(first.id));
        assert_eq!(taken(&mut reader).await, ["bash-2", "bash-3"]);
        let held = reader.position();
        reader.delivered();
        // What was told for good is not told again, even to an older id.
        assert_eq!(taken(&mut registry.notices(a.clone(), Some(held))).await, [""; 0]);
        assert_eq!(taken(&mut registry.notices(a, Some(opening))).await, [""; 0]);
    }

    #[tokio::test]
    async fn what_a_broken_reader_took_goes_to_the_next_and_wakes_one_that_is_here() {
        let (registry, a) = (registry(), scope("a"));
        let mut broken = registry.notices(a.clone(), None);
        end_one(&registry, &a);
        assert_eq!(taken(&mut broken).await, ["bash-1"]);
        let mut other = registry.notices(a, None);
        let (notice, ()) = tokio::join!(other.next(), async {
            tokio::task::yield_now().await;
            drop(broken);
        });
        assert_eq!(notice.unwrap().task.id.to_string(), "bash-1");
    }

    #[tokio::test]
    async fn a_reader_here_twice_reads_at_its_newer_place_only() {
        let (registry, a) = (registry(), scope("a"));
        let mut half_open = registry.notices(a.clone(), None);
        end_one(&registry, &a);
        let held = half_open.next().await.unwrap().id;
        end_one(&registry, &a);
        assert_eq!(taken(&mut half_open).await, ["bash-2"]);
        let mut reader = registry.notices(a, Some(held));
        assert_eq!(taken(&mut reader).await, ["bash-2"]);
        assert!(half_open.next().await.is_none());
        drop(half_open);
        assert_eq!(taken(&mut reader).await, [""; 0]);
    }

    #[tokio::test]
    async fn what_is_owed_again_is_not_taken_for_told_by_the_next_id() {
        let (registry, a) = (registry(), scope("a"));
        let mut reader = registry.notices(a.clone(), None);
        let held = reader.position();
        end_one(&registry, &a);
        end_one(&registry, &a);
        assert_eq!(taken(&mut reader).await.len(), 2);
        drop(reader);
        let mut reader = registry.notices(a.clone(), Some(held));
        let first = reader.next().await.unwrap();
        assert_eq!(first.task.id.to_string(), "bash-1");
        reader.delivered();
        assert_eq!(taken(&mut registry.notices(a, Some(first.id))).await, ["bash-2"]);
    }

    #[tokio::test]
    async fn what_a_visit_takes_while_the_next_one_comes_is_not_lost() {
        let (registry, a) = (registry(), scope("a"));
        let held = registry.notices(a.clone(), None).position();
        let mut before = registry.notices(a.clone(), Some(held));
        assert_eq!(taken(&mut before).await, [""; 0]);
        let mut reader = registry.notices(a.clone(), Some(held));
        end_one(&registry, &a);
        assert_eq!(taken(&mut before).await, ["bash-1"]);
        assert_eq!(taken(&mut reader).await, ["bash-1"]);
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_and_comes_late_changes_nothing() {
        let (registry, a) = (registry(), scope("a"));
        let held = registry.notices(a.clone(), None).position();
        let mut given_up = registry.notices(a.clone(), Some(held));
        let mut reader = registry.notices(a.clone(), Some(held));
        end_one(&registry, &a);
        assert_eq!(taken(&mut reader).await, ["bash-1"]);
        assert!(given_up.next().await.is_none());
        end_one(&registry, &a);
        assert_eq!(taken(&mut reader).await, ["bash-2"]);
        let held = reader.position();
        drop(reader);
        // Even when nobody is here.
        let mut given_up = registry.notices(a.clone(), Some(held));
        let mut reader = registry.notices(a.clone(), Some(held));
        end_one(&registry, &a);
        assert_eq!(taken(&mut reader).await, ["bash-3"]);
        let held = reader.position();
        reader.delivered();
        assert_eq!(taken(&mut given_up).await, [""; 0]);
        drop(given_up);
        assert_eq!(taken(&mut registry.notices(a, Some(held))).await, [""; 0]);
    }

    #[tokio::test]
    async fn an_id_that_means_nothing_here_makes_a_new_reader() {
        let (registry, a) = (registry(), scope("a"));
        let another_process = super::tests::registry().notices(a.clone(), None).position();
        end_one(&registry, &a);
        let mut reader = registry.notices(a.clone(), Some(another_process));
        assert_eq!(taken(&mut reader).await, ["bash-1"]);
        let mut far = reader.position();
        reader.delivered();
        far.number += 1;
        end_one(&registry, &a);
        assert_eq!(taken(&mut registry.notices(a, Some(far))).await, ["bash-2"]);
        assert_eq!(registry.size(), (1, 2));
    }

    #[tokio::test]
    async fn looking_for_notices_creates_no_owner() {
        let registry = registry();
        let mut reader = registry.notices(scope("nobody"), None);
        assert_eq!(taken(&mut reader).await, [""; 0]);
        assert_eq!(registry.size(), (0, 0));
        assert!(registry.sessions().is_empty());
        drop(reader);
        assert!(lock(&registry.shared.state).desk.present.is_empty());
    }

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = registry().notices(Scope::Unowned, None).position();
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "1", "0-1", "0-1-2-3", "x-1-2", "0-1-", "1764531014123"] {
            assert_eq!(bad.parse::<NoticeId>(), Err(InvalidNoticeId), "{bad}");
        }
    }
}
