//! Numbers that a caller gives, checked where they enter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Bounded<const MIN: u64, const MAX: u64>(u64);

/// Why a number is not a [`Bounded`] one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{number} is not between {min} and {max}")]
pub struct OutOfBounds {
    number: u64,
    min: u64,
    max: u64,
}

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for Bounded<MIN, MAX> {
    type Error = OutOfBounds;
    fn try_from(number: u64) -> Result<Self, OutOfBounds> {
        let fits = (MIN..=MAX).contains(&number);
        if fits { Ok(Self(number)) } else { Err(OutOfBounds { number, min: MIN, max: MAX }) }
    }
}

impl<const MIN: u64, const MAX: u64> From<Bounded<MIN, MAX>> for u64 {
    fn from(number: Bounded<MIN, MAX>) -> u64 {
        number.0
    }
}

/// Rows or columns: 1 to 1,000, which is more than any screen has.
pub type Extent = Bounded<1, 1_000>;

/// How large a terminal's window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Lines.
    pub rows: Extent,
    /// Characters in a line.
    pub cols: Extent,
}

impl Size {
    /// 24 lines of 80 characters: what programs expect of a terminal that says nothing.
    pub const DEFAULT: Self = Self { rows: Bounded(24), cols: Bounded(80) };
}

impl From<Size> for pty_process::Size {
    fn from(size: Size) -> Self {
        let fitting = |extent: Extent| u16::try_from(extent.0).unwrap_or(u16::MAX);
        Self::new(fitting(size.rows), fitting(size.cols))
    }
}

/// How long a send follows the terminal's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Wait {
    /// It ends after so many milliseconds without output: 10 ms to an hour.
    pub idle_ms: Bounded<10, 3_600_000>,
    /// It ends after so many milliseconds in all: 10 ms to a day.
    pub timeout_ms: Bounded<10, 86_400_000>,
}

impl Wait {
    pub(super) fn idle(self) -> Duration {
        Duration::from_millis(self.idle_ms.0)
    }

    pub(super) fn timeout(self) -> Duration {
        Duration::from_millis(self.timeout_ms.0)
    }
}

impl Default for Wait {
    /// 3 s of silence, 30 s in all: a build that thinks is followed, and a model is not held up.
    fn default() -> Self {
        Self { idle_ms: Bounded(3_000), timeout_ms: Bounded(30_000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_bounds_is_refused_and_the_bounds_are_told() {
        assert_eq!(Extent::try_from(1_000).map(u64::from), Ok(1_000));
        assert_eq!(Extent::try_from(0).unwrap_err().to_string(), "0 is not between 1 and 1000");
        assert!(Extent::try_from(1_001).is_err());
    }
}
