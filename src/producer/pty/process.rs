//! A command in a pseudo-terminal of its own: the processes, and the terminal's other side.
//!
//! Promise: the command leads a session of its own, whose controlling terminal this is.

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    path::PathBuf,
    process::Command,
    sync::Arc,
};

use pty_process::blocking;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Signal, kill_process_group},
    termios::{LocalModes, tcgetattr, tcgetpgrp},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{Opening, Size, members::Members};
use crate::{
    producer::{
        leader::{Leader, registered},
        refusal,
    },
    registry::LaunchError,
    token::SecretToken,
};

/// Bytes taken from a terminal at once; the kernel gives no more than a page.
const READ_SIZE: usize = 4 * 1024;

/// Our side of a pseudo-terminal. It closes with its last reference.
pub(super) struct Pty(AsyncFd<blocking::Pty>);

impl Pty {
    fn open(size: Size) -> io::Result<(Self, blocking::Pts)> {
        let (pty, pts) = blocking::open().map_err(into_io)?;
        pty.resize(size.into()).map_err(into_io)?;
        fcntl_setfl(&pty, fcntl_getfl(&pty)? | OFlags::NONBLOCK)?;
        Ok((Self(registered(pty)?), pts))
    }

    /// Tells the terminal its size, and the programs in it by SIGWINCH.
    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        self.0.get_ref().resize(size.into()).map_err(into_io)
    }

    /// Whether a program reads a line without showing it, as passwords are read: lines are on and
    /// echo is off. (An editor of lines has both off, and echoes itself.)
    pub(super) fn hides_what_is_typed(&self) -> bool {
        // On Linux this side tells what the programs' side is set to (ioctl_tty(2)).
        tcgetattr(self.0.get_ref()).is_ok_and(|terminal| {
            let modes = terminal.local_modes;
            modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
        })
    }

    /// The next output; an error once no process has the terminal open any more. Safe to drop:
    /// what was not returned was not taken.
    pub(super) async fn read(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; READ_SIZE];
        let read = self.0.async_io(Interest::READABLE, |mut pty| pty_read(&mut pty, &mut buffer)).await?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// What has been put out already.
    pub(super) fn read_now(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; READ_SIZE];
        let read = pty_read(&mut self.0.get_ref(), &mut buffer)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Types as much as the terminal takes; how much that was. Safe to drop.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |mut pty| pty.write(bytes)).await
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_ref().write(bytes)
    }
}

/// No bytes and no error would be an end too.
fn pty_read(pty: &mut &blocking::Pty, buffer: &mut [u8]) -> io::Result<usize> {
    match pty.read(buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}

/// A running command and its terminal.
pub(super) struct Process {
    pub(super) members: Members,
    pub(super) pty: Arc<Pty>,
}

impl Process {
    pub(super) fn spawn(opening: &Opening) -> Result<Self, LaunchError> {
        refusal::enterable(opening.cwd.as_deref())?;
        let failed = |action| move |source| LaunchError::System { action, source };
        let (pty, pts) = Pty::open(opening.size).map_err(failed("open a pseudo-terminal"))?;
        let (program, arguments) = match &opening.command {
            Some(command) => (PathBuf::from("bash"), vec!["-c", command]),
            None => (user_shell(), Vec::new()),
        };
        let mut run = Command::new(&program);
        run.args(arguments);
        // Programs believe these more than the terminal; they are about the gateway's own.
        run.env_remove("LINES").env_remove("COLUMNS");
        // The gateway's own key is not the program's; a caller who sets it has it.
        run.env_remove(SecretToken::VARIABLE);
        // What every program's terminal data has: colours, and keys as all emulators send them.
        run.env("TERM", "xterm-256color").envs(&opening.env);
        if let Some(cwd) = &opening.cwd {
            run.current_dir(cwd);
        }
        let spawned = blocking::Command::from(run).spawn(pts).map_err(into_io);
        let child = spawned.map_err(|error| refusal::of_spawn(error, &program, "command", &opening.env))?;
        let leader = Leader::watch(child).map_err(failed("watch the terminal's process"))?;
        Ok(Self { members: Members::led_by(leader), pty: Arc::new(pty) })
    }

    /// Types Ctrl-C. Where nobody reads what was typed before, it would only wait behind that:
    /// then the foreground gets the signal that Ctrl-C usually comes to.
    pub(super) fn interrupt(&self, is_read: bool) {
        const CTRL_C: &[u8] = b"\x03";
        if !is_read || self.pty.write_now(CTRL_C).is_err() {
            self.signal_foreground(Signal::INT);
        }
    }

    /// Whether the command that was opened has the terminal, and no job that it started.
    pub(super) fn leader_has_the_terminal(&self) -> bool {
        tcgetpgrp(self.pty.0.get_ref().as_fd()).is_ok_and(|group| group == self.members.session())
    }

    pub(super) fn signal_foreground(&self, signal: Signal) {
        if let Ok(group) = tcgetpgrp(self.pty.0.get_ref().as_fd()) {
            // It may end in this moment: nothing is to be done then.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// What a terminal without a command runs.
pub(super) fn user_shell() -> PathBuf {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    shell.map_or_else(|| PathBuf::from("bash"), PathBuf::from)
}

fn into_io(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
    }
}
