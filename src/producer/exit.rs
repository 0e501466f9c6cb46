//! How a process ended, in the words of the wire.

use std::{fmt, os::unix::process::ExitStatusExt, process::ExitStatus};

use rustix::process::Signal;

/// How a process ended, in the words that a task's detail has: `exit code: N` or `signal: NAME`.
#[derive(Debug, Clone, Copy)]
pub struct Exit(pub ExitStatus);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "exit code: {code}"),
            (None, Some(number)) => match signal_name(number) {
                Some(name) => write!(f, "signal: {name}"),
                None => write!(f, "signal: {number}"),
            },
            (None, None) => write!(f, "{}", self.0),
        }
    }
}

/// POSIX.1-2024 `<signal.h>`, and the few more that Linux has.
fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [(Signal, &str); 30] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::STKFLT, "SIGSTKFLT"),
        (Signal::CHILD, "SIGCHLD"),
        (Signal::CONT, "SIGCONT"),
        (Signal::STOP, "SIGSTOP"),
        (Signal::TSTP, "SIGTSTP"),
        (Signal::TTIN, "SIGTTIN"),
        (Signal::TTOU, "SIGTTOU"),
        (Signal::URG, "SIGURG"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::WINCH, "SIGWINCH"),
        (Signal::POWER, "SIGPWR"),
        (Signal::SYS, "SIGSYS"),
    ];
    NAMES.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_told_by_its_code_or_by_the_name_of_its_signal() {
        let words = |raw| Exit(ExitStatus::from_raw(raw)).to_string();
        assert_eq!(words(3 << 8), "exit code: 3");
        assert_eq!(words(15), "signal: SIGTERM");
        assert_eq!(words(0x0b | 0x80), "signal: SIGSEGV");
        assert_eq!(words(40), "signal: 40");
    }
}
