//! How a process's supervisor is asked to end its task.

use tokio::sync::watch;

use crate::registry::{Stop, StopError, StopReason};

/// Rung to ask for the end of a task.
pub(super) struct Bell(watch::Sender<Option<StopReason>>);

impl Bell {
    /// A bell, and what hears it. The receiver's error says that the task's record is gone.
    pub(super) fn new() -> (Self, watch::Receiver<Option<StopReason>>) {
        let (bell, asked) = watch::channel(None);
        (Self(bell), asked)
    }
}

impl Stop for Bell {
    fn stop(&self, reason: &StopReason) -> Result<(), StopError> {
        // Nobody listens once what it would end is gone, and then there is nothing to ask.
        self.0.send_replace(Some(reason.clone()));
        Ok(())
    }
}
