//! How a task's stop reaches the work that does it.

use tokio::sync::watch;

use crate::registry::{Stop, StopError, StopReason};

/// Rung to ask work to end. Dropped with the task's record, which asks too.
pub(super) struct Bell(watch::Sender<Option<StopReason>>);

impl Bell {
    /// A bell, and where it is heard. The receiver's error says that the task's record is gone.
    pub(super) fn new() -> (Self, watch::Receiver<Option<StopReason>>) {
        let (bell, asked) = watch::channel(None);
        (Self(bell), asked)
    }
}

impl Stop for Bell {
    fn stop(&self, reason: &StopReason) -> Result<(), StopError> {
        // Nobody listens once all the work is gone, and then there is nothing to ask.
        self.0.send_replace(Some(reason.clone()));
        Ok(())
    }
}
