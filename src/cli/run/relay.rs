//! Bytes on their way: the command's output to our streams, and our keys to its terminal.
//!
//! Promise: every byte passes as it is. Each way has a thread of its own, so that nothing but our
//! own streams can slow the command down.

use std::{
    fs::File,
    io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write, pipe},
    os::fd::AsFd,
    sync::Arc,
    thread,
};

use pty_process::blocking::Pty;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionread},
    process::{Pid, Signal, kill_process, kill_process_group},
    pty::{OpenptFlags, ioctl_tiocgptpeer},
    termios::{LocalModes, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp},
};
use tokio::sync::mpsc;

use super::{child::Outputs, processes, tail::Tail, terminal::Keyboard};

/// Bytes taken from a pipe at once: what it holds.
const READ_SIZE: usize = 64 * 1024;

/// Bytes taken at most once the command has ended: more than a pipe holds by then, and an end to
/// what a process that it left behind goes on to write. Linux has no larger pipes.
const MAX_LEFT: usize = 1024 * 1024;

/// Keys that Linux keeps for who reads a terminal (`N_TTY_BUF_SIZE`, less one).
const TERMINAL_HOLDS: u64 = 4095;

/// Keys that the command has not read yet: more are left in our terminal.
const MAX_UNREAD_KEYS: usize = 64 * 1024;

/// The threads that carry output.
pub(super) struct Relay {
    /// Closed when the command has ended.
    running: Option<PipeWriter>,
    /// Each thread holds the other end until it ends.
    carrying: mpsc::Receiver<()>,
}

impl Relay {
    pub(super) fn start(outputs: Outputs, tail: &Arc<Tail>) -> io::Result<Self> {
        let (ended, running) = pipe()?;
        let (carries, carrying) = mpsc::channel(1);
        if let Some((pty, stream)) = outputs.terminal {
            let (ended, tail, carries) = (ended.try_clone()?, Arc::clone(tail), carries.clone());
            thread::spawn(move || {
                carry(&*pty, stream, &ended, &tail);
                drop(carries);
            });
        }
        for (pipe, stream) in outputs.pipes {
            let (ended, tail, carries) = (ended.try_clone()?, Arc::clone(tail), carries.clone());
            thread::spawn(move || {
                carry(pipe, stream, &ended, &tail);
                drop(carries);
            });
        }
        Ok(Self { running: Some(running), carrying })
    }

    /// The command has ended: what it left is carried still, and nothing that comes later.
    pub(super) fn finish(&mut self) {
        self.running = None;
    }

    /// Returns when all is carried. Safe to drop.
    pub(super) async fn finished(&mut self) {
        // Nothing is ever sent: this is the end of the last thread.
        let _ = self.carrying.recv().await;
    }
}

/// Carries output until its end. A process that is left behind may hold it open for ever, so once
/// the command has `ended`, a moment without output is the end too.
fn carry(mut source: impl Read + AsFd, mut stream: File, ended: &PipeReader, tail: &Tail) {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_terminal = stream.is_terminal();
    let mut buffer = vec![0; READ_SIZE];
    let mut open = true;
    let mut left = MAX_LEFT;
    while left > 0 {
        if is_ready(ended, PollFlags::IN, Some(&AT_ONCE)) {
            if !is_ready(&source, PollFlags::IN, Some(&AT_ONCE)) {
                return;
            }
            left = left.saturating_sub(READ_SIZE);
        } else {
            let mut either = [PollFd::new(&source, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            if poll(&mut either, None).is_err() || either[0].revents().is_empty() {
                continue;
            }
        }
        let read = match source.read(&mut buffer) {
            // A terminal that nobody has open any more says EIO.
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            Err(_) => return,
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        tail.append(bytes);
        if open && write_all(&mut stream, bytes).is_err() {
            if !is_terminal {
                // Nobody reads: the command learns it as it would from our stream itself.
                return;
            }
            open = false;
        }
    }
}

/// Writes all, also to a stream that somebody made non-blocking.
fn write_all(stream: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                is_ready(&*stream, PollFlags::OUT, None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_ready(descriptor: impl AsFd, what: PollFlags, timeout: Option<&Timespec>) -> bool {
    let mut descriptors = [PollFd::new(&descriptor, what)];
    let ready = poll(&mut descriptors, timeout);
    ready.is_ok_and(|ready| ready > 0)
}

/// Carries our terminal's keys to the command's, while they are ours to read.
pub(super) struct Keys {
    pub(super) keyboard: Arc<Keyboard>,
    pub(super) terminal: Arc<Pty>,
    pub(super) command: Pid,
}

impl Keys {
    /// Ends with the process, or with our terminal.
    pub(super) fn start(self) {
        thread::spawn(move || self.carry());
    }

    fn carry(self) {
        let mut stdin = match io::stdin().as_fd().try_clone_to_owned() {
            Ok(stdin) => File::from(stdin),
            Err(_) => return,
        };
        let mut unread = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            self.keyboard.wait_until_held();
            let from_us = if unread.len() < MAX_UNREAD_KEYS { PollFlags::IN } else { PollFlags::empty() };
            let to_it = if unread.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let mut ways = [PollFd::new(&stdin, from_us), PollFd::new(&*self.terminal, to_it)];
            if let Err(error) = poll(&mut ways, None) {
                if error == Errno::INTR {
                    continue;
                }
                return;
            }
            let [ours, its] = ways.map(|way| way.revents());
            if its.intersects(PollFlags::HUP | PollFlags::ERR) {
                return;
            }
            if ours.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && self.keyboard.is_held() {
                match stdin.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => self.take(buffer.get(..read).unwrap_or_default(), &mut unread),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
            if unread.is_empty() {
                continue;
            }
            match (&*self.terminal).write(&unread) {
                Ok(written) => drop(unread.drain(..written)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => return,
            }
        }
    }

    /// Keys that were pressed.
    fn take(&self, keys: &[u8], unread: &mut Vec<u8>) {
        let Ok(settings) = tcgetattr(&*self.terminal) else { return unread.extend(keys) };
        if presses(&settings, SpecialCodeIndex::VINTR, keys) && (!unread.is_empty() || self.is_full()) {
            // It would only wait behind what nobody reads.
            unread.clear();
            if let Ok(front) = tcgetpgrp(self.terminal.as_fd()) {
                let _ = kill_process_group(front, Signal::INT);
            }
            return;
        }
        if presses(&settings, SpecialCodeIndex::VSUSP, keys) && self.would_not_stop() {
            let suspend = settings.special_codes[SpecialCodeIndex::VSUSP];
            unread.extend(keys.iter().filter(|key| **key != suspend));
            // The rest of its group follows once it has stopped: a child that is stopped before it
            // runs its program would hold its parent up, and with it the stop.
            let _ = kill_process(self.command, Signal::STOP);
            return;
        }
        unread.extend(keys);
    }

    /// Whether the command's terminal holds all the keys that it can, and looks at no other.
    fn is_full(&self) -> bool {
        let its = ioctl_tiocgptpeer(&*self.terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        its.and_then(ioctl_fionread).is_ok_and(|keys| keys >= TERMINAL_HOLDS)
    }

    /// Whether the command has the terminal and would be stopped by Ctrl-Z, but that the kernel
    /// does not stop a group which nobody in its session could continue (POSIX.1-2024, "orphaned
    /// process group"). Its parent, this process, can.
    fn would_not_stop(&self) -> bool {
        tcgetpgrp(self.terminal.as_fd()).is_ok_and(|front| front == self.command)
            && processes::is_default(self.command, Signal::TSTP)
    }
}

fn presses(settings: &Termios, key: SpecialCodeIndex, keys: &[u8]) -> bool {
    let code = settings.special_codes[key];
    // 0 is a key that is switched off.
    settings.local_modes.contains(LocalModes::ISIG) && code != 0 && keys.contains(&code)
}
