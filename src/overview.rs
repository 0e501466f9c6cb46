//! Every open session on one connection: for producers and agents, never for browsers, since it
//! names all sessions. It needs the registry itself; a `TaskObserver` would not do.
//!
//! Promises:
//! - First a baseline with every open session; then, for each session whose list changed, the list
//!   in place of the one before, and each session that was disposed, once.
//! - After a removal the list of a session that was opened again under that name is told, whether or
//!   not it was told before.
//! - What waits for a slow reader is the names of the sessions that it has not heard of, and of those
//!   [`MAX_PENDING`] at most: one that is further behind gets a new baseline instead.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use crate::{
    id::SessionId,
    mux,
    registry::{ListenerGuard, Registry},
    sse::json_line,
    sync::lock,
};

/// The most sessions that are told of one by one.
const MAX_PENDING: usize = 4_096;

/// One connection's view of all sessions.
pub(crate) struct Overview {
    registry: Registry,
    inbox: Arc<Inbox>,
    /// The sessions that the reader takes for open.
    told: BTreeSet<SessionId>,
    /// What was taken out of the inbox and is to be told.
    todo: VecDeque<Item>,
    /// The last frame was given.
    over: bool,
    _feeds: [ListenerGuard; 2],
}

#[derive(Default)]
struct Inbox {
    pending: Mutex<Pending>,
    news: Notify,
}

/// What the reader has not heard of.
#[derive(Default)]
struct Pending {
    changed: BTreeSet<SessionId>,
    removed: BTreeSet<SessionId>,
    /// An unowned task changed, and so every list.
    every: bool,
    /// Too much to tell one by one.
    all_anew: bool,
}

enum Item {
    Removed(SessionId),
    List(SessionId),
}

impl Overview {
    pub(crate) fn new(registry: &Registry) -> Self {
        let inbox = Arc::new(Inbox::default());
        let (on_change, on_removal) = (Arc::clone(&inbox), Arc::clone(&inbox));
        let feeds = [
            registry.on_tasks_changed(move |owner| {
                on_change.put(|pending| match owner {
                    Some(session) => {
                        pending.changed.insert(session.clone());
                    }
                    None => pending.every = true,
                });
            }),
            registry.on_session_removed(move |session| {
                on_removal.put(|pending| {
                    pending.removed.insert(session.clone());
                });
            }),
        ];
        // From here on whatever changes is in the inbox; the baseline is read after this.
        Self {
            registry: registry.clone(),
            inbox,
            told: BTreeSet::new(),
            todo: VecDeque::new(),
            over: false,
            _feeds: feeds,
        }
    }

    /// The next frame after the baseline. Safe to drop: what was not returned is not lost.
    pub(crate) async fn next(&mut self) -> Vec<u8> {
        loop {
            let pending = self.inbox.take_if(|pending| pending.all_anew || self.todo.is_empty());
            if pending.all_anew {
                self.todo.clear();
                return self.baseline();
            }
            if pending.every {
                self.todo.extend(self.told.union(&pending.changed).cloned().map(Item::List));
            } else {
                self.todo.extend(pending.changed.into_iter().map(Item::List));
            }
            for removed in pending.removed {
                self.todo.push_front(Item::Removed(removed));
            }
            while let Some(item) = self.todo.pop_front() {
                if let Some(frame) = self.tell(item) {
                    return frame;
                }
            }
            self.inbox.news.notified().await;
        }
    }

    /// The frame at the end of all, once: a baseline again, since a change that no feed has told of
    /// yet may be in any list.
    pub(crate) fn last(&mut self) -> Option<Vec<u8>> {
        (!std::mem::replace(&mut self.over, true)).then(|| self.baseline())
    }

    /// The frame that comes first.
    pub(crate) fn baseline(&mut self) -> Vec<u8> {
        let sessions = self.registry.sessions().into_iter();
        let lists: Vec<_> = sessions
            .filter_map(|session| self.registry.list_open(&session).map(|list| (session, json_line(&list))))
            .collect();
        self.told = lists.iter().map(|(session, _)| session.clone()).collect();
        mux::baseline(lists.into_iter())
    }

    fn tell(&mut self, item: Item) -> Option<Vec<u8>> {
        match item {
            Item::Removed(session) => {
                if !self.told.remove(&session) {
                    return None;
                }
                let frame = mux::removed(&session);
                // It may be open again, and have told so before it told of the removal.
                self.todo.push_front(Item::List(session));
                Some(frame)
            }
            Item::List(session) => {
                let list = self.registry.list_open(&session)?;
                let frame = mux::tasks(&session, &json_line(&list));
                self.told.insert(session);
                Some(frame)
            }
        }
    }
}

impl Inbox {
    fn put(&self, note: impl FnOnce(&mut Pending)) {
        let mut pending = lock(&self.pending);
        if !pending.all_anew {
            note(&mut pending);
            if pending.changed.len() + pending.removed.len() > MAX_PENDING {
                *pending = Pending { all_anew: true, ..Pending::default() };
            }
        }
        drop(pending);
        self.news.notify_one();
    }

    /// All that is pending, if it is wanted now.
    fn take_if(&self, wanted: impl FnOnce(&Pending) -> bool) -> Pending {
        let mut pending = lock(&self.pending);
        if wanted(&pending) { std::mem::take(&mut *pending) } else { Pending::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        clock::{Clock, UnixMillis},
        config::RegistryLimits,
    };

    fn session(name: &str) -> SessionId {
        SessionId::new(name).unwrap()
    }

    fn parsed(frame: &[u8]) -> Value {
        serde_json::from_slice(frame).unwrap()
    }

    async fn next(overview: &mut Overview) -> Value {
        parsed(&overview.next().await)
    }

    #[tokio::test]
    async fn an_open_session_without_tasks_is_in_the_baseline_and_its_removal_is_told() {
        let registry = Registry::new(Clock::manual(UnixMillis(1_000)), RegistryLimits::default());
        let _owner = registry.open(session("a"));
        let mut overview = Overview::new(&registry);
        assert_eq!(parsed(&overview.baseline()), json!({"type": "baseline", "sessions": {"a": []}}));
        let _ = registry.dispose_owner(&session("a"), std::time::Duration::ZERO).await;
        assert_eq!(next(&mut overview).await, json!({"type": "host/session-removed", "sessionId": "a"}));
    }

    #[tokio::test]
    async fn a_reader_that_is_far_behind_holds_little_and_gets_a_new_baseline() {
        let registry = Registry::new(Clock::manual(UnixMillis(1_000)), RegistryLimits::default());
        let mut overview = Overview::new(&registry);
        assert_eq!(parsed(&overview.baseline()), json!({"type": "baseline", "sessions": {}}));
        for n in 0..3 * MAX_PENDING {
            let name = session(&format!("s{n}"));
            let _owner = registry.open(name.clone());
            let _ = registry.dispose_owner(&name, std::time::Duration::ZERO).await;
            let pending = lock(&overview.inbox.pending);
            assert!(pending.changed.len() + pending.removed.len() <= MAX_PENDING);
        }
        let _owner = registry.open(session("last"));
        let mut frame = next(&mut overview).await;
        assert_eq!(frame, json!({"type": "baseline", "sessions": {"last": []}}));
        let _ = registry.dispose_owner(&session("last"), std::time::Duration::ZERO).await;
        while frame["type"] != "host/session-removed" {
            frame = next(&mut overview).await;
        }
        assert_eq!(frame["sessionId"], "last");
    }
}
