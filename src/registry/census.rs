//! The registry in numbers, for gauges and counters: nothing that names a session or a task.

use super::{Registry, lock};
use crate::task::Status;

/// How many there are of what, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Census {
    /// Open sessions.
    pub sessions: usize,
    /// Records there are now.
    pub tasks: ByStatus,
    /// Tasks ever started.
    pub started: u64,
    /// Tasks ever ended, and how; their records may be gone.
    pub ended: ByEnd,
    /// How often the change feed fired.
    pub changes: u64,
}

/// Records, by where they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "a field for each `Status`, which says what it is")]
pub struct ByStatus {
    pub running: u64,
    pub stopping: u64,
    pub ended: ByEnd,
}

/// Tasks that have ended, by how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "a field for each `End`, which says what it is")]
pub struct ByEnd {
    pub completed: u64,
    pub killed: u64,
    pub failed: u64,
}

impl Registry {
    /// Counts. It looks at every record, under the lock: for whoever asks every few seconds.
    #[must_use]
    pub fn census(&self) -> Census {
        let state = lock(&self.shared.state);
        let mut tasks = ByStatus::default();
        for entry in state.entries() {
            tasks.count(entry.task.status());
        }
        Census {
            sessions: state.sessions().len(),
            tasks,
            started: state.started,
            ended: state.ended,
            changes: self.shared.changed.fired(),
        }
    }
}

impl ByStatus {
    fn count(&mut self, status: Status) {
        match status {
            Status::Running => self.running += 1,
            Status::Stopping => self.stopping += 1,
            Status::Completed | Status::Killed | Status::Failed => self.ended.count(status),
        }
    }
}

impl ByEnd {
    /// Counts an end; a status that is none is left out.
    pub(super) fn count(&mut self, status: Status) {
        match status {
            Status::Completed => self.completed += 1,
            Status::Killed => self.killed += 1,
            Status::Failed => self.failed += 1,
            Status::Running | Status::Stopping => {}
        }
    }
}
