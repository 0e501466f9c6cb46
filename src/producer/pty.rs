//! Terminals: commands in pseudo-terminals, to which text is sent as if it were typed.
//!
//! A terminal belongs to one session, and is no task: it may be idle for as long as the session
//! lasts. Each text that is sent to it is a task of kind `pty`, which ends when the terminal has
//! been silent for a while, when the wait is over, or when the terminal's process ends.
//!
//! Promises:
//! - One text at a time: a send while another is followed is refused.
//! - Output between two sends is not lost: the next one shows it first, as much as a task keeps.
//! - A kill of a send is Ctrl-C, and once more after half of the grace. The terminal stays usable:
//!   a job in the foreground that heeds neither within the grace gets SIGKILL, the terminal's own
//!   process never does.
//! - A terminal ends with its process, by [`Terminals::close`], with its session, or with the
//!   gateway; and all that runs in it ends with it.
//!
//! Never here: what the bytes mean. Escape sequences pass as they are; there is no screen.
//!
//! ```
//! use tasklight::{
//!     Registry, Scope, SessionId,
//!     clock::Clock,
//!     config::{RegistryLimits, TerminalLimits},
//!     producer::pty::{Input, Opening, Size, Terminals, Wait},
//! };
//! use std::{collections::BTreeMap, time::Duration};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::new(Clock::system(), RegistryLimits::default());
//! let grace = Duration::from_secs(3);
//! let terminals = Terminals::new(registry.clone(), TerminalLimits::default(), grace, 256 * 1024);
//! let demo = SessionId::new("demo")?;
//!
//! let command = Some("read -r name; echo hello, $name".to_owned());
//! let opening = Opening { command, cwd: None, env: BTreeMap::new(), size: Size::DEFAULT };
//! let terminal = terminals.open(&demo, &opening)?;
//! let input = Input { text: "world".into(), enter: true };
//! let task = terminals.send(&demo, terminal.id, &input, Wait::default())?;
//!
//! let scope = Scope::Session(demo);
//! let ended = registry.wait(&scope, &task.id, Duration::from_secs(10)).await?;
//! assert_eq!(ended.detail.as_deref(), Some("session exited: exit code: 0"));
//! assert!(registry.read(&scope, &task.id)?.text.ends_with("hello, world\r\n"));
//! terminals.close_all().await;
//! # Ok(())
//! # }
//! ```

mod bounded;
mod error;
mod members;
mod process;
mod sending;
mod supervisor;
mod terminal;

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroU64,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

pub use self::{
    bounded::{Bounded, Extent, OutOfBounds, Size, Wait},
    error::TerminalError,
    terminal::{TerminalStatus, TerminalView},
};
use self::{
    process::{Process, user_shell},
    supervisor::Supervisor,
    terminal::{Board, Terminal},
};
use crate::{
    config::TerminalLimits,
    id::{SessionId, TerminalId},
    registry::{Registry, StartError, StopReason},
    sync::lock,
    task::TaskView,
};

/// What a new terminal runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// What `bash -c` gets; none is the user's shell (`$SHELL`, else bash).
    pub command: Option<String>,
    /// Where it runs; none is where the gateway runs. Must be absolute.
    pub cwd: Option<PathBuf>,
    /// Set beside the gateway's own environment, and `TERM=xterm-256color`.
    pub env: BTreeMap<String, String>,
    /// How large its window is.
    pub size: Size,
}

/// What is sent to a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Typed as it is: no character is added, none is taken away.
    pub text: String,
    /// Whether the Enter key (a carriage return) is pressed behind it.
    pub enter: bool,
}

/// Opens terminals and keeps an eye on every process in them. Clones share the eye; when the last
/// one is dropped, all terminals close.
#[derive(Clone)]
pub struct Terminals {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    limits: TerminalLimits,
    grace: Duration,
    /// Bytes of output kept between two sends.
    unseen: usize,
    supervisors: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Set once, at shutdown: nothing opens any more.
    closed: bool,
    last: u64,
    terminals: BTreeMap<TerminalId, Arc<Terminal>>,
    /// The session of each terminal that is just being opened.
    opening: Vec<SessionId>,
}

impl Terminals {
    /// Terminals for the sessions of that registry. `grace`: how long a process has between
    /// SIGHUP or Ctrl-C and SIGKILL. `unseen`: bytes of output kept between two sends.
    #[must_use]
    pub fn new(registry: Registry, limits: TerminalLimits, grace: Duration, unseen: usize) -> Self {
        let (supervisors, state) = (TaskTracker::new(), Mutex::default());
        Self { shared: Arc::new(Shared { registry, limits, grace, unseen, supervisors, state }) }
    }

    /// Opens a terminal, and with it the session, if that is not open. Must be called within a
    /// tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`TerminalError::TooMany`] and [`TerminalError::Start`]; nothing has changed then.
    pub fn open(&self, session: &SessionId, opening: &Opening) -> Result<TerminalView, TerminalError> {
        let place = Place::reserve(&self.shared, session)?;
        let process = Process::spawn(opening)?;
        let owner = self.shared.registry.open(session.clone());
        if owner.is_disposed() {
            return Err(StartError::OwnerDisposed.into());
        }
        let (sends, sent) = mpsc::channel(1);
        let (closing, closed) = watch::channel(None);
        let board = Board::new(opening.size, self.shared.unseen);
        let command = opening.command.clone().unwrap_or_else(|| user_shell().to_string_lossy().into_owned());
        let mut state = self.shared.state();
        if state.closed {
            drop(state);
            return Err(StartError::Closed.into());
        }
        let id = TerminalId::new(NonZeroU64::MIN.saturating_add(state.last));
        state.last += 1;
        let terminal = Arc::new(Terminal {
            id,
            session: session.clone(),
            command,
            owner: owner.clone(),
            board: board.clone(),
            pty: Arc::downgrade(&process.pty),
            sends,
            closing,
        });
        state.terminals.insert(id, Arc::clone(&terminal));
        let record = Record { id, terminals: Arc::downgrade(&self.shared), closing: closed };
        let supervisor =
            Supervisor { process, live: None, sends: sent, board, owner, grace: self.shared.grace, record };
        // Under the lock, so that whoever closes all sees either neither or both.
        self.shared.supervisors.spawn(supervisor.run());
        drop(state);
        drop(place);
        tracing::info!(terminal = %id, session = %session, "opened");
        Ok(terminal.view())
    }

    /// A session's terminals in the order of opening: open ones, and the last that ended by
    /// themselves.
    #[must_use]
    pub fn list(&self, session: &SessionId) -> Vec<TerminalView> {
        self.shared.of(Some(session)).iter().map(|terminal| terminal.view()).collect()
    }

    /// One terminal.
    ///
    /// # Errors
    /// [`TerminalError::Unknown`] and [`TerminalError::AnotherSession`].
    pub fn get(&self, session: &SessionId, id: TerminalId) -> Result<TerminalView, TerminalError> {
        self.find(session, id).map(|terminal| terminal.view())
    }

    /// Types a text, and returns the task that follows what comes of it. Its label is the
    /// terminal's id and the text; while a program reads a password, `(not shown)`.
    ///
    /// The task shows first what the terminal put out since the last send. It ends `completed`
    /// with `wait: idle` or `wait: timeout`, or as the terminal's process ends meanwhile:
    /// `session exited: exit code: 0` is `completed`, any other end `failed`. At the timeout it
    /// is `failed` if part of the text could not even be typed, because nothing reads it.
    ///
    /// # Errors
    /// Any of [`TerminalError`] but [`TerminalError::TooMany`]; nothing was typed then.
    pub fn send(
        &self,
        session: &SessionId,
        id: TerminalId,
        input: &Input,
        wait: Wait,
    ) -> Result<TaskView, TerminalError> {
        // What the Enter key of a terminal sends.
        let key = if input.enter { "\r" } else { "" };
        let typed = Bytes::from(format!("{}{key}", input.text));
        self.find(session, id)?.send(&input.text, typed, wait)
    }

    /// Changes the size of a terminal's window, and tells the programs in it.
    ///
    /// # Errors
    /// Any of [`TerminalError`] but [`TerminalError::TooMany`] and [`TerminalError::Busy`].
    pub fn resize(&self, session: &SessionId, id: TerminalId, size: Size) -> Result<TerminalView, TerminalError> {
        let terminal = self.find(session, id)?;
        terminal.resize(size)?;
        Ok(terminal.view())
    }

    /// Closes a terminal and forgets it: SIGHUP and SIGTERM to all that runs in it, SIGKILL after
    /// the grace to what is left. Returns when all is gone; dropped before that, it does not wait
    /// any longer.
    ///
    /// # Errors
    /// [`TerminalError::Unknown`] and [`TerminalError::AnotherSession`].
    pub async fn close(&self, session: &SessionId, id: TerminalId) -> Result<(), TerminalError> {
        let terminal = self.find(session, id)?;
        terminal.close(&StopReason::Requested(None));
        terminal.gone().await;
        Ok(())
    }

    /// Returns when a session that is disposed has no terminal any more: they close by
    /// themselves, and this awaits it.
    pub async fn gone(&self, session: &SessionId) {
        let disposed = self.shared.of(Some(session)).into_iter().filter(|terminal| terminal.owner.is_disposed());
        for terminal in disposed {
            terminal.gone().await;
        }
    }

    /// Refuses to open any more, closes all, and returns when all are gone: at most the grace and
    /// a moment, since SIGKILL cannot be ignored.
    pub async fn close_all(&self) {
        self.shared.state().closed = true;
        for terminal in self.shared.of(None) {
            terminal.close(&StopReason::Shutdown);
        }
        self.shared.supervisors.close();
        self.shared.supervisors.wait().await;
    }

    fn find(&self, session: &SessionId, id: TerminalId) -> Result<Arc<Terminal>, TerminalError> {
        let found = self.shared.state().terminals.get(&id).cloned();
        let terminal = found.ok_or(TerminalError::Unknown(id))?;
        if terminal.session == *session { Ok(terminal) } else { Err(TerminalError::AnotherSession(id)) }
    }
}

impl fmt::Debug for Terminals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.shared.state().terminals.len();
        f.debug_struct("Terminals").field("terminals", &count).finish()
    }
}

impl Shared {
    /// Locks, whether or not somebody panicked meanwhile: each change is whole or not begun.
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A session's terminals, or all.
    fn of(&self, session: Option<&SessionId>) -> Vec<Arc<Terminal>> {
        let state = self.state();
        let is_theirs = |terminal: &&Arc<Terminal>| session.is_none_or(|session| terminal.session == *session);
        state.terminals.values().filter(is_theirs).cloned().collect()
    }

    /// Lets the oldest of a session's terminals go that ended by themselves, where there are more
    /// than are kept.
    fn retire(&self, id: TerminalId) {
        let Some(session) = self.state().terminals.get(&id).map(|terminal| terminal.session.clone()) else { return };
        let mut ended = self.of(Some(&session));
        ended.retain(|terminal| terminal.board.is_closed());
        let over = ended.len().saturating_sub(self.limits.max_open);
        for terminal in ended.iter().take(over) {
            terminal.close(&StopReason::Requested(None));
        }
    }
}

/// A place held for a terminal; given back when dropped.
struct Place<'a> {
    shared: &'a Shared,
    session: &'a SessionId,
}

impl<'a> Place<'a> {
    fn reserve(shared: &'a Shared, session: &'a SessionId) -> Result<Self, TerminalError> {
        let mut state = shared.state();
        if state.closed {
            return Err(StartError::Closed.into());
        }
        let open = state.terminals.values().filter(|terminal| terminal.session == *session);
        let open = open.filter(|terminal| !terminal.board.is_closed()).count();
        let opening = state.opening.iter().filter(|other| *other == session).count();
        if open + opening >= shared.limits.max_open {
            return Err(TerminalError::TooMany { session: session.clone(), limit: shared.limits.max_open });
        }
        state.opening.push(session.clone());
        Ok(Self { shared, session })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(at) = state.opening.iter().position(|session| session == self.session) {
            state.opening.swap_remove(at);
        }
    }
}

/// A terminal's place on the list, held by whoever runs it; when dropped, the terminal is
/// forgotten, and those who wait for that are told.
struct Record {
    id: TerminalId,
    terminals: Weak<Shared>,
    /// Dropped behind the removal: its end says that all is gone.
    closing: watch::Receiver<Option<StopReason>>,
}

impl Record {
    fn closed_by_itself(&self) {
        if let Some(terminals) = self.terminals.upgrade() {
            terminals.retire(self.id);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(terminals) = self.terminals.upgrade() else { return };
        // Dropped outside the lock.
        let removed = terminals.state().terminals.remove(&self.id);
        drop(removed);
    }
}
