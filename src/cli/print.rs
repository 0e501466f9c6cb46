//! What the commands print.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde::Deserialize;
use tasklight::{TaskView, clock::Clock};

use super::CommandError;

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

/// A list, one task a line: id, status, duration, label, detail.
pub(super) fn list(tasks: &[TaskView]) -> Result<(), CommandError> {
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

/// A task's output, and behind it how the task stands.
pub(super) fn output(output: &Output) -> Result<(), CommandError> {
    let text = &output.text;
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    write(&format!("{text}{gap}[{}]\n", stands(&output.task)))
}

/// How a task stands.
pub(super) fn status(task: &TaskView) -> Result<(), CommandError> {
    line(&stands(task))
}

/// A failure, on stderr.
pub(super) fn error(error: &CommandError) {
    // Where stderr is gone too, nobody is left to tell.
    let _ = writeln!(io::stderr(), "tasklight: {error}");
}

fn stands(task: &TaskView) -> String {
    let detail = task.detail.as_deref().map(|detail| format!(", {}", one_line(detail)));
    format!("{} {}{}", task.id, task.status, detail.unwrap_or_default())
}

fn write(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CommandError::Print)
}

/// Text of the wire on one line of a terminal: control characters are shown, not obeyed.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// `42s`, `3m 05s`, `2h 07m`, rounded down.
fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m {:02}s", seconds % 60),
        (hours, minutes) => format!("{hours}h {minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_and_rounded_down() {
        let shown = |millis| duration(Duration::from_millis(millis));
        assert_eq!(shown(999), "0s");
        assert_eq!(shown(42_999), "42s");
        assert_eq!(shown(185_000), "3m 05s");
        assert_eq!(shown(7_639_999), "2h 07m");
    }

    #[test]
    fn a_label_cannot_command_the_terminal() {
        assert_eq!(one_line("a\u{1b}[31m\nb\u{9b}"), "a\\u{1b}[31m\\nb\\u{9b}");
    }
}
