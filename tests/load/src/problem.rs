//! Why a measurement says nothing.

use std::{io, time::Duration};

pub(crate) type Result<T> = std::result::Result<T, Problem>;

#[derive(Debug)]
pub(crate) enum Problem {
    System(io::Error),
    /// The server refused a change or a stream; its answer.
    Refused(String),
    /// A reader got what it cannot get.
    Confused(crate::board::Confusion),
    /// Readers that had not got the newest list of their session in that time.
    Late {
        readers: usize,
        of: usize,
        patience: Duration,
    },
    /// Readers whose streams the server refused or closed.
    Lost {
        readers: usize,
        of: usize,
    },
    /// A stream's last bytes are not the end of an event.
    Torn(String),
    /// The server did not come up, and why.
    NotUp(String),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::Refused(answer) => {
                let mut lines = answer.lines();
                let (first, last) = (lines.next().unwrap_or("no answer"), lines.next_back().unwrap_or_default());
                write!(f, "refused: {first} {last}")
            }
            Self::Confused(confusion) => confusion.fmt(f),
            Self::Late { readers, of, patience } => {
                write!(f, "{readers} of {of} readers lack the newest list after {} s", patience.as_secs())
            }
            Self::Lost { readers, of } => write!(f, "{readers} of {of} streams were refused or closed by the server"),
            Self::Torn(tail) => write!(f, "a stream ends within an event: {tail:?}"),
            Self::NotUp(why) => write!(f, "does not come up: {why}"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<nix::Error> for Problem {
    fn from(error: nix::Error) -> Self {
        Self::System(error.into())
    }
}

impl From<crate::board::Confusion> for Problem {
    fn from(confusion: crate::board::Confusion) -> Self {
        Self::Confused(confusion)
    }
}
