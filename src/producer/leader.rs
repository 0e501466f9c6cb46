//! A child process of ours: when it has exited, and when it is reaped.
//!
//! Promises:
//! - That it exited is seen before it is reaped, so that until [`Leader::reap`] its number is
//!   nobody else's.
//! - Dropped before it was reaped, it is killed and reaped: no child and no zombie stays behind,
//!   but for one that has become another user's.
//!
//! Never here: its group, its output.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    process::{Child, ExitStatus},
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

/// A running child, the leader of its process group.
#[derive(Debug)]
pub(super) struct Leader {
    child: Child,
    pid: Pid,
    /// Readable when the child has exited (`pidfd_open(2)`), which reaps nothing.
    exited: AsyncFd<OwnedFd>,
    reaped: bool,
}

impl Leader {
    /// Keeps an eye on a child from now on; one that cannot be watched is killed.
    pub(super) fn watch(mut child: Child) -> io::Result<Self> {
        let eye = || {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
            Ok((pid, registered(pidfd_open(pid, PidfdFlags::NONBLOCK)?)?))
        };
        match eye() {
            Ok((pid, exited)) => Ok(Self { child, pid, exited, reaped: false }),
            Err(error) => {
                if child.kill().is_ok() {
                    let _ = child.wait();
                }
                Err(error)
            }
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns once it has exited. Safe to drop.
    pub(super) async fn exited(&self) {
        // An error would say that the runtime goes, and with it whoever waits here.
        let _ = self.exited.readable().await;
    }

    /// Its status, once it has exited; its number may be somebody else's afterwards.
    pub(super) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        self.child.wait()
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.reaped
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Killed, it takes a moment at most to reap; what may not be killed could take for ever.
        if !self.reaped && self.child.kill().is_ok() {
            let _ = self.reap();
        }
    }
}

/// A descriptor whose readiness the runtime tells.
pub(super) fn registered<T: AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    #[allow(
        deprecated,
        reason = "its successor is an unsafe function; what comes in here owns its descriptor, so nobody else closes it"
    )]
    AsyncFd::new(descriptor)
}
