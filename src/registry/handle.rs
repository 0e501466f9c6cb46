//! A producer's end of one task.

use std::{
    fmt, io,
    sync::{Arc, Mutex, Weak},
};

use tokio::sync::watch;

use super::{Shared, lock, state::Seq};
use crate::{
    id::{Scope, TaskId},
    output::{More, OutputLog, Unread},
    spill::{Spill, Spilled, Spills},
    task::{End, Outcome},
};

/// By this a producer reports: output while it lasts, and how it ended.
///
/// Promise: when it is dropped without an outcome, the task settles `failed` with a detail saying
/// so; a row never stays live with nobody to settle it. It does not keep the registry alive.
pub struct TaskHandle {
    pub(super) shared: Weak<Shared>,
    pub(super) scope: Scope,
    pub(super) seq: Seq,
    pub(super) id: TaskId,
    pub(super) output: Arc<TaskOutput>,
}

impl TaskHandle {
    /// The task's id.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Whether `caller` may see the task.
    pub(crate) fn is_seen_by(&self, caller: &Scope) -> bool {
        self.scope.is_seen_by(caller)
    }

    /// Adds to the task's output.
    pub fn append(&self, bytes: &[u8]) {
        self.output.append(&self.id, bytes);
    }

    /// Returns once more output can be taken: at once, unless the disk is behind with what fell out
    /// of memory. A disk that is behind for 5 s costs the file, and nobody waits for it any more.
    /// Await it before taking more from a source that can wait. Safe to drop.
    pub async fn room(&self) {
        self.output.room().await;
    }

    /// The way to the task's output alone.
    #[must_use]
    pub fn output(&self) -> TaskWriter {
        TaskWriter { id: self.id.clone(), output: Arc::clone(&self.output) }
    }

    /// Settles the task. The first outcome counts; a later one, and one for a task whose owner is
    /// gone, is ignored.
    pub fn settle(&self, outcome: Outcome) {
        if let Some(shared) = self.shared.upgrade() {
            shared.settle(&self.scope, self.seq, outcome);
        }
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        let detail = if std::thread::panicking() {
            "its producer panicked"
        } else {
            "its producer went away without saying how it ended"
        };
        self.settle(Outcome::new(End::Failed).with_detail(detail));
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskHandle").field(&self.id).finish()
    }
}

/// Adds to one task's output, and can do nothing else: for helpers of a producer. Clones write to
/// the same task; what comes after its end is still its output, for whoever reads on.
///
/// It is an [`io::Write`] that never blocks and never fails, so `write!` works.
#[derive(Clone)]
pub struct TaskWriter {
    id: TaskId,
    output: Arc<TaskOutput>,
}

impl io::Write for TaskWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.append(&self.id, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TaskWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskWriter")
    }
}

/// A task's output log and the news of it, apart from the registry's lock: output flows without
/// touching the registry.
pub(super) struct TaskOutput {
    log: Mutex<OutputLog>,
    /// Where all of it goes once something falls out of the log. Appended to under the log's lock,
    /// so that the file has the log's order.
    spill: Option<Arc<Spill>>,
    /// Whether more can come; sent again at every append, so that whoever waits looks anew.
    news: watch::Sender<More>,
}

impl TaskOutput {
    pub(super) fn new(limit: usize, spills: Option<&Spills>) -> Self {
        Self {
            log: Mutex::new(OutputLog::new(limit)),
            spill: spills.map(Spills::file),
            news: watch::Sender::new(More::Expected),
        }
    }

    fn append(&self, id: &TaskId, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut log = lock(&self.log);
        if let Some(spill) = &self.spill {
            if spill.has_begun() {
                spill.append(id, bytes);
            } else if log.overflows(bytes.len()) {
                // Nothing fell out before, so this is all there was.
                for part in log.kept().into_iter().chain([bytes]) {
                    spill.append(id, part);
                }
            }
        }
        log.append(bytes);
        drop(log);
        self.news.send_modify(|_| {});
    }

    /// Says that the task has ended or is gone.
    pub(super) fn end(&self) {
        self.news.send_replace(More::No);
    }

    pub(super) fn has_unread(&self, more: More) -> bool {
        lock(&self.log).has_unread(more)
    }

    pub(super) fn read(&self, more: More) -> Unread {
        lock(&self.log).read(more)
    }

    pub(super) fn spilled(&self) -> Option<Spilled> {
        self.spill.as_ref()?.spilled()
    }

    /// Returns once the file has all that was appended before, or is given up.
    pub(super) async fn flushed(&self) {
        if let Some(spill) = &self.spill {
            spill.flushed().await;
        }
    }

    async fn room(&self) {
        if let Some(spill) = &self.spill {
            spill.room().await;
        }
    }

    /// Removes the file: the record is gone, and nobody can be told of it any more.
    pub(super) fn discard(&self) {
        if let Some(spill) = &self.spill {
            spill.discard();
        }
    }

    pub(super) fn news(&self) -> watch::Receiver<More> {
        self.news.subscribe()
    }
}
