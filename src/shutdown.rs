//! One-way shutdown: running, then draining, then ending; and the signals that ask for it.
//!
//! Promise: a phase is entered once, in this order, and whoever looks later still sees it.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{sync::watch, task::coop::unconstrained};

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

    /// The same, for who is polled for much else too.
    pub(crate) fn until(self, phase: Phase) -> Until {
        let mut waiting = self.clone();
        Until {
            shutdown: self,
            // Nobody's share is to keep it from waiting: it is not asked again before it has to be.
            reached: Some(Box::pin(unconstrained(async move { waiting.reached(phase).await }))),
            looked_in: None,
        }
    }
}

/// Waits for a phase, and asks anew only when the phase has changed, which is what wakes who waits. To be
/// polled by one task.
pub(crate) struct Until {
    shutdown: Shutdown,
    /// None once it is.
    reached: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    looked_in: Option<Phase>,
}

impl Until {
    /// Ready once, when the phase is reached, and never again.
    pub(crate) fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(reached) = &mut self.reached else { return Poll::Pending };
        let now = self.shutdown.phase();
        if self.looked_in.replace(now) == Some(now) {
            return Poll::Pending;
        }
        ready!(reached.as_mut().poll(cx));
        self.reached = None;
        Poll::Ready(())
    }
}

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Until").field(&self.shutdown).finish()
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
    use std::future::poll_fn;

    use tokio::task::yield_now;

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
    async fn who_is_polled_for_much_else_is_woken_by_each_phase_and_told_once() {
        for (first, second, waited_for) in [
            (Phase::Draining, Phase::Ending, Phase::Draining),
            (Phase::Draining, Phase::Ending, Phase::Ending),
            (Phase::Ending, Phase::Ending, Phase::Draining),
        ] {
            let (trigger, shutdown) = channel();
            let mut until = shutdown.until(waited_for);
            let mut polls = 0;
            let waiting = tokio::spawn(poll_fn(move |cx| {
                polls += 1;
                match until.poll_once(cx) {
                    Poll::Ready(()) => {
                        assert!(until.poll_once(cx).is_pending());
                        Poll::Ready(polls)
                    }
                    Poll::Pending => {
                        assert!(until.poll_once(cx).is_pending());
                        Poll::Pending
                    }
                }
            }));
            yield_now().await;
            trigger.enter(first);
            yield_now().await;
            assert_eq!(waiting.is_finished(), first >= waited_for);
            trigger.enter(second);
            assert_eq!(waiting.await.unwrap(), if first >= waited_for { 2 } else { 3 });
        }
    }

    #[tokio::test]
    async fn a_trigger_that_is_gone_ends_all() {
        let (trigger, mut shutdown) = channel();
        drop(trigger);
        shutdown.reached(Phase::Ending).await;
        assert_eq!(shutdown.phase(), Phase::Ending);
    }
}
