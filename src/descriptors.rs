//! How many files and sockets this process may have open, and how many its children may.
//!
//! Promise: a child is given back the limit that this process was started with, as soon as it runs.
//! Programs that use `select(2)`, or close every descriptor that they might have, rely on its being
//! small. What a child forks before that, in its first moment, has the raised one.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limit as it was before it was raised; never set if it was not.
static AT_START: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open descriptors as far as the system lets this process, and returns it: for
/// programs, at their start, since it is the whole process's. Left as it is where it cannot be raised.
pub fn raise() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            // Whoever came first knows what it was.
            let _ = AT_START.set(limit);
        }
    }
    allowed()
}

/// How many descriptors this process may have open.
pub(crate) fn allowed() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Gives a child the limit that this process was started with.
pub(crate) fn lower(child: Pid) {
    if let Some(limit) = AT_START.get() {
        // One that has exited needs none, and one that is another user's by now has its own.
        let _ = prlimit(Some(child), Resource::Nofile, *limit);
    }
}
