//! The processes of a terminal: the kernel's session that its first process leads, whatever
//! groups its jobs are in (setsid(2), credentials(7)).
//!
//! Promises:
//! - Only a process that is a member at that moment is signalled: it is held by a pidfd while
//!   that is looked up.
//! - Members that were seen gone are never looked for again, since their session's number may be
//!   somebody else's by then. While a member lives, the kernel gives the number to nobody.
//! - Dropped before the leader was reaped, all of them are killed.

use std::{fs, io, process::ExitStatus};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::producer::leader::Leader;

/// The members of one session.
#[derive(Debug)]
pub(super) struct Members {
    leader: Leader,
    gone: bool,
}

impl Members {
    /// The session of that leader.
    pub(super) fn led_by(leader: Leader) -> Self {
        Self { leader, gone: false }
    }

    /// The session's number, and that of the leader's group.
    pub(super) fn session(&self) -> Pid {
        self.leader.pid()
    }

    /// Returns once the leader has exited. Safe to drop.
    pub(super) async fn leader_exited(&self) {
        self.leader.exited().await;
    }

    /// How the leader ended, once it has exited.
    pub(super) fn reap_leader(&mut self) -> io::Result<ExitStatus> {
        self.leader.reap()
    }

    /// What a terminal that vanishes does to its processes, stopped ones too; and SIGTERM for
    /// those that ignore it.
    pub(super) fn hang_up(&self) {
        for signal in [Signal::HUP, Signal::TERM, Signal::CONT] {
            self.signal(signal);
        }
    }

    /// Sends a signal to every member.
    pub(super) fn signal(&self, signal: Signal) {
        for pid in self.living() {
            let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if self.has(pid) {
                // It may end in this moment, or be another user's: nothing is to be done then.
                let _ = pidfd_send_signal(held, signal);
            }
        }
    }

    /// Whether none is left. Ask only once the leader was reaped.
    pub(super) fn are_gone(&mut self) -> bool {
        self.gone = self.gone || self.living().is_empty();
        self.gone
    }

    fn living(&self) -> Vec<Pid> {
        if self.gone {
            return Vec::new();
        }
        let all = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let pids = all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        pids.filter(|pid| self.has(*pid)).collect()
    }

    fn has(&self, pid: Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        session_of(&stat) == Some(self.session().as_raw_nonzero().get())
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if !self.leader.is_reaped() {
            self.signal(Signal::KILL);
        }
    }
}

/// The session of a process that lives, by its `/proc/PID/stat` (`proc_pid_stat(5)`): pid, name in
/// parentheses, state, parent, group, session. A name may have parentheses of its own.
fn session_of(stat: &str) -> Option<i32> {
    let (_, behind_the_name) = stat.rsplit_once(')')?;
    let mut fields = behind_the_name.split_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let session = fields.nth(2)?.parse().ok()?;
    (!is_dead).then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_whatever_the_process_is_called() {
        assert_eq!(session_of("7 (bash) S 1 7 5 34816 7 4194304"), Some(5));
        assert_eq!(session_of("7 (a) Z 1 (b) S 1 7 6 0"), Some(6));
        assert_eq!(session_of("7 (bash) Z 1 7 5 0"), None);
        assert_eq!(session_of(""), None);
    }
}
