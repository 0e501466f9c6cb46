//! Commands run by `bash -c`, each in a process group of its own.
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
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use tokio::{
    io::unix::AsyncFd,
    net::unix::pipe,
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;

use super::{bell::Bell, exit::Exit, group::Group};
use crate::{
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

/// A command to be run by a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// What `bash -c` gets.
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

    /// The producer of one command. It must be launched within a tokio runtime with I/O and time.
    #[must_use]
    pub fn bash(&self, command: ShellCommand) -> impl Producer {
        Bash { shells: self.clone(), command }
    }

    /// Stops whatever still runs, and returns when all of it is gone: at most the grace and a
    /// moment, since SIGKILL cannot be ignored.
    pub async fn close(&self) {
        self.ending.send_replace(true);
        self.supervisors.close();
        self.supervisors.wait().await;
    }
}

struct Bash {
    shells: Shells,
    command: ShellCommand,
}

impl Producer for Bash {
    fn launch(self) -> Result<Launched, LaunchError> {
        let Self { shells, command } = self;
        let process = Process::spawn(&command)?;
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
    child: Child,
    group: Group,
    /// Readable when the leader has exited (`pidfd_open(2)`), which reaps nothing.
    exited: AsyncFd<OwnedFd>,
    output: Option<pipe::Receiver>,
    reaped: bool,
}

impl Process {
    fn spawn(command: &ShellCommand) -> Result<Self, LaunchError> {
        let field = |field, problem: String| LaunchError::Field { field, problem };
        if let Some(cwd) = &command.cwd {
            if !cwd.is_absolute() {
                return Err(field("cwd", format!("{} is not an absolute path", cwd.display())));
            }
            match cwd.metadata() {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(field("cwd", format!("{} is not a directory", cwd.display()))),
                Err(error) => return Err(field("cwd", format!("{} cannot be entered: {error}", cwd.display()))),
            }
        }
        let failed = |action| move |source| LaunchError::System { action, source };
        let (reader, writer) = io::pipe().map_err(failed("make a pipe"))?;
        let output = pipe::Receiver::from_owned_fd(reader.into()).map_err(failed("make a pipe"))?;
        let errors = writer.try_clone().map_err(failed("make a pipe"))?;
        let mut bash = Command::new("bash");
        // The gateway's own key is not the command's; a caller who sets it has it.
        bash.arg("-c").arg(&command.command).env_remove(SecretToken::VARIABLE).envs(&command.env);
        bash.stdin(Stdio::null()).stdout(writer).stderr(errors);
        if let Some(cwd) = &command.cwd {
            bash.current_dir(cwd);
        }
        let child = std::os::unix::process::CommandExt::process_group(&mut bash, 0).spawn().map_err(|source| {
            let is_cwds = matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            );
            if let Some(cwd) = command.cwd.as_ref().filter(|_| is_cwds && is_installed("bash")) {
                // It was looked at by the gateway, a moment ago; it is entered by the child.
                return field("cwd", format!("{} cannot be entered: {source}", cwd.display()));
            }
            if source.kind() == io::ErrorKind::NotFound {
                return field("kind", "bash is not installed where the gateway runs".into());
            }
            if source.kind() == io::ErrorKind::ArgumentListTooLong {
                return field("command", "the command and its environment are longer than the system allows".into());
            }
            LaunchError::System { action: "start bash", source }
        })?;
        // The command's own ends of the pipe must go, or the pipe never closes.
        drop(bash);
        let mut unwatched = Unwatched(Some(child));
        let pid = unwatched.0.as_ref().map_or(0, Child::id);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed("watch bash")(io::ErrorKind::InvalidData.into()))?;
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(|error| failed("watch bash")(error.into()))?;
        #[allow(
            deprecated,
            reason = "its successor is an unsafe function; this descriptor is owned, so nobody else closes it"
        )]
        let exited = AsyncFd::new(pidfd).map_err(failed("watch bash"))?;
        let child = unwatched.0.take().ok_or_else(|| failed("watch bash")(io::ErrorKind::InvalidData.into()))?;
        Ok(Self { child, group: Group::led_by(pid), exited, output: Some(output), reaped: false })
    }

    /// The leader's status, once it has exited; reaps it.
    fn reap(&mut self) -> io::Result<std::process::ExitStatus> {
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.group.signal(Signal::KILL);
            // Killed, so this takes a moment at most.
            let _ = self.reap();
        }
    }
}

/// Whether a program is in one of the folders where the gateway looks for it.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A child that nobody watches yet.
struct Unwatched(Option<Child>);

impl Drop for Unwatched {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
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
            _ = self.process.exited.readable() => Event::Exited,
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
