//! The terminal that `run` was started in.
//!
//! Promise: it is set back to how it was found, whatever comes. It is only touched while this job
//! is in the foreground, as else the kernel would stop us (SIGTTOU).

use std::{
    fs::File,
    io,
    os::fd::AsFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::{
    process::{Pid, getpgrp},
    termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetpgrp},
};

/// Our terminal, whose keys all go to the command's.
pub(super) struct Keyboard {
    found: Termios,
    held: Mutex<bool>,
    changed: Condvar,
}

impl Keyboard {
    /// Remembers how the terminal is set; nothing is changed yet.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { found: tcgetattr(io::stdin())?, held: Mutex::new(false), changed: Condvar::new() })
    }

    /// How it was found.
    pub(super) fn found(&self) -> &Termios {
        &self.found
    }

    /// Lets every key through as it is, if this job is in the foreground; whether it is.
    pub(super) fn hold(&self) -> bool {
        let mut held = self.held();
        if !*held && is_foreground() {
            let mut raw = self.found.clone();
            raw.make_raw();
            *held = tcsetattr(io::stdin(), OptionalActions::Drain, &raw).is_ok();
            self.changed.notify_all();
        }
        *held
    }

    /// Sets it back.
    pub(super) fn release(&self) {
        let mut held = self.held();
        if *held {
            *held = false;
            // What cannot be set any more is gone.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.found);
        }
    }

    /// Returns once its keys are ours to read.
    pub(super) fn wait_until_held(&self) {
        let held = self.held();
        drop(self.changed.wait_while(held, |held| !*held));
    }

    pub(super) fn is_held(&self) -> bool {
        *self.held()
    }

    fn held(&self) -> MutexGuard<'_, bool> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the terminal back when it is dropped: the thread that reads the keys may outlive it.
pub(super) struct SetBack(pub(super) Arc<Keyboard>);

impl Drop for SetBack {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Whether keys go to this job. A terminal that is not ours to control has no foreground.
fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).map_or(true, |group| group == getpgrp())
}

/// How large the terminal is that output goes to.
pub(super) fn size() -> Option<Winsize> {
    tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stderr())).ok()
}

/// The terminal that controls this job, lent to the command's group while it reads keys there.
#[derive(Default)]
pub(super) struct Foreground {
    lent: Option<File>,
}

impl Foreground {
    /// Puts the command's group into the foreground, if that is ours to give; whether it was.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { return false };
        let ours = tcgetpgrp(&terminal).is_ok_and(|front| front == getpgrp());
        if ours && tcsetpgrp(&terminal, group).is_ok() {
            self.lent = Some(terminal);
            return true;
        }
        false
    }

    /// Takes it back; whether it was lent.
    pub(super) fn take_back(&mut self) -> bool {
        let Some(terminal) = self.lent.take() else { return false };
        // From the background this is refused by a signal, unless that is blocked (tcsetpgrp(3)).
        let mut blocked = SigSet::empty();
        blocked.add(NixSignal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(terminal.as_fd(), getpgrp());
            let _ = blocked.thread_unblock();
        }
        true
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        self.take_back();
    }
}
