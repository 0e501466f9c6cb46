//! Commands run by a shell, each in a process group of its own.
//!
//! Promises:
//! - The task settles when the command itself exits, not when its pipe closes: a process that it
//!   left behind keeps neither the task nor a reader waiting.
//! - A stop is SIGTERM to the group, and SIGKILL to what is left of it after the grace.
//! - What a command leaves running when it ends by itself is left alone, as in any shell, until its
//!   record goes or the gateway ends. Then it is stopped like a task.
//! - Standard output and standard error are one pipe, so they stand in the order of arrival.
//!
//! Never here: the registry's rules. A command reports by its [`TaskHandle`] alone.

use std::{
    collections::BTreeMap,
    io,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    net::unix::pipe,
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;

use super::{bell::Bell, exit::Exit, group::Group, leader::Leader, refusal};
use crate::{
    id::Kind,
    registry::{LaunchError, Launched, Producer, StopReason, TaskHandle},
    task::{End, Outcome},
    token::SecretToken,
};

/// Bytes taken from a pipe at once.
const READ_SIZE: usize = 16 * 1024;
/// How much is read between a command's exit and its settlement: what a pipe can hold at most
/// (`/proc/sys/fs/pipe-max-size`, 1 MiB unless root says otherwise). All that the command itself
/// wrote is in there, and a process that it left behind cannot hold the settlement up.
const PIPE_CAPACITY: usize = 1024 * 1024;
/// How often a group whose leader has gone is looked at.
const GROUP_POLL: Duration = Duration::from_millis(100);

/// Which shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// `bash -c COMMAND`: no profile, no questions.
    Bash,
    /// `pwsh -NoProfile -NonInteractive -Command COMMAND`: PowerShell, which without those two
    /// would run the user's profile first, and stop at a question that nobody can answer.
    Pwsh,
}

impl Shell {
    /// The shell that runs tasks of that kind.
    #[must_use]
    pub fn of(kind: &Kind) -> Option<Self> {
        [Self::Bash, Self::Pwsh].into_iter().find(|shell| shell.program() == kind.as_str())
    }

    /// The program, and the kind of its tasks.
    fn program(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Pwsh => "pwsh",
        }
    }

    /// What stands in front of the command.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &["-c"],
            Self::Pwsh => &["-NoProfile", "-NonInteractive", "-Command"],
        }
    }
}

/// A command to be run by a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// What the shell is to run.
    pub command: String,
    /// Where it runs; none is where the gateway runs. Must be absolute.
    pub cwd: Option<PathBuf>,
    /// Set beside the gateway's own environment.
    pub env: BTreeMap<String, String>,
}

/// Runs commands and keeps an eye on every process they started. Clones share the eye.
#[derive(Debug, Clone)]
pub struct Shells {
    grace: Duration,
    supervisors: TaskTracker,
    ending: watch::Sender<bool>,
}

impl Shells {
    /// `grace`: how long a process has between SIGTERM and SIGKILL.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { grace, supervisors: TaskTracker::new(), ending: watch::Sender::new(false) }
    }

    /// The producer of one command for bash, as [`Shells::run`] makes it.
    #[must_use]
    pub fn bash(&self, command: ShellCommand) -> impl Producer {
        self.run(Shell::Bash, command)
    }

    /// The producer of one command. It must be launched within a tokio runtime with I/O and time.
    #[must_use]
    pub fn run(&self, shell: Shell, command: ShellCommand) -> impl Producer {
        Run { shells: self.clone(), shell, command }
    }

    /// Stops whatever still runs, and returns when all of it is gone: at most the grace and a
    /// moment, since SIGKILL cannot be ignored.
    pub async fn close(&self) {
        self.ending.send_replace(true);
        self.supervisors.close();
        self.supervisors.wait().await;
    }
}

struct Run {
    shells: Shells,
    shell: Shell,
    command: ShellCommand,
}

impl Producer for Run {
    fn launch(self) -> Result<Launched, LaunchError> {
        let Self { shells, shell, command } = self;
        let process = Process::spawn(shell, &command)?;
        let (bell, asked) = Bell::new();
        Ok(Launched::new(bell, move |task| {
            let supervisor = Supervisor {
                ending: shells.ending.subscribe(),
                grace: shells.grace,
                process,
                task,
                asked,
                reason: None,
                kill_at: None,
            };
            shells.supervisors.spawn(supervisor.run());
        }))
    }
}

/// A running command. Dropped before it was seen to exit, it takes its group with it.
struct Process {
    leader: Leader,
    group: Group,
    output: Option<pipe::Receiver>,
}

impl Process {
    fn spawn(shell: Shell, command: &ShellCommand) -> Result<Self, LaunchError> {
        refusal::enterable(command.cwd.as_deref())?;
        let failed = |action| move |source| LaunchError::System { action, source };
        let (reader, writer) = io::pipe().map_err(failed("make a pipe"))?;
        let output = pipe::Receiver::from_owned_fd(reader.into()).map_err(failed("make a pipe"))?;
        let errors = writer.try_clone().map_err(failed("make a pipe"))?;
        let mut program = Command::new(shell.program());
        // The gateway's own key is not the command's; a caller who sets it has it.
        program.args(shell.flags()).arg(&command.command).env_remove(SecretToken::VARIABLE).envs(&command.env);
        program.stdin(Stdio::null()).stdout(writer).stderr(errors).process_group(0);
        if let Some(cwd) = &command.cwd {
            program.current_dir(cwd);
        }
        let child = program.spawn().map_err(|error| {
            // Which shell it is, was asked for by the kind.
            refusal::of_spawn(error, shell.program().as_ref(), "kind", &command.env)
        })?;
        // The command's own ends of the pipe must go, or the pipe never closes.
        drop(program);
        let leader = Leader::watch(child).map_err(failed("watch the shell"))?;
        Ok(Self { group: Group::led_by(leader.pid()), leader, output: Some(output) })
    }

    /// The leader's status, once it has exited; reaps it.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.leader.reap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.leader.is_reaped() {
            self.group.signal(Signal::KILL);
        }
    }
}

/// What happened next to a command.
enum Event {
    Exited,
    Output(Vec<u8>),
    OutputClosed,
    Asked(Option<StopReason>),
    GraceOver,
}

/// Follows one command from its start until its whole group is gone.
struct Supervisor {
    process: Process,
    task: TaskHandle,
    asked: watch::Receiver<Option<StopReason>>,
    ending: watch::Receiver<bool>,
    grace: Duration,
    /// Why it was asked to end, if it was: the first reason counts.
    reason: Option<StopReason>,
    /// When the grace is over.
    kill_at: Option<Instant>,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            match self.next().await {
                Event::Exited => break,
                Event::Output(bytes) => self.task.append(&bytes),
                Event::OutputClosed => self.process.output = None,
                Event::Asked(reason) => self.terminate(reason),
                Event::GraceOver => self.kill(),
            }
        }
        self.take_what_is_in_the_pipe();
        let outcome = self.outcome();
        self.task.settle(outcome);
        self.follow_the_rest().await;
    }

    /// How the command ended. Asked to end, any end is `killed`, with what happened.
    fn outcome(&mut self) -> Outcome {
        let (status, reason) = (self.process.reap(), self.reason.as_ref());
        match (status, reason) {
            (Err(error), _) => Outcome::new(End::Failed).with_detail(format!("its end could not be read: {error}")),
            (Ok(status), Some(StopReason::Shutdown)) => {
                Outcome::new(End::Killed).with_detail(format!("{} ({})", Exit(status), StopReason::Shutdown))
            }
            (Ok(status), Some(_)) => Outcome::new(End::Killed).with_detail(Exit(status).to_string()),
            (Ok(status), None) if status.success() => Outcome::new(End::Completed),
            (Ok(status), None) => Outcome::new(End::Failed).with_detail(Exit(status).to_string()),
        }
    }

    /// After the exit: what comes out within the grace still counts as the task's output; later
    /// output is read and dropped, so that what was left running does not block on a full pipe.
    async fn follow_the_rest(mut self) {
        let log_until = Instant::now() + self.grace;
        let mut poll = GROUP_POLL;
        while !self.process.group.is_gone() {
            let event = tokio::select! {
                event = self.next_but_exit() => event,
                () = sleep_until(Instant::now() + poll) => {
                    poll = (poll * 2).min(GROUP_POLL * 10);
                    continue;
                }
            };
            match event {
                Event::Output(bytes) if Instant::now() < log_until => self.task.append(&bytes),
                Event::Output(_) | Event::Exited => {}
                Event::OutputClosed => self.process.output = None,
                Event::Asked(reason) => {
                    poll = GROUP_POLL;
                    self.terminate(reason);
                }
                Event::GraceOver => self.kill(),
            }
        }
        self.take_what_is_in_the_pipe();
    }

    fn terminate(&mut self, reason: Option<StopReason>) {
        self.process.group.signal(Signal::TERM);
        // A record that is gone is an owner that is gone.
        self.reason.get_or_insert(reason.unwrap_or(StopReason::OwnerDisposed));
        self.kill_at.get_or_insert_with(|| Instant::now() + self.grace);
    }

    fn kill(&mut self) {
        self.process.group.signal(Signal::KILL);
        // Again, should a member have been born while the signal was sent.
        self.kill_at = Some(Instant::now() + GROUP_POLL);
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            biased;
            () = self.process.leader.exited() => Event::Exited,
            event = next_but_exit(&mut self.asked, &mut self.ending, self.kill_at, &mut self.process.output, &self.task) => event,
        }
    }

    async fn next_but_exit(&mut self) -> Event {
        next_but_exit(&mut self.asked, &mut self.ending, self.kill_at, &mut self.process.output, &self.task).await
    }

    /// What the command wrote before it exited, which may still be in the pipe.
    fn take_what_is_in_the_pipe(&mut self) {
        let Some(output) = &self.process.output else { return };
        let mut buffer = [0; READ_SIZE];
        let mut taken = 0;
        while taken < PIPE_CAPACITY
            && let Ok(read @ 1..) = output.try_read(&mut buffer)
        {
            self.task.append(buffer.get(..read).unwrap_or_default());
            taken += read;
        }
    }
}

/// The next thing but the leader's exit. Safe to drop: what was not returned has not happened.
async fn next_but_exit(
    asked: &mut watch::Receiver<Option<StopReason>>,
    ending: &mut watch::Receiver<bool>,
    kill_at: Option<Instant>,
    output: &mut Option<pipe::Receiver>,
    task: &TaskHandle,
) -> Event {
    // An `asked` or `ending` whose sender is gone says so for ever: heed it once.
    let is_asked = async {
        match asked.changed().await {
            Ok(()) => asked.borrow_and_update().clone(),
            Err(_) if kill_at.is_none() => None,
            Err(_) => std::future::pending().await,
        }
    };
    let is_ending = async {
        if kill_at.is_some() || ending.wait_for(|ending| *ending).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let grace_over = async {
        match kill_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        reason = is_asked => Event::Asked(reason),
        () = is_ending => Event::Asked(Some(StopReason::Shutdown)),
        () = grace_over => Event::GraceOver,
        event = next_output(output, task) => event,
    }
}

async fn next_output(output: &mut Option<pipe::Receiver>, task: &TaskHandle) -> Event {
    let Some(output) = output else { return std::future::pending().await };
    task.room().await;
    loop {
        if output.readable().await.is_err() {
            return Event::OutputClosed;
        }
        let mut buffer = vec![0; READ_SIZE];
        match output.try_read(&mut buffer) {
            Ok(0) => return Event::OutputClosed,
            Ok(read) => {
                buffer.truncate(read);
                return Event::Output(buffer);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Event::OutputClosed,
        }
    }
}
