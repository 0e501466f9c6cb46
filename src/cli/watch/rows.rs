//! A list as the lines of a terminal. A pure function.

use std::{cmp::Reverse, time::Duration};

use tasklight::{Status, TaskView, clock::UnixMillis};

use super::super::text::{cut, duration, one_line, width};

/// How the lines are to look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Columns of the terminal; no line is longer.
    pub(super) columns: usize,
    /// Most lines; what does not fit is counted in the last one.
    pub(super) lines: usize,
    pub(super) colours: bool,
}

/// A label has so many columns before a detail has any.
const MIN_LABEL: usize = 12;

/// The tasks, live ones first by start, then the ended by end, the last first.
pub(super) fn rows(tasks: &[TaskView], now: UnixMillis, style: Style) -> Vec<String> {
    let mut tasks: Vec<&TaskView> = tasks.iter().collect();
    tasks.sort_by_key(|task| match task.finished_at {
        None => (false, task.started_at.0, Reverse(0)),
        Some(end) => (true, 0, Reverse(end.0)),
    });
    let cells: Vec<_> = tasks.iter().map(|task| Cells::of(task, now)).collect();
    let widest = |cell: fn(&Cells) -> &str| cells.iter().map(|cells| width(cell(cells))).max().unwrap_or_default();
    let columns = [widest(|cells| &cells.id), widest(|cells| &cells.status), widest(|cells| &cells.time)];
    let shown = if cells.len() > style.lines { style.lines.saturating_sub(1) } else { cells.len() };
    let mut lines: Vec<_> = cells.iter().take(shown).map(|cells| cells.line(columns, style)).collect();
    if shown < cells.len() && style.lines > 0 {
        lines.push(cut(&format!("… and {} more", cells.len() - shown), style.columns));
    }
    lines
}

/// `2 running, 1 ended`.
pub(super) fn summary(tasks: &[TaskView]) -> String {
    let live = tasks.iter().filter(|task| task.finished_at.is_none()).count();
    match (live, tasks.len() - live) {
        (0, 0) => "no tasks".to_owned(),
        (live, 0) => format!("{live} running"),
        (0, ended) => format!("{ended} ended"),
        (live, ended) => format!("{live} running, {ended} ended"),
    }
}

struct Cells {
    id: String,
    status: String,
    time: String,
    label: String,
    detail: String,
    /// SGR parameters (ECMA-48 §8.3.117).
    colour: &'static str,
    is_live: bool,
}

impl Cells {
    fn of(task: &TaskView, now: UnixMillis) -> Self {
        let took = task.finished_at.unwrap_or(now).0.saturating_sub(task.started_at.0);
        let colour = match task.status {
            Status::Running => "36",
            Status::Stopping | Status::Killed => "33",
            Status::Completed => "32",
            Status::Failed => "31",
        };
        Self {
            id: task.id.to_string(),
            status: task.status.to_string(),
            time: duration(Duration::from_millis(took)),
            label: one_line(task.label.as_str()),
            detail: task.detail.as_deref().map(|detail| format!("  ({})", one_line(detail))).unwrap_or_default(),
            colour,
            is_live: task.finished_at.is_none(),
        }
    }

    fn line(&self, [id, status, time]: [usize; 3], Style { columns, colours, .. }: Style) -> String {
        let start = format!("{:id$}  ", self.id);
        let word = format!("{:status$}", self.status);
        let middle = format!("  {:>time$}  ", self.time);
        let used = width(&start) + width(&word) + width(&middle);
        let left = columns.saturating_sub(used);
        let detail = cut(&self.detail, left.saturating_sub(width(&self.label).min(MIN_LABEL)));
        let end = format!("{}{detail}", cut(&self.label, left - width(&detail)));
        if !colours || used > columns {
            return cut(format!("{start}{word}{middle}{end}").trim_end(), columns);
        }
        let dim = if self.is_live { "" } else { "\u{1b}[2m" };
        format!("{dim}{start}\u{1b}[{}m{word}\u{1b}[39m{middle}{end}\u{1b}[0m", self.colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> Vec<TaskView> {
        serde_json::from_str(
            r#"[
            {"id":"bash-1","kind":"bash","label":"make","status":"failed","detail":"exit code: 2","startedAt":1000,"finishedAt":5000},
            {"id":"run-1","kind":"run","label":"运行所有的测试并生成覆盖率报告文件","status":"running","startedAt":3000},
            {"id":"bash-2","kind":"bash","label":"sleep 60","status":"killed","detail":"signal: SIGTERM","startedAt":2000,"finishedAt":9000},
            {"id":"run-2","kind":"run","label":"a\u001b[2Jb","status":"stopping","startedAt":2500}]"#,
        )
        .unwrap()
    }

    fn lines(columns: usize, lines: usize, colours: bool) -> Vec<String> {
        rows(&tasks(), UnixMillis(65_000), Style { columns, lines, colours })
    }

    #[test]
    fn live_tasks_come_first_and_then_what_ended_last() {
        assert_eq!(
            lines(80, 10, false),
            [
                "run-2   stopping  1m 02s  a\\u{1b}[2Jb",
                "run-1   running   1m 02s  运行所有的测试并生成覆盖率报告文件",
                "bash-2  killed        7s  sleep 60  (signal: SIGTERM)",
                "bash-1  failed        4s  make  (exit code: 2)",
            ]
        );
        assert_eq!(summary(&tasks()), "2 running, 2 ended");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_a_colour_adds_no_width() {
        for columns in 0..90 {
            for (bare, coloured) in lines(columns, 10, false).iter().zip(lines(columns, 10, true)) {
                assert!(width(bare) <= columns, "{columns}: {bare}");
                let sequences = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[36m", "\u{1b}[33m", "\u{1b}[31m", "\u{1b}[39m"];
                let stripped = sequences.iter().fold(coloured, |line, sequence| line.replace(sequence, ""));
                assert_eq!(stripped.trim_end(), bare);
            }
        }
        assert_eq!(lines(40, 10, false)[1], "run-1   running   1m 02s  运行所有的测…");
        assert_eq!(lines(40, 10, false)[2], "bash-2  killed        7s  sleep 60  (si…");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let lines = lines(80, 3, false);
        assert_eq!((lines.len(), lines[2].as_str()), (3, "… and 2 more"));
    }
}
