//! What the registry asks of whoever makes tasks.

use std::{fmt, io, sync::Arc};

use super::TaskHandle;

/// Somebody who can start one piece of work.
pub trait Producer {
    /// Starts the work, or says why it cannot.
    ///
    /// Called after the registry admitted the task and before it registers it: when this fails,
    /// nothing was registered and no id is used up.
    ///
    /// # Errors
    /// Whatever kept the work from starting.
    fn launch(self) -> Result<Launched, LaunchError>;
}

/// Work that has started and has no record yet.
///
/// Dropping it unadopted (the owner was disposed in the same moment) must end the work, so keep
/// whatever does that inside the closure.
pub struct Launched {
    pub(super) stop: Arc<dyn Stop>,
    pub(super) adopt: Box<dyn FnOnce(TaskHandle) + Send>,
}

impl Launched {
    /// `stop` ends the work when asked. `adopt` is called once, when the task is registered, with
    /// the handle by which the work reports; it must not block.
    ///
    /// The registry keeps `stop` for as long as it keeps the record, and drops it with it: what
    /// the work left running can end then.
    pub fn new(stop: impl Stop + 'static, adopt: impl FnOnce(TaskHandle) + Send + 'static) -> Self {
        Self { stop: Arc::new(stop), adopt: Box::new(adopt) }
    }
}

impl fmt::Debug for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Launched")
    }
}

/// The way to ask a live task to end.
pub trait Stop: Send + Sync {
    /// Asks, and returns at once; the end comes by the task's handle. It may be asked again.
    ///
    /// # Errors
    /// When the work cannot be asked; the record then stays as it is.
    fn stop(&self, reason: &StopReason) -> Result<(), StopError>;
}

/// Why a task is asked to end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// Somebody asked, and maybe said why.
    Requested(Option<String>),
    /// Its session is over.
    OwnerDisposed,
    /// The gateway shuts down.
    Shutdown,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested(None) => f.write_str("requested"),
            Self::Requested(Some(why)) => write!(f, "requested: {}", why.escape_debug()),
            Self::OwnerDisposed => f.write_str("session disposed"),
            Self::Shutdown => f.write_str("gateway shut down"),
        }
    }
}

/// Why work could not be asked to end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StopError(pub String);

/// Why work did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Something that was asked for cannot be had.
    #[error("{problem}")]
    Field {
        /// What it was asked for in: `cwd`, `command`, `kind`, …
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The system refused: no process, no descriptor, no memory.
    #[error("the system could not {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What it answered.
        source: io::Error,
    },
}
