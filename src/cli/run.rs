//! `tasklight run`: a command runs here as if nothing stood between, and shows as a task.
//!
//! Promise: the command's streams, keys, signals and exit code are those of the plain command,
//! whatever becomes of the gateway. Never here: what the gateway is told, and when ([`reporter`]).

mod child;
mod notices;
mod processes;
mod relay;
mod reporter;
mod signals;
mod tail;
mod terminal;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Signal, getpgrp, getpid, kill_process, kill_process_group};
use tasklight::{InvalidLabel, Label, Status, producer::Exit};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use self::{
    child::{Change, Child, Place},
    relay::{Keys, Relay},
    reporter::{Ending, Reporter},
    signals::{Event, Signals},
    tail::Tail,
    terminal::{Foreground, Keyboard, SetBack},
};
use super::{
    CommandError,
    args::{self, ControlArguments, RunArguments},
    client::Client,
    print,
};

/// From SIGTERM to SIGKILL, after a kill.
const GRACE: Duration = Duration::from_secs(3);

/// How long the gateway waits for the last output, where somebody reads it from us slowly.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// How soon it is seen that a job was put into the foreground, or that a group is gone.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(arguments: RunArguments, control: &ControlArguments) -> Result<ExitCode, CommandError> {
    super::runtime()?.block_on(run_here(arguments, control))
}

async fn run_here(arguments: RunArguments, control: &ControlArguments) -> Result<ExitCode, CommandError> {
    let Some((program, rest)) = arguments.command.split_first() else { return Err(CommandError::NoCommand) };
    let keyboard = if io::stdin().is_terminal() && io::stdout().is_terminal() {
        Some(Arc::new(Keyboard::new().map_err(CommandError::System)?))
    } else {
        None
    };
    let _set_back = keyboard.clone().map(SetBack);
    let place = if keyboard.is_some() { Place::Session } else { Place::Job };
    let signals = Signals::listen(place).map_err(CommandError::System)?;
    let settings = keyboard.as_deref().map(Keyboard::found);
    let (child, outputs) = match Child::spawn(program, rest, settings) {
        Ok(spawned) => spawned,
        Err(error) => return Ok(refused(program, error)),
    };
    let tail = Arc::new(Tail::default());
    if let (Some(keyboard), Some((terminal, _))) = (&keyboard, &outputs.terminal) {
        keyboard.hold();
        let (keyboard, terminal) = (Arc::clone(keyboard), Arc::clone(terminal));
        Keys { keyboard, terminal, command: child.group() }.start();
    }
    let relay = Relay::start(outputs, &tail).map_err(CommandError::System)?;
    let (asking, asked) = watch::channel(false);
    let reported = match reporter(&arguments, control, tail, asking) {
        Ok((reporter, ending)) => Some((tokio::spawn(reporter.run()), ending)),
        Err(error) => {
            print::error(&error);
            None
        }
    };
    let mut running = Running {
        child,
        relay,
        signals,
        keyboard,
        foreground: Foreground::default(),
        asked,
        kill_at: None,
        resume_at: None,
    };
    let status = running.until_the_end().await?;
    let last_output = timeout(LAST_OUTPUT, running.relay.finished()).await;
    // Not before, since the output is made up for a terminal that does nothing to it; what is typed
    // from now on is for the shell.
    running.release();
    if let Some((reporting, ending)) = reported {
        ending.send_replace(Some(running.ending(status)));
        let _ = reporting.await;
    }
    running.end_what_was_killed().await;
    if last_output.is_err() {
        running.carry_the_rest().await;
    }
    Ok(exit_code(status))
}

fn reporter(
    arguments: &RunArguments,
    control: &ControlArguments,
    tail: Arc<Tail>,
    asking: watch::Sender<bool>,
) -> Result<(Reporter, watch::Sender<Option<Ending>>), CommandError> {
    let session = arguments.session.session()?;
    let client = Client::new(control)?;
    let label = match &arguments.label {
        Some(label) => label.clone(),
        None => label(&arguments.command)?,
    };
    Ok(Reporter::new(client, session, arguments.kind.clone(), label, tail, asking))
}

/// The command ran not at all: what a shell says then (POSIX.1-2024, XCU 2.8.2).
fn refused(program: &OsString, error: io::Error) -> ExitCode {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    print::error(&CommandError::NotRun { program: program.clone(), error });
    ExitCode::from(code)
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// A command that runs, and all that keeps it as if it were alone.
struct Running {
    child: Child,
    relay: Relay,
    signals: Signals,
    /// Where all keys go to the command.
    keyboard: Option<Arc<Keyboard>>,
    foreground: Foreground,
    /// Whether its task was asked to end.
    asked: watch::Receiver<bool>,
    /// When the grace after that is over.
    kill_at: Option<Instant>,
    /// When to go on, if we were to be stopped and were not.
    resume_at: Option<Instant>,
}

impl Running {
    async fn until_the_end(&mut self) -> Result<ExitStatus, CommandError> {
        loop {
            let in_background = self.keyboard.as_ref().is_some_and(|keyboard| !keyboard.is_held());
            let is_asked = async {
                if self.kill_at.is_some() || self.asked.wait_for(|asked| *asked).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                event = self.signals.next() => match event {
                    Event::Signal(signal) => self.child.signal(signal),
                    Event::Child => {
                        while let Some(change) = self.child.change().map_err(CommandError::System)? {
                            match change {
                                Change::Ended(status) => {
                                    self.relay.finish();
                                    return Ok(status);
                                }
                                Change::Stopped(signal) => self.stop(signal),
                            }
                        }
                    }
                    Event::Continued => self.resume(),
                    Event::Resized => self.child.resize(),
                },
                () = is_asked => self.terminate(),
                () = at(self.kill_at) => self.kill(),
                () = at(self.resume_at) => self.resume(),
                () = sleep(LOOK), if in_background && self.resume_at.is_none() => self.hold(),
            }
        }
    }

    /// A kill of its task ends its group.
    fn terminate(&mut self) {
        self.child.signal(Signal::TERM);
        // One that is stopped hears nothing else.
        self.child.signal(Signal::CONT);
        self.kill_at = Some(Instant::now() + GRACE);
    }

    fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        // Again, should a member have been born while the signal was sent.
        self.kill_at = Some(Instant::now() + LOOK);
    }

    /// The command was stopped, so this job is.
    fn stop(&mut self, signal: i32) {
        let reads_the_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|other| other.as_raw() == signal);
        if reads_the_terminal && self.foreground.lend(self.child.group()) {
            return self.child.signal(Signal::CONT);
        }
        let had_the_terminal = self.release();
        self.resume_at = Some(Instant::now() + LOOK);
        // Whoever is in front is stopped whole by a key; else it is only about us.
        let stopped = match self.child.place() {
            Place::Session => {
                self.child.signal(Signal::STOP);
                kill_process_group(getpgrp(), Signal::TSTP)
            }
            Place::Job if had_the_terminal => kill_process_group(getpgrp(), Signal::STOP),
            Place::Job => kill_process(getpid(), Signal::STOP),
        };
        if stopped.is_err() {
            self.resume();
        }
    }

    fn resume(&mut self) {
        self.resume_at = None;
        self.hold();
        self.child.resize();
        self.child.signal(Signal::CONT);
    }

    /// Gives the terminal back; whether the command had it.
    fn release(&mut self) -> bool {
        if let Some(keyboard) = &self.keyboard {
            keyboard.release();
        }
        self.foreground.take_back()
    }

    fn hold(&self) {
        if let Some(keyboard) = &self.keyboard {
            keyboard.hold();
        }
    }

    /// After a kill, what outlives the command has the rest of the grace.
    async fn end_what_was_killed(&mut self) {
        let Some(kill_at) = self.kill_at else { return };
        while processes::is_alive(self.child.group()) {
            if Instant::now() >= kill_at {
                return self.child.signal(Signal::KILL);
            }
            sleep(LOOK / 4).await;
        }
    }

    /// Somebody reads our output slowly; a signal is the end then.
    async fn carry_the_rest(&mut self) {
        loop {
            tokio::select! {
                () = self.relay.finished() => return,
                event = self.signals.next() => if let Event::Signal(_) = event { return },
            }
        }
    }

    fn ending(&self, status: ExitStatus) -> Ending {
        let detail = Some(Exit(status).to_string());
        match (self.kill_at, status.success()) {
            (Some(_), _) => Ending { status: Status::Killed, detail },
            (None, true) => Ending { status: Status::Completed, detail: None },
            (None, false) => Ending { status: Status::Failed, detail },
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The command as one would type it.
fn label(command: &[OsString]) -> Result<Label, InvalidLabel> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    Label::from_command(&args::quoted(words.iter().map(AsRef::as_ref)))
}
