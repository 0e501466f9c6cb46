//! One terminal, as those see it who ask for it; and what they share with whoever runs it.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use super::{Size, TerminalError, Wait, process::Pty, sending::Sending};
use crate::{
    id::{Kind, SessionId, TaskId, TerminalId},
    output::{More, OutputLog},
    producer::bell::Bell,
    registry::{LaunchError, Launched, NewTask, Owner, Producer, StopReason},
    sync::lock,
    task::{InvalidLabel, Label, TaskView},
};

/// What people see of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TerminalView {
    /// `term-<n>`.
    pub id: TerminalId,
    /// What runs in it: the command, or the user's shell.
    pub command: String,
    /// How large its window is: `rows` and `cols`.
    #[serde(flatten)]
    pub size: Size,
    /// Where it stands.
    pub status: TerminalStatus,
    /// How its process ended, in words: `exit code: 0`. There exactly when it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The task of the text that is being sent to it; none if it is free for the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}

/// Where a terminal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TerminalStatus {
    /// Its process runs.
    Open,
    /// Its process has been asked to end.
    Closing,
    /// Its process has ended.
    Closed,
}

/// One terminal. Dropped, it is closed.
pub(super) struct Terminal {
    pub(super) id: TerminalId,
    pub(super) session: SessionId,
    pub(super) command: String,
    /// The life of the session that it was opened in.
    pub(super) owner: Owner,
    pub(super) board: Board,
    /// Gone when its process has ended.
    pub(super) pty: Weak<Pty>,
    /// One place: that of the one send that has the claim.
    pub(super) sends: mpsc::Sender<Sending>,
    /// Why it is to close; the first reason counts. Its receiver goes with the terminal.
    pub(super) closing: watch::Sender<Option<StopReason>>,
}

impl Terminal {
    pub(super) fn view(&self) -> TerminalView {
        let notes = self.board.notes();
        let (status, detail) = match &notes.life {
            Life::Open => (TerminalStatus::Open, None),
            Life::Closing => (TerminalStatus::Closing, None),
            Life::Closed(how) => (TerminalStatus::Closed, Some(how.clone())),
        };
        let task = if let Line::Taken(Some(task)) = &notes.line { Some(task.clone()) } else { None };
        TerminalView { id: self.id, command: self.command.clone(), size: notes.size, status, detail, task }
    }

    /// Asks for its end, and returns at once.
    pub(super) fn close(&self, reason: &StopReason) {
        self.closing.send_if_modified(|closing| {
            let first = closing.is_none();
            closing.get_or_insert_with(|| reason.clone());
            first
        });
    }

    /// Returns once it has closed and nothing is left in it.
    pub(super) async fn gone(&self) {
        self.closing.closed().await;
    }

    pub(super) fn resize(&self, size: Size) -> Result<(), TerminalError> {
        let pty = self.pty.upgrade().ok_or_else(|| self.ended())?;
        pty.resize(size).map_err(|source| LaunchError::System { action: "resize the terminal", source })?;
        self.board.notes().size = size;
        Ok(())
    }

    /// Starts the task that types the text and follows what comes of it.
    pub(super) fn send(&self, text: &str, typed: Bytes, wait: Wait) -> Result<TaskView, TerminalError> {
        let claim = self.claim()?;
        let hidden = self.pty.upgrade().is_some_and(|pty| pty.hides_what_is_typed());
        let label = label(self.id, if hidden { "(not shown)" } else { text });
        let label = label.map_err(|error| LaunchError::Field { field: "text", problem: error.to_string() })?;
        let send = Send { claim, sends: self.sends.clone(), typed, wait };
        Ok(self.owner.start(NewTask { kind: Kind::pty(), label }, send)?)
    }

    /// The right to be the one that sends. A terminal that has closed grants it as long as there
    /// is output that nobody was shown.
    fn claim(&self) -> Result<Claim, TerminalError> {
        let mut notes = self.board.notes();
        match (&notes.life, &notes.line) {
            (_, Line::Taken(task)) => Err(TerminalError::Busy { id: self.id, task: task.clone() }),
            (Life::Closing, Line::Free) => Err(TerminalError::Closing(self.id)),
            (Life::Closed(how), Line::Free) if !notes.unseen.has_unread(More::No) => {
                Err(TerminalError::Ended { id: self.id, how: how.clone() })
            }
            (Life::Open | Life::Closed(_), Line::Free) => {
                notes.line = Line::Taken(None);
                drop(notes);
                Ok(Claim(self.board.clone()))
            }
        }
    }

    fn ended(&self) -> TerminalError {
        match &self.board.notes().life {
            Life::Closed(how) => TerminalError::Ended { id: self.id, how: how.clone() },
            Life::Open | Life::Closing => TerminalError::Closing(self.id),
        }
    }
}

/// What a terminal's owner and whoever runs it tell each other. Clones are the same board.
#[derive(Clone)]
pub(super) struct Board(Arc<Mutex<Notes>>);

pub(super) struct Notes {
    pub(super) size: Size,
    pub(super) life: Life,
    line: Line,
    /// What the terminal put out while nothing was being sent: the next send shows it first.
    unseen: OutputLog,
    unseen_limit: usize,
}

/// How far a terminal's life has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Closing,
    /// How its process ended.
    Closed(String),
}

/// Whether somebody sends.
enum Line {
    Free,
    /// By that task, once it is registered.
    Taken(Option<TaskId>),
}

impl Board {
    pub(super) fn new(size: Size, unseen_limit: usize) -> Self {
        let unseen = OutputLog::new(unseen_limit);
        Self(Arc::new(Mutex::new(Notes { size, life: Life::Open, line: Line::Free, unseen, unseen_limit })))
    }

    /// Locks, whether or not somebody panicked meanwhile: each change is one assignment.
    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.0)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.notes().life, Life::Closed(_))
    }
}

impl Notes {
    /// Keeps output for the next send.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.unseen.append(bytes);
    }

    /// What was kept, with what is missing said where it is missing.
    pub(super) fn take_unseen(&mut self) -> String {
        let unread = std::mem::replace(&mut self.unseen, OutputLog::new(self.unseen_limit)).read(More::No);
        match unread.dropped {
            0 => unread.text,
            dropped => format!("[{dropped} bytes of older output are gone]\n{}", unread.text),
        }
    }
}

/// The right to send; given back when dropped.
pub(super) struct Claim(Board);

impl Claim {
    fn name(&self, task: TaskId) {
        self.0.notes().line = Line::Taken(Some(task));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.notes().line = Line::Free;
    }
}

struct Send {
    claim: Claim,
    sends: mpsc::Sender<Sending>,
    typed: Bytes,
    wait: Wait,
}

impl Producer for Send {
    fn launch(self) -> Result<Launched, LaunchError> {
        let Self { claim, sends, typed, wait } = self;
        let (bell, asked) = Bell::new();
        Ok(Launched::new(bell, move |task| {
            claim.name(task.id().clone());
            // The claim is held, so the one place is free; and where the terminal went in this
            // moment, the handle that comes back settles the task.
            if let Err(error) = sends.try_send(Sending::new(claim, task, asked, typed, wait)) {
                error.into_inner().lost();
            }
        }))
    }
}

/// `term-1: make test`. Control characters are shown, so that a label is one line of text.
fn label(id: TerminalId, text: &str) -> Result<Label, InvalidLabel> {
    let shown: String =
        text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect();
    Label::from_command(format!("{id}: {shown}").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_shows_control_characters_and_stays_short() {
        let label = |text: &str| label("term-1".parse().unwrap(), text).unwrap().as_str().to_owned();
        assert_eq!(label("echo hi"), "term-1: echo hi");
        assert_eq!(label("a\u{3}\nb"), "term-1: a\\u{3}\\nb");
        assert_eq!(label(""), "term-1:");
        assert_eq!(label(&"\u{1b}".repeat(5_000)).len(), 4_096);
    }

    #[test]
    fn what_nobody_saw_is_kept_up_to_its_limit_and_shown_once() {
        let board = Board::new(Size::DEFAULT, 4);
        board.notes().keep(b"abcdef");
        assert_eq!(board.notes().take_unseen(), "[2 bytes of older output are gone]\ncdef");
        assert_eq!(board.notes().take_unseen(), "");
    }
}
