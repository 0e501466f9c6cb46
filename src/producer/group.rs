//! A process group of ours, and when it may be signalled.
//!
//! Promise: a group that was seen gone is never signalled again, since its number may be somebody
//! else's by then. While its leader is not reaped, or another member lives, the kernel gives the
//! number to nobody; numbers are handed out in turn, so that between two looks a fraction of a
//! second apart one cannot come round again.

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group, test_kill_process_group},
};

/// One process group.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    gone: bool,
}

impl Group {
    /// The group that `leader`, a child of ours, leads.
    pub(super) fn led_by(leader: Pid) -> Self {
        Self { leader, gone: false }
    }

    /// Sends a signal to every member; none is sent to a group that is gone.
    pub(super) fn signal(&mut self, signal: Signal) {
        if !self.gone {
            self.gone = matches!(kill_process_group(self.leader, signal), Err(Errno::SRCH));
        }
    }

    /// Whether no member is left. A leader that was not reaped is one.
    pub(super) fn is_gone(&mut self) -> bool {
        self.gone = self.gone || matches!(test_kill_process_group(self.leader), Err(Errno::SRCH));
        self.gone
    }
}
