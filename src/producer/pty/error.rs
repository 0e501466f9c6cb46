//! What can be wrong with something that is asked of a terminal.

use crate::{
    id::{SessionId, TaskId, TerminalId},
    registry::{LaunchError, StartError},
};

/// Why something cannot be done with a terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TerminalError {
    /// The session has as many open terminals as it may.
    #[error("{session} has {limit} open terminals, which is the limit; close one")]
    TooMany {
        /// Whose terminals.
        session: SessionId,
        /// [`max_open`](crate::config::TerminalLimits::max_open).
        limit: usize,
    },
    /// There is none of that id, or its record is gone.
    #[error("unknown terminal {0}")]
    Unknown(TerminalId),
    /// It is not the caller's.
    #[error("terminal {0} belongs to another session")]
    AnotherSession(TerminalId),
    /// A text is being sent to it.
    #[error("{} is still being sent to {id}; wait for it, or kill it", task.as_ref().map_or_else(|| "another text".to_owned(), ToString::to_string))]
    Busy {
        /// Which terminal.
        id: TerminalId,
        /// The task of the text, once it is registered.
        task: Option<TaskId>,
    },
    /// It has been asked to close.
    #[error("{0} is being closed")]
    Closing(TerminalId),
    /// Its process has ended, and all of its output was shown.
    #[error("the process in {id} has ended: {how}")]
    Ended {
        /// Which terminal.
        id: TerminalId,
        /// How its process ended.
        how: String,
    },
    /// The terminal, or the task of what is sent to it, could not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<LaunchError> for TerminalError {
    fn from(error: LaunchError) -> Self {
        Self::Start(error.into())
    }
}
