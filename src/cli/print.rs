//! What the commands print.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use serde::Deserialize;
use tasklight::{Scope, TaskView, clock::Clock};

use super::{
    CommandError,
    text::{duration, lines, one_line},
};

/// The answer of the control API's `output`.
#[derive(Deserialize)]
pub(super) struct Output {
    text: String,
    task: TaskView,
}

/// One line.
pub(super) fn line(text: &str) -> Result<(), CommandError> {
    write(&format!("{text}\n"))
}

/// A list, one task a line: id, status, duration, label, detail. An empty one says so.
pub(super) fn list(tasks: &[TaskView], scope: &Scope) -> Result<(), CommandError> {
    if tasks.is_empty() {
        return match scope {
            Scope::Session(session) => line(&format!("no tasks in session {}", one_line(session.as_str()))),
            Scope::Unowned => line("no unowned tasks"),
        };
    }
    let now = Clock::system().now();
    let rows: Vec<[String; 5]> = tasks
        .iter()
        .map(|task| {
            let took = task.finished_at.unwrap_or(now).0.saturating_sub(task.started_at.0);
            let detail = task.detail.as_deref().map(|detail| format!("({})", one_line(detail)));
            [
                task.id.to_string(),
                task.status.to_string(),
                duration(Duration::from_millis(took)),
                one_line(task.label.as_str()),
                detail.unwrap_or_default(),
            ]
        })
        .collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let (ids, statuses, times) = (width(0), width(1), width(2));
    let lines = rows.iter().map(|[id, status, time, label, detail]| {
        let line = format!("{id:ids$}  {status:statuses$}  {time:>times$}  {label}  {detail}");
        format!("{}\n", line.trim_end())
    });
    write(&lines.collect::<String>())
}

/// A task's output, and behind it how the task stands. On a terminal the output commands nothing;
/// elsewhere it is as it is.
pub(super) fn output(output: &Output) -> Result<(), CommandError> {
    let text = match output.text.as_str() {
        "" => "[no new output]\n".to_owned(),
        text if io::stdout().is_terminal() => lines(text),
        text => text.to_owned(),
    };
    let gap = if output.text.is_empty() || output.text.ends_with('\n') { "" } else { "\n" };
    write(&format!("{text}{gap}[{} {}]\n", output.task.id, stands(&output.task)))
}

/// A task that was asked to end.
pub(super) fn asked(task: &TaskView) -> Result<(), CommandError> {
    line(&format!("{} {}", task.id, stands(task)))
}

/// A task that had ended before it was asked to.
pub(super) fn finished(task: &TaskView) -> Result<(), CommandError> {
    line(&format!("{} already finished: {}", task.id, stands(task)))
}

/// A failure, on stderr.
pub(super) fn error(error: &CommandError) {
    notice(&error.to_string());
}

/// A line for people, on stderr.
pub(super) fn notice(what: &str) {
    // Where stderr is gone too, nobody is left to tell.
    let _ = writeln!(io::stderr(), "tasklight: {what}");
}

/// `running`, or `failed, exit code: 1`.
pub(super) fn stands(task: &TaskView) -> String {
    let detail = task.detail.as_deref().map(|detail| format!(", {}", one_line(detail)));
    format!("{}{}", task.status, detail.unwrap_or_default())
}

/// Text as it is.
pub(super) fn write(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CommandError::Print)
}
