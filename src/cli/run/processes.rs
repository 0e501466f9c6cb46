//! What the kernel tells of processes (`proc_pid_status(5)`, `proc_pid_stat(5)`).

use rustix::process::{Pid, Signal};

/// Whether a process of ours ignores a signal.
pub(super) fn is_ignored(signal: Signal) -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| has(&status, "SigIgn:", signal))
}

/// Whether a process neither ignores a signal nor has a handler for it.
pub(super) fn is_default(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    status.is_ok_and(|status| !has(&status, "SigIgn:", signal) && !has(&status, "SigCgt:", signal))
}

/// Whether a process group has a member that lives. One that has ended and that nobody reaps, as
/// where process 1 does not, lives no more.
pub(super) fn is_alive(group: Pid) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let mut stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats.any(|stat| group_of_living(&stat) == Some(group.as_raw_nonzero().get()))
}

fn group_of_living(stat: &str) -> Option<i32> {
    // The name in brackets may hold anything: what counts is behind it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(group)
}

fn has(status: &str, field: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix(field));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_counts_from_the_first_signal() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000080002\n";
        assert!(has(status, "SigIgn:", Signal::HUP) && !has(status, "SigIgn:", Signal::INT));
        assert!(has(status, "SigCgt:", Signal::INT) && has(status, "SigCgt:", Signal::TSTP));
    }

    #[test]
    fn a_process_that_nobody_reaps_does_not_live() {
        assert_eq!(group_of_living("12 (a) b) S 1 77 77 0"), Some(77));
        assert_eq!(group_of_living("12 (a) Z 1 77 77 0"), None);
        assert!(is_alive(rustix::process::getpgrp()));
    }
}
