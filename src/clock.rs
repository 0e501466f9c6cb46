//! The one clock that everything on the wire is stamped by.
//!
//! Promise: it never goes back. When the machine's wall clock is set back, this one goes on at the
//! pace of the monotonic clock; when the wall clock is ahead (after a sleep, say), it follows.
//! So every duration made of two of its stamps is zero or more, and every stream's ids ascend.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A moment: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the registry and the streams read the time. Clones show the same time.
#[derive(Clone)]
pub struct Clock(Arc<Source>);

enum Source {
    System(Mutex<Latest>),
    Manual(AtomicU64),
}

/// The newest stamp given out, and when, by the clock that cannot be set.
struct Latest {
    stamp: u64,
    at: Instant,
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(Source::System(Mutex::new(Latest { stamp: wall_clock(), at: Instant::now() }))))
    }

    /// A clock that stands at `start` until [`Clock::set`] moves it: for tests.
    #[must_use]
    pub fn manual(start: UnixMillis) -> Self {
        Self(Arc::new(Source::Manual(AtomicU64::new(start.0))))
    }

    /// Moves a manual clock forward to `to`; a moment that is past, and the machine's clock, are
    /// left as they are.
    pub fn set(&self, to: UnixMillis) {
        if let Source::Manual(now) = &*self.0 {
            now.fetch_max(to.0, Ordering::Relaxed);
        }
    }

    /// The time, never less than at any call before.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        match &*self.0 {
            Source::System(latest) => {
                let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                UnixMillis(latest.step(wall_clock(), Instant::now()))
            }
            Source::Manual(now) => UnixMillis(now.load(Ordering::Relaxed)),
        }
    }
}

impl Latest {
    fn step(&mut self, wall: u64, at: Instant) -> u64 {
        let elapsed = at.saturating_duration_since(self.at);
        let paced = self.stamp.saturating_add(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        if wall > paced {
            *self = Self { stamp: wall, at };
        } else {
            // Whole milliseconds only: what is left over counts in the next step, else a caller
            // more frequent than once a millisecond would stop the clock.
            self.at += Duration::from_millis(paced - self.stamp);
            self.stamp = paced;
        }
        self.stamp
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_set_back_does_not_stop_or_turn_time() {
        let start = Instant::now();
        let mut latest = Latest { stamp: 10_000, at: start };
        assert_eq!(latest.step(10_500, start + Duration::from_millis(500)), 10_500);
        assert_eq!(latest.step(2_000, start + Duration::from_millis(900)), 10_900);
        assert_eq!(latest.step(2_100, start + Duration::from_secs(1)), 11_000);
    }

    #[test]
    fn a_wall_clock_ahead_is_followed() {
        let start = Instant::now();
        let mut latest = Latest { stamp: 10_000, at: start };
        assert_eq!(latest.step(3_610_000, start + Duration::from_millis(5)), 3_610_000);
    }

    #[test]
    fn many_calls_in_one_millisecond_lose_no_time() {
        let start = Instant::now();
        let mut latest = Latest { stamp: 0, at: start };
        for tenth in 1..=105 {
            latest.step(0, start + Duration::from_micros(tenth * 100));
        }
        assert_eq!(latest.stamp, 10);
    }
}
