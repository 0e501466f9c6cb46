//! One text that is sent to a terminal: what is still to be typed, and how long it is followed.
//!
//! Never here: the terminal. Whoever owns it asks what is due.

use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::{sync::watch, time::Instant};

use super::{Wait, terminal::Claim};
use crate::{
    registry::{StopReason, TaskHandle},
    task::{End, Outcome},
};

/// After Ctrl-C, so much silence says that it was heeded.
const QUIET: Duration = Duration::from_millis(250);
/// How often Ctrl-C is typed behind SIGKILL: a shell whose loop lost one job starts the next, and
/// a child that it just forks may swallow what is typed in that moment.
const RETRIES: u8 = 8;

/// A live send. Dropped, it lets the next one in, and its task settles.
pub(super) struct Sending {
    /// In front of the task: whoever sees that the task has ended can send the next text.
    claim: Claim,
    task: TaskHandle,
    asked: Asked,
    unsent: Bytes,
    follow: Follow,
}

/// Hears when somebody asks for a task's end; nothing once its record is gone.
pub(super) struct Asked(Option<watch::Receiver<Option<StopReason>>>);

impl Asked {
    /// The next time somebody asks; none says that the record is gone, once. Safe to drop.
    pub(super) async fn next(&mut self) -> Option<StopReason> {
        let Some(asked) = &mut self.0 else { return std::future::pending().await };
        if asked.changed().await.is_ok() {
            return asked.borrow_and_update().clone();
        }
        self.0 = None;
        None
    }
}

/// Until when a send is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Follow {
    idle: Duration,
    /// The last output, typing, or start.
    quiet_since: Instant,
    give_up_at: Instant,
    pub(super) interruption: Interruption,
    retries: u8,
}

/// How far the end of what was sent has been forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    None,
    /// Ctrl-C was typed.
    Asked,
    /// Ctrl-C was typed again: a shell misses the first when a job of its loop ends just then.
    AskedAgain,
    /// The job in the foreground did not heed it, and got SIGKILL.
    Forced,
}

impl Sending {
    pub(super) fn new(
        claim: Claim,
        task: TaskHandle,
        asked: watch::Receiver<Option<StopReason>>,
        text: Bytes,
        wait: Wait,
    ) -> Self {
        Self { claim, task, asked: Asked(Some(asked)), unsent: text, follow: Follow::from(Instant::now(), wait) }
    }

    /// What is still to be typed.
    pub(super) fn unsent(&self) -> &Bytes {
        &self.unsent
    }

    pub(super) fn typed(&mut self, bytes: usize) {
        self.unsent.advance(bytes.min(self.unsent.len()));
        self.follow.heard(Instant::now());
    }

    /// Shows what the terminal put out before.
    pub(super) fn catch_up(&self, unseen: &str) {
        self.task.append(unseen.as_bytes());
    }

    /// Output came.
    pub(super) fn put_out(&mut self, bytes: &[u8]) {
        self.task.append(bytes);
        self.follow.heard(Instant::now());
    }

    pub(super) fn follow(&self) -> Follow {
        self.follow
    }

    /// Looks again after as much silence.
    pub(super) fn follow_on(&mut self) {
        self.follow.heard(Instant::now());
    }

    /// Ctrl-C was typed: nothing of the text is typed any more, and the end is near. Half of the
    /// grace is for the first Ctrl-C, half for the second.
    pub(super) fn interrupted(&mut self, grace: Duration) {
        self.unsent.clear();
        self.follow.interrupted(Instant::now(), grace);
    }

    /// The foreground got SIGKILL.
    pub(super) fn forced(&mut self) {
        self.follow.forced(Instant::now());
    }

    /// Whether Ctrl-C is to be typed once more behind SIGKILL.
    pub(super) fn retried(&mut self) -> bool {
        self.follow.retried(Instant::now())
    }

    /// What hears of it when somebody asks for the task's end, and the task.
    pub(super) fn parts(&mut self) -> (&mut Asked, &TaskHandle) {
        (&mut self.asked, &self.task)
    }

    /// When silence ends it; not while there is something to be typed.
    pub(super) fn idle_at(&self) -> Option<Instant> {
        self.unsent.is_empty().then(|| self.follow.idle_at())
    }

    /// Settles a send that the terminal was gone before.
    pub(super) fn lost(self) {
        self.settle(Outcome::new(End::Failed).with_detail("the terminal was closed"));
    }

    pub(super) fn settle(self, outcome: Outcome) {
        drop(self.claim);
        self.task.settle(outcome);
    }
}

impl Follow {
    fn from(now: Instant, wait: Wait) -> Self {
        Self {
            idle: wait.idle(),
            quiet_since: now,
            give_up_at: now + wait.timeout(),
            interruption: Interruption::None,
            retries: RETRIES,
        }
    }

    fn heard(&mut self, now: Instant) {
        self.quiet_since = now;
    }

    fn interrupted(&mut self, now: Instant, grace: Duration) {
        let next = match self.interruption {
            Interruption::None => Some(Interruption::Asked),
            Interruption::Asked => Some(Interruption::AskedAgain),
            Interruption::AskedAgain | Interruption::Forced => None,
        };
        if let Some(next) = next {
            self.interruption = next;
            self.idle = QUIET;
            self.give_up_at = now + grace / 2;
        }
        self.quiet_since = now;
    }

    fn forced(&mut self, now: Instant) {
        self.interruption = Interruption::Forced;
        self.quiet_since = now;
        self.give_up_at = now + QUIET * 2;
    }

    fn retried(&mut self, now: Instant) -> bool {
        let Some(left) = self.retries.checked_sub(1) else { return false };
        self.retries = left;
        self.quiet_since = now;
        self.give_up_at = now + QUIET * 2;
        true
    }

    fn idle_at(self) -> Instant {
        self.quiet_since + self.idle
    }

    pub(super) fn give_up_at(self) -> Instant {
        self.give_up_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn output_puts_silence_off_and_never_the_timeout() {
        let start = Instant::now();
        let mut follow = Follow::from(start, Wait::default());
        assert_eq!(follow.idle_at() - start, Duration::from_secs(3));
        follow.heard(start + Duration::from_secs(2));
        assert_eq!(follow.idle_at() - start, Duration::from_secs(5));
        assert_eq!(follow.give_up_at() - start, Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn an_interruption_is_awaited_for_the_grace_and_asking_more_often_wins_no_more() {
        let start = Instant::now();
        let mut follow = Follow::from(start, Wait::default());
        let grace = Duration::from_secs(3);
        follow.interrupted(start, grace);
        assert_eq!(follow.give_up_at() - start, grace / 2);
        assert_eq!(follow.idle_at() - start, QUIET);
        follow.interrupted(start + grace / 2, grace);
        assert_eq!(follow.interruption, Interruption::AskedAgain);
        assert_eq!(follow.give_up_at() - start, grace);
        follow.interrupted(start + grace, grace);
        assert_eq!(follow.give_up_at() - start, grace);
    }
}
