//! The command: how it is started, signalled and waited for.
//!
//! Where stdin and stdout are a terminal, it gets one of its own and leads a session there, so that
//! keys, job control and full screens work as in ours. Else it is the background job of a group of
//! its own in our session: it reads our stdin, and what of its output goes to a terminal still goes
//! through one. What is no terminal is a pipe.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal, PipeReader, pipe},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Command, ExitStatus},
    sync::Arc,
};

use pty_process::blocking::{self, Pts, Pty};
use rustix::{
    fs::{OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
    termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize},
};

use super::terminal;

/// A command that runs here.
pub(super) struct Child {
    /// It leads its group.
    pid: Pid,
    terminal: Option<Arc<Pty>>,
    place: Place,
}

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a session of its own, with a terminal of its own.
    Session,
    /// In our session: the terminal that controls it is ours.
    Job,
}

/// Where a command's output comes from, and which of our streams it goes to.
#[derive(Default)]
pub(super) struct Outputs {
    pub(super) terminal: Option<(Arc<Pty>, File)>,
    pub(super) pipes: Vec<(PipeReader, File)>,
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// By this signal.
    Stopped(i32),
    Ended(ExitStatus),
}

impl Child {
    /// Starts a command. `settings`: how our own terminal is set, if all its keys are to go there.
    pub(super) fn spawn(
        program: &OsString,
        arguments: &[OsString],
        settings: Option<&Termios>,
    ) -> io::Result<(Self, Outputs)> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let mut outputs = Outputs::default();
        let device = match (stdout.is_terminal(), stderr.is_terminal()) {
            (false, false) => None,
            (true, _) => Some(outputs.terminal(ours(&stdout)?, settings)?),
            (false, true) => Some(outputs.terminal(ours(&stderr)?, settings)?),
        };
        let terminal = outputs.terminal.as_ref().map(|(pty, _)| Arc::clone(pty));
        let mut run = Command::new(program);
        run.args(arguments);
        let (child, place) = match (settings, device) {
            (Some(_), Some(device)) => {
                let mut run = blocking::Command::from(run);
                if !stderr.is_terminal() {
                    run = run.stderr(outputs.pipe(ours(&stderr)?)?);
                }
                (run.spawn(device).map_err(into_io)?, Place::Session)
            }
            (_, device) => {
                let out = match &device {
                    Some(device) if stdout.is_terminal() => device.as_fd().try_clone_to_owned()?,
                    _ => outputs.pipe(ours(&stdout)?)?,
                };
                let err = match &device {
                    Some(device) if stderr.is_terminal() => device.as_fd().try_clone_to_owned()?,
                    // In their order, which only one pipe can keep.
                    _ if are_one(&stdout, &stderr) => out.try_clone()?,
                    _ => outputs.pipe(ours(&stderr)?)?,
                };
                (run.process_group(0).stdout(out).stderr(err).spawn()?, Place::Job)
            }
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        Ok((Self { pid, terminal, place }, outputs))
    }

    /// The number of the command's process, and of its group.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// What became of it since the last time; reaps it when it has ended.
    pub(super) fn change(&self) -> io::Result<Option<Change>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let Some(status) = waitid(WaitId::Pid(self.pid), options)? else { return Ok(None) };
        if let Some(signal) = status.stopping_signal() {
            return Ok(Some(Change::Stopped(signal)));
        }
        let code = status.exit_status().map(|code| (code & 0xff) << 8);
        let raw = code.or_else(|| status.terminating_signal()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Change::Ended(ExitStatus::from_raw(raw))))
    }

    /// Signals the command's group, and the group in front of its own terminal.
    pub(super) fn signal(&self, signal: Signal) {
        // A group that is gone needs no signal.
        let _ = kill_process_group(self.pid, signal);
        if let Some(front) = self.front().filter(|front| *front != self.pid) {
            let _ = kill_process_group(front, signal);
        }
    }

    /// Gives its terminal the size of ours.
    pub(super) fn resize(&self) {
        let (Some(pty), Some(size)) = (&self.terminal, terminal::size()) else { return };
        let _ = tcsetwinsize(pty, size);
        if self.place == Place::Job {
            // It controls no session, so the kernel tells nobody.
            self.signal(Signal::WINCH);
        }
    }

    fn front(&self) -> Option<Pid> {
        let pty = self.terminal.as_ref().filter(|_| self.place == Place::Session)?;
        tcgetpgrp(pty.as_fd()).ok()
    }
}

impl Outputs {
    /// Opens a terminal as large as ours whose output goes to that stream.
    fn terminal(&mut self, stream: File, settings: Option<&Termios>) -> io::Result<Pts> {
        let (pty, pts) = blocking::open().map_err(into_io)?;
        if let Some(settings) = settings {
            tcsetattr(&pts, OptionalActions::Now, settings)?;
        } else {
            // What is to be done to output is done by ours.
            let mut settings = tcgetattr(&pts)?;
            settings.output_modes.remove(OutputModes::OPOST);
            tcsetattr(&pts, OptionalActions::Now, &settings)?;
        }
        if let Some(size) = terminal::size() {
            tcsetwinsize(&pts, size)?;
        }
        fcntl_setfl(&pty, fcntl_getfl(&pty)? | OFlags::NONBLOCK)?;
        self.terminal = Some((Arc::new(pty), stream));
        Ok(pts)
    }

    /// Opens a pipe to that stream.
    fn pipe(&mut self, stream: File) -> io::Result<OwnedFd> {
        let (reader, writer) = pipe()?;
        self.pipes.push((reader, stream));
        Ok(writer.into())
    }
}

/// A stream of ours, to be written without a buffer.
fn ours(stream: &impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Whether both lead to the same place.
fn are_one(one: &impl AsFd, other: &impl AsFd) -> bool {
    let same = |one: Stat, other: Stat| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
    fstat(one).is_ok_and(|one| fstat(other).is_ok_and(|other| same(one, other)))
}

fn into_io(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
    }
}
