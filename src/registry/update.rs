//! What a producer may change of its live task, beside its output.

use std::sync::Arc;

use super::{TaskHandle, lock};
use crate::task::{Detail, End, Label, Outcome, TaskView, row::Row};

/// A change to a live task. What is none stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// A new name.
    pub label: Option<Label>,
    /// How it gets on; with an end, how it ended.
    pub detail: Option<Detail>,
    /// That it has ended. What was said before of how it got on goes.
    pub end: Option<End>,
}

/// Why a task was not changed: it has ended, or its record is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task has ended")]
pub struct Finished;

impl TaskHandle {
    /// Changes the task, all in one commit, and returns it as it stands then. A task that was asked
    /// to end stays `stopping` until an update ends it.
    ///
    /// # Errors
    /// When the task has ended: the first outcome counts, and nothing has changed.
    pub fn update(&self, update: Update) -> Result<TaskView, Finished> {
        self.report(update).map(|row| row.task().clone())
    }

    /// The same; returns the task as all who look share it.
    pub(crate) fn report(&self, update: Update) -> Result<Arc<Row>, Finished> {
        let Update { label, detail, end } = update;
        let shared = self.shared.upgrade().ok_or(Finished)?;
        let mut state = lock(&shared.state);
        let task = state.live_task(&self.scope, self.seq).ok_or(Finished)?;
        let progress = if end.is_none() { detail.as_ref() } else { None };
        let changed = task.describe(label, progress).map_err(|_| Finished)?;
        let Some(end) = end else {
            let row = task.row();
            drop(state);
            if changed {
                shared.changed.notify(&self.scope);
            }
            return Ok(row);
        };
        let outcome = detail.iter().fold(Outcome::new(end), Outcome::with_detail);
        let settled = state.settle(&self.scope, self.seq, outcome, shared.clock.now(), &shared.limits);
        let settled = settled.ok_or(Finished)?;
        drop(state);
        let row = Arc::new(settled.view.clone().into());
        shared.announce(&self.scope, settled);
        Ok(row)
    }
}
