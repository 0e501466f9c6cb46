//! Who wants to be told.
//!
//! Promise: no lock is held while a listener runs; one that panics is contained and logged, and
//! the others still run; a dropped guard unsubscribes (a call that is under way at that moment
//! still ends).

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::lock;

type Listener<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// The listeners of one feed.
pub(super) struct Listeners<T> {
    name: &'static str,
    /// How often it fired.
    fired: AtomicU64,
    entries: Arc<Mutex<Entries<T>>>,
}

struct Entries<T> {
    next: u64,
    /// Replaced as a whole at each change, so that a notification runs on the list as it was.
    list: Arc<[(u64, Listener<T>)]>,
}

impl<T: 'static> Listeners<T> {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, fired: AtomicU64::new(0), entries: Arc::new(Mutex::new(Entries { next: 0, list: Arc::new([]) })) }
    }

    pub(super) fn add(&self, listener: impl Fn(&T) + Send + Sync + 'static) -> ListenerGuard {
        let mut entries = lock(&self.entries);
        let key = entries.next;
        entries.next += 1;
        entries.list = entries.list.iter().cloned().chain([(key, Arc::new(listener) as Listener<T>)]).collect();
        let feed = Arc::downgrade(&self.entries);
        ListenerGuard(Some(Box::new(move || {
            let Some(feed) = feed.upgrade() else { return };
            let mut entries = lock(&feed);
            let kept = entries.list.iter().filter(|(other, _)| *other != key).cloned().collect();
            let removed = std::mem::replace(&mut entries.list, kept);
            // What a listener captured may unsubscribe in its own drop: not under this lock.
            drop(entries);
            drop(removed);
        })))
    }

    pub(super) fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    pub(super) fn notify(&self, value: &T) {
        self.fired.fetch_add(1, Ordering::Relaxed);
        let list = Arc::clone(&lock(&self.entries).list);
        for (_, listener) in &*list {
            if catch_unwind(AssertUnwindSafe(|| listener(value))).is_err() {
                tracing::error!(feed = self.name, "a listener panicked; the others go on");
            }
        }
    }
}

/// Keeps a listener subscribed; dropping it unsubscribes.
#[must_use = "dropping the guard unsubscribes at once"]
pub struct ListenerGuard(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        if let Some(unsubscribe) = self.0.take() {
            unsubscribe();
        }
    }
}

impl fmt::Debug for ListenerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerGuard")
    }
}
