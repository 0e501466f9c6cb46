//! The view of the registry that may be handed to whatever serves browsers.

use std::{fmt, sync::Arc};

use super::{ListenerGuard, Shared, lock};
use crate::{
    id::SessionId,
    task::{Task, TaskView, row::Row},
};

/// Can list one session's tasks and subscribe, and nothing else.
///
/// `read` takes the model's one cursor forward, `kill` and `start` act, `sessions` names
/// them all: none of them is here, so that no path from a page can reach them. That they are absent is a test:
///
/// ```compile_fail,E0599
/// # fn absent(observer: &tasklight::TaskObserver, id: &tasklight::TaskId) {
/// observer.read(&tasklight::Scope::Unowned, id);
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn absent(observer: &tasklight::TaskObserver, id: &tasklight::TaskId) {
/// observer.kill(&tasklight::Scope::Unowned, id, None);
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn absent(observer: &tasklight::TaskObserver, session: tasklight::SessionId) {
/// observer.open(session);
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn absent(observer: &tasklight::TaskObserver) {
/// observer.sessions();
/// # }
/// ```
/// ```compile_fail,E0616
/// # fn absent(observer: &tasklight::TaskObserver) {
/// let _ = &observer.shared;
/// # }
/// ```
/// ```
/// # fn present(observer: &tasklight::TaskObserver) {
/// observer.list(None);
/// # }
/// ```
#[derive(Clone)]
pub struct TaskObserver {
    shared: Arc<Shared>,
}

impl TaskObserver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What a session sees: its own tasks and the unowned ones, in the order of registration.
    /// Without a session: the unowned ones. A session that nobody knows is not created.
    #[must_use]
    pub fn list(&self, session: Option<&SessionId>) -> Vec<TaskView> {
        lock(&self.shared.state).list(session)
    }

    /// The same, each task shared until it changes.
    pub(crate) fn rows(&self, session: Option<&SessionId>) -> Vec<Arc<Row>> {
        lock(&self.shared.state).seen(session).map(Task::row).collect()
    }

    /// Calls `listener` after every commit that changes what [`TaskObserver::list`] returns, with
    /// the owner whose list changed; `None` means an unowned task, so that every list changed.
    ///
    /// No lock is held meanwhile. A listener that panics is contained and logged. Calls of two
    /// commits may come in either order: read the list anew rather than count.
    pub fn on_tasks_changed(&self, listener: impl Fn(Option<&SessionId>) + Send + Sync + 'static) -> ListenerGuard {
        self.shared.changed.add(move |scope| listener(scope.session()))
    }

    /// Calls `listener` with each session that was disposed, once its records are gone and before
    /// the change feed tells that its list is another one. A session of that name may be open again
    /// by then: look anew.
    pub fn on_session_removed(&self, listener: impl Fn(&SessionId) + Send + Sync + 'static) -> ListenerGuard {
        self.shared.removed.add(listener)
    }
}

impl fmt::Debug for TaskObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskObserver")
    }
}
