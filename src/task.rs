//! One task: its record, the changes that are legal, and what people see of it.
//!
//! Promise: a record goes `running` → (`stopping` →) one of three ends, and never back.
//! Never here: who owns the record's lock, who is told, and the time, which comes in as an argument.

pub(crate) mod row;

use std::{cell::OnceCell, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use self::row::Row;
use crate::{
    clock::UnixMillis,
    id::{Kind, TaskId},
};

/// What a task is called: for a shell the raw command. 1 to [`Label::MAX_BYTES`] bytes, and not
/// blank. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 4_096;

    /// Takes a label that somebody chose.
    ///
    /// # Errors
    /// When it is blank or too long: a chosen label is never cut behind its owner's back.
    pub fn new(text: &str) -> Result<Self, InvalidLabel> {
        if text.trim().is_empty() {
            return Err(InvalidLabel::Blank);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidLabel::TooLong { bytes: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// Makes a label from a command, which may be longer: then it is cut and ends with `…`.
    ///
    /// # Errors
    /// When the command is blank.
    pub fn from_command(command: &str) -> Result<Self, InvalidLabel> {
        Self::new(&clip(command, Self::MAX_BYTES))
    }

    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = InvalidLabel;
    fn try_from(text: String) -> Result<Self, InvalidLabel> {
        Self::new(&text)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a text is not a [`Label`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLabel {
    /// Empty, or nothing but white space.
    #[error("a label has something to read in it")]
    Blank,
    /// Over [`Label::MAX_BYTES`].
    #[error("a label has at most {max} bytes, this one has {bytes}", max = Label::MAX_BYTES)]
    TooLong {
        /// How long it was, in bytes.
        bytes: usize,
    },
}

/// The text, cut at a character and ended with `…` where it is longer than `max` bytes.
fn clip(text: &str, max: usize) -> std::borrow::Cow<'_, str> {
    const ELLIPSIS: &str = "…";
    if text.len() <= max {
        return text.into();
    }
    let end = text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len()));
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}{ELLIPSIS}").into()
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// At work.
    Running,
    /// Asked to end, and not ended yet.
    Stopping,
    /// Ended, and did what it was for.
    Completed,
    /// Ended because somebody asked it to.
    Killed,
    /// Ended, and did not do what it was for.
    Failed,
}

impl Status {
    /// Whether the task has ended, for good.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Running | Self::Stopping => false,
            Self::Completed | Self::Killed | Self::Failed => true,
        }
    }
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Killed => "killed",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a task ended: one of three ends, and in words what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    end: End,
    detail: Option<Arc<str>>,
}

/// The three ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It did what it was for.
    Completed,
    /// It was asked to end.
    Killed,
    /// It did not do what it was for.
    Failed,
}

impl Outcome {
    /// The longest detail, in bytes of UTF-8; a longer one is cut and ends with `…`.
    pub const MAX_DETAIL_BYTES: usize = 4_096;

    /// An end without more to say.
    #[must_use]
    pub fn new(end: End) -> Self {
        Self { end, detail: None }
    }

    /// The same end, with what happened; a blank detail is none.
    #[must_use]
    pub fn with_detail(self, detail: impl AsRef<str>) -> Self {
        let detail = detail.as_ref();
        let detail = (!detail.trim().is_empty()).then(|| clip(detail, Self::MAX_DETAIL_BYTES).into());
        Self { detail, ..self }
    }

    /// The same, of a task that was asked to end: then any end is `killed`, with what happened.
    /// `note` says more of it.
    pub(crate) fn killed(self, note: Option<&str>) -> Self {
        let killed = Self { end: End::Killed, ..self };
        match (&killed.detail, note) {
            (_, None) => killed,
            (None, Some(note)) => killed.with_detail(note),
            (Some(detail), Some(note)) => {
                let detail = format!("{detail} ({note})");
                killed.with_detail(detail)
            }
        }
    }
}

/// Work that returns nothing did what it was for.
impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::new(End::Completed)
    }
}

/// An error is what the detail says.
impl<E: fmt::Display> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::new(End::Completed),
            Err(error) => Self::new(End::Failed).with_detail(error.to_string()),
        }
    }
}

/// What a producer says of its task: while it is live how it gets on, at its end how it ended.
///
/// At most [`Detail::MAX_BYTES`] bytes; a blank one says nothing, and takes back what was said
/// before. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Detail(Arc<str>);

impl Detail {
    /// The longest detail, in bytes of UTF-8.
    pub const MAX_BYTES: usize = Outcome::MAX_DETAIL_BYTES;

    /// Takes a producer's words.
    ///
    /// # Errors
    /// When they are too long: a producer's words are never cut behind its back.
    pub fn new(text: &str) -> Result<Self, InvalidDetail> {
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidDetail { bytes: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// The words, unless they are blank.
    fn said(&self) -> Option<&Arc<str>> {
        (!self.0.trim().is_empty()).then_some(&self.0)
    }
}

impl AsRef<str> for Detail {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Detail {
    type Error = InvalidDetail;
    fn try_from(text: String) -> Result<Self, InvalidDetail> {
        Self::new(&text)
    }
}

/// Why a text is not a [`Detail`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a detail has at most {max} bytes, this one has {bytes}", max = Detail::MAX_BYTES)]
pub struct InvalidDetail {
    /// How long it was, in bytes.
    pub bytes: usize,
}

/// What people see of a task: the wire, and nothing that is not on it.
///
/// Its owner, its output, process ids and whether a model was told of it are never here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskView {
    /// `<kind>-<n>`.
    pub id: TaskId,
    /// What sort of work; a reader shows one that it does not know as it is.
    pub kind: Kind,
    /// What the task is called; never blank.
    pub label: Label,
    /// Where it stands.
    pub status: Status,
    /// How it ended, in words: `exit code: 1`, `signal: SIGTERM`. On a live task, how it gets on,
    /// in the words of a producer that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Arc<str>>,
    /// When it was registered.
    pub started_at: UnixMillis,
    /// When it ended: there exactly when the status is terminal, and never before `started_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<UnixMillis>,
}

/// The record of one task.
#[derive(Debug)]
pub(crate) struct Task {
    id: TaskId,
    label: Label,
    started_at: UnixMillis,
    state: State,
    /// How it gets on while it is live, if its producer said so.
    progress: Option<Arc<str>>,
    told: Told,
    /// What people see, once somebody looked and until it changes.
    row: OnceCell<Arc<Row>>,
}

/// Whether the model has been told how the task ended: once it has, no notice is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It has not. A notice may have been sent and not have come through.
    No(Option<Delivery>),
    /// By this notice, as far as anybody knows.
    ByNotice(Delivery),
    /// For certain.
    Yes,
}

/// One notice, sent to one reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) reader: u64,
    /// Which of the reader's visits: a later one has a higher number.
    pub(crate) visit: u64,
    /// Counts notices: of two, the later one has the higher number.
    pub(crate) number: u64,
}

#[derive(Debug)]
enum State {
    Running,
    Stopping,
    Ended { outcome: Outcome, at: UnixMillis },
}

/// Why a change was refused: the task has ended, and an end is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

impl Task {
    pub(crate) fn new(id: TaskId, label: Label, now: UnixMillis) -> Self {
        Self {
            id,
            label,
            started_at: now,
            state: State::Running,
            progress: None,
            told: Told::No(None),
            row: OnceCell::new(),
        }
    }

    pub(crate) fn id(&self) -> &TaskId {
        &self.id
    }

    pub(crate) fn is_live(&self) -> bool {
        match self.state {
            State::Running | State::Stopping => true,
            State::Ended { .. } => false,
        }
    }

    /// Marks a live task as asked to end. `Ok(false)`: it was marked already.
    pub(crate) fn stopping(&mut self) -> Result<bool, Ended> {
        match self.state {
            State::Running => {
                self.state = State::Stopping;
                self.row.take();
                Ok(true)
            }
            State::Stopping => Ok(false),
            State::Ended { .. } => Err(Ended),
        }
    }

    /// Changes how a live task is called and how it gets on. `Ok(false)`: nothing is new.
    pub(crate) fn describe(&mut self, label: Option<Label>, detail: Option<&Detail>) -> Result<bool, Ended> {
        if !self.is_live() {
            return Err(Ended);
        }
        let label = label.unwrap_or_else(|| self.label.clone());
        let progress = detail.map_or_else(|| self.progress.clone(), |detail| detail.said().cloned());
        let changed = label != self.label || progress != self.progress;
        if changed {
            (self.label, self.progress) = (label, progress);
            self.row.take();
        }
        Ok(changed)
    }

    /// Ends a live task; how it got on gives way to how it ended. The first outcome counts; a later one is refused.
    pub(crate) fn settle(&mut self, outcome: Outcome, now: UnixMillis) -> Result<(), Ended> {
        if !self.is_live() {
            return Err(Ended);
        }
        self.state = State::Ended { outcome, at: now.max(self.started_at) };
        self.row.take();
        Ok(())
    }

    pub(crate) fn reported(&self) -> bool {
        match self.told {
            Told::No(_) => false,
            Told::ByNotice(_) | Told::Yes => true,
        }
    }

    pub(crate) fn mark_reported(&mut self) {
        self.told = Told::Yes;
    }

    /// Marks the end as told by a notice, until more is known of it.
    pub(crate) fn mark_noticed(&mut self, by: Delivery) {
        self.told = Told::ByNotice(by);
    }

    /// The last notice that was sent, unless the model is known to have been told.
    pub(crate) fn notice(&self) -> Option<Delivery> {
        match self.told {
            Told::No(notice) => notice,
            Told::ByNotice(notice) => Some(notice),
            Told::Yes => None,
        }
    }

    /// The notice that was sent may not have come through: one is owed again.
    pub(crate) fn owe_again(&mut self) {
        if let Told::ByNotice(lost) = self.told {
            self.told = Told::No(Some(lost));
        }
    }

    /// The notice that was sent did not come through, for certain: as if none had been sent.
    pub(crate) fn take_notice_back(&mut self) {
        match self.told {
            Told::No(_) | Told::ByNotice(_) => self.told = Told::No(None),
            Told::Yes => {}
        }
    }

    pub(crate) fn status(&self) -> Status {
        match &self.state {
            State::Running => Status::Running,
            State::Stopping => Status::Stopping,
            State::Ended { outcome, .. } => match outcome.end {
                End::Completed => Status::Completed,
                End::Killed => Status::Killed,
                End::Failed => Status::Failed,
            },
        }
    }

    /// The same as [`Task::view`], shared by all who look until it changes.
    pub(crate) fn row(&self) -> Arc<Row> {
        Arc::clone(self.row.get_or_init(|| Arc::new(self.view().into())))
    }

    pub(crate) fn view(&self) -> TaskView {
        let (detail, finished_at) = match &self.state {
            State::Running | State::Stopping => (self.progress.clone(), None),
            State::Ended { outcome, at } => (outcome.detail.clone(), Some(*at)),
        };
        TaskView {
            id: self.id.clone(),
            kind: self.id.kind().clone(),
            label: self.label.clone(),
            status: self.status(),
            detail,
            started_at: self.started_at,
            finished_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::new("bash-1".parse().unwrap(), Label::new("make").unwrap(), UnixMillis(1_000))
    }

    #[test]
    fn the_first_outcome_counts_and_an_end_is_final() {
        let mut task = task();
        assert_eq!(task.stopping(), Ok(true));
        assert_eq!(task.stopping(), Ok(false));
        task.settle(Outcome::new(End::Killed).with_detail("signal: SIGTERM"), UnixMillis(2_000)).unwrap();
        assert_eq!(task.settle(Outcome::new(End::Completed), UnixMillis(3_000)), Err(Ended));
        assert_eq!(task.stopping(), Err(Ended));
        let view = task.view();
        assert_eq!((view.status, view.detail.as_deref()), (Status::Killed, Some("signal: SIGTERM")));
        assert_eq!(view.finished_at, Some(UnixMillis(2_000)));
    }

    #[test]
    fn what_is_shown_is_shared_until_it_changes() {
        let mut task = task();
        let mut seen = vec![task.row()];
        let mut look = |task: &Task| {
            assert_eq!(task.row().task(), &task.view());
            assert!(Arc::ptr_eq(&task.row(), &task.row()));
            seen.push(task.row());
        };
        task.describe(None, Some(&Detail::new("step 1").unwrap())).unwrap();
        look(&task);
        task.describe(Some(Label::new("make all").unwrap()), None).unwrap();
        look(&task);
        task.stopping().unwrap();
        look(&task);
        task.settle(Outcome::new(End::Killed), UnixMillis(2_000)).unwrap();
        look(&task);
        assert!(seen.windows(2).all(|two| two[0] != two[1]));
        let before = task.row();
        assert!(task.describe(None, None).is_err() && Arc::ptr_eq(&before, &task.row()));
    }

    #[test]
    fn a_live_task_says_how_it_gets_on_and_an_ended_one_only_how_it_ended() {
        let mut task = task();
        let detail = Detail::new("step 1 of 2").unwrap();
        assert_eq!(task.describe(None, Some(&detail)), Ok(true));
        assert_eq!(task.describe(None, Some(&detail)), Ok(false));
        assert_eq!(task.describe(Some(Label::new("make all").unwrap()), None), Ok(true));
        task.stopping().unwrap();
        let view = task.view();
        assert_eq!((view.status, view.label.as_str()), (Status::Stopping, "make all"));
        assert_eq!(view.detail.as_deref(), Some("step 1 of 2"));
        task.settle(Outcome::new(End::Completed), UnixMillis(2_000)).unwrap();
        assert_eq!(task.view().detail, None);
        assert_eq!(task.describe(None, Some(&detail)), Err(Ended));
    }

    #[test]
    fn a_blank_detail_takes_back_what_was_said() {
        let mut task = task();
        task.describe(None, Some(&Detail::new("step 1").unwrap())).unwrap();
        assert_eq!(task.describe(None, Some(&Detail::new(" ").unwrap())), Ok(true));
        assert_eq!(task.view().detail, None);
        assert_eq!(Detail::new(&"é".repeat(2_049)), Err(InvalidDetail { bytes: 4_098 }));
    }

    #[test]
    fn a_task_never_ends_before_it_started() {
        let mut task = task();
        task.settle(Outcome::new(End::Completed), UnixMillis(1)).unwrap();
        assert_eq!(task.view().finished_at, Some(UnixMillis(1_000)));
    }

    #[test]
    fn the_wire_has_exactly_the_fields_of_the_contract() {
        let mut task = task();
        assert_eq!(
            serde_json::to_string(&task.view()).unwrap(),
            r#"{"id":"bash-1","kind":"bash","label":"make","status":"running","startedAt":1000}"#
        );
        task.settle(Outcome::new(End::Failed).with_detail("exit code: 1"), UnixMillis(2_000)).unwrap();
        task.mark_reported();
        assert_eq!(
            serde_json::to_string(&task.view()).unwrap(),
            r#"{"id":"bash-1","kind":"bash","label":"make","status":"failed","detail":"exit code: 1","startedAt":1000,"finishedAt":2000}"#
        );
    }

    #[test]
    fn a_chosen_label_is_refused_where_a_long_command_is_cut_at_a_character() {
        assert_eq!(Label::new(" \n"), Err(InvalidLabel::Blank));
        let long = "é".repeat(2_049);
        assert_eq!(Label::new(&long), Err(InvalidLabel::TooLong { bytes: 4_098 }));
        let cut = Label::from_command(&long).unwrap();
        assert_eq!(cut.as_str().len(), 4_095);
        assert_eq!(cut.as_str().trim_start_matches('é'), "…");
        assert_eq!(Label::from_command("make").unwrap().as_str(), "make");
    }

    #[test]
    fn a_blank_detail_is_none_and_a_long_one_is_cut() {
        assert_eq!(Outcome::new(End::Failed).with_detail(" ").detail, None);
        let long = Outcome::new(End::Failed).with_detail("x".repeat(5_000)).detail.unwrap();
        assert_eq!((long.len(), long.ends_with("x…")), (4_096, true));
    }
}
