//! How long to wait before another attempt.

use std::time::Duration;

/// Waits that double from the first to the longest, each shortened by up to half, so that many who
/// lost the same gateway do not come back all at once.
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The next wait.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// An attempt went well.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The other side asks for this first wait.
    pub(super) fn start_at(&mut self, first: Duration) {
        self.first = first.min(self.longest);
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_longest_and_are_spread() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, 5 * second);
        for most in [1, 2, 4, 5, 5] {
            let wait = backoff.next();
            assert!(wait >= most * second / 2 && wait <= most * second, "{wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= second);
    }
}
