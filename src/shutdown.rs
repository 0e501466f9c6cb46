//! One-way shutdown: running, then draining, then ending; and the signals that ask for it.
//!
//! Promise: a phase is entered once, in this order, and whoever looks later still sees it.

use tokio::sync::watch;

/// How far a shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// In service.
    Running,
    /// Nothing new is accepted; children are being ended while streams still show it.
    Draining,
    /// Streams and connections end.
    Ending,
}

/// The end that moves the phase on. Dropping it ends all, at once: nothing waits for ever on
/// somebody who is gone.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<Phase>);

/// The end that is watched. Clones see the same phase.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<Phase>);

/// A new pair, in [`Phase::Running`].
#[must_use]
pub fn channel() -> (ShutdownTrigger, Shutdown) {
    let (trigger, shutdown) = watch::channel(Phase::Running);
    (ShutdownTrigger(trigger), Shutdown(shutdown))
}

impl ShutdownTrigger {
    /// Moves on to `phase`; never back.
    pub fn enter(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let onward = phase > *now;
            *now = phase.max(*now);
            onward
        });
    }
}

impl Shutdown {
    /// How far it has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.0.has_changed().is_err() { Phase::Ending } else { *self.0.borrow() }
    }

    /// Returns once `phase`, or a later one, is entered.
    pub async fn reached(&mut self, phase: Phase) {
        // An error says that the trigger is gone, which ends all.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

/// Returns at the next SIGTERM or SIGINT.
///
/// # Errors
/// When the process cannot listen for signals.
pub fn signals() -> std::io::Result<impl AsyncFnMut()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_only_go_onward_and_are_seen_late() {
        let (trigger, mut shutdown) = channel();
        assert_eq!(shutdown.phase(), Phase::Running);
        trigger.enter(Phase::Ending);
        trigger.enter(Phase::Draining);
        assert_eq!(shutdown.phase(), Phase::Ending);
        shutdown.reached(Phase::Draining).await;
    }

    #[tokio::test]
    async fn a_trigger_that_is_gone_ends_all() {
        let (trigger, mut shutdown) = channel();
        drop(trigger);
        shutdown.reached(Phase::Ending).await;
        assert_eq!(shutdown.phase(), Phase::Ending);
    }
}
