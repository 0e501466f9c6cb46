//! The name of a terminal.

use std::{fmt, num::NonZeroU64, str::FromStr};

use serde::{Serialize, Serializer};

/// A terminal's name: `term-<n>`, n counting from 1, never used twice in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminalId(NonZeroU64);

impl TerminalId {
    const PREFIX: &'static str = "term-";

    pub(crate) fn new(number: NonZeroU64) -> Self {
        Self(number)
    }
}

impl FromStr for TerminalId {
    type Err = InvalidTerminalId;

    /// Reads `term-<n>` in its one spelling: no sign, no leading zero.
    fn from_str(text: &str) -> Result<Self, InvalidTerminalId> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(InvalidTerminalId)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.starts_with('0') {
            return Err(InvalidTerminalId);
        }
        digits.parse().map(Self).map_err(|_| InvalidTerminalId)
    }
}

impl fmt::Display for TerminalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

impl Serialize for TerminalId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a text is not a [`TerminalId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a terminal's id is term- and a number from 1, such as term-1")]
pub struct InvalidTerminalId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_id_has_one_spelling() {
        for good in ["term-1", "term-42"] {
            assert_eq!(good.parse::<TerminalId>().unwrap().to_string(), good);
        }
        for bad in ["term", "term-", "term-0", "term-01", "term-+1", "Term-1", "bash-1", "1"] {
            assert_eq!(bad.parse::<TerminalId>(), Err(InvalidTerminalId), "{bad}");
        }
    }
}
