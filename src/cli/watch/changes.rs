//! A list as lines: one for each change of a task.

use std::{collections::HashMap, fmt::Write, time::Duration};

use tasklight::{TaskId, TaskView};

use super::super::{
    CommandError,
    events::List,
    print,
    text::{duration, one_line},
};

/// What was told last.
#[derive(Default)]
pub(super) struct Changes(HashMap<TaskId, TaskView>);

impl Changes {
    /// Tells what is new.
    pub(super) fn list(&mut self, list: List) -> Result<(), CommandError> {
        let lines = self.changes(list.tasks);
        if lines.is_empty() { Ok(()) } else { print::write(&lines) }
    }

    fn changes(&mut self, tasks: Vec<TaskView>) -> String {
        let mut lines = String::new();
        let mut told = std::mem::take(&mut self.0);
        for task in tasks {
            if told.remove(&task.id).as_ref() != Some(&task) {
                // Writing to a string does not fail.
                let _ = writeln!(lines, "{}", line(&task));
            }
            self.0.insert(task.id.clone(), task);
        }
        let mut gone: Vec<_> = told.keys().map(ToString::to_string).collect();
        gone.sort();
        lines.extend(gone.iter().map(|id| format!("{id} gone\n")));
        lines
    }
}

fn line(task: &TaskView) -> String {
    let took = task.finished_at.map(|end| Duration::from_millis(end.0.saturating_sub(task.started_at.0)));
    let took = took.map(|took| format!(" after {}", duration(took))).unwrap_or_default();
    format!("{} {}{took}: {}", task.id, print::stands(task), one_line(task.label.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let tasks = |json: &str| -> Vec<TaskView> { serde_json::from_str(json).unwrap() };
        let running = r#"{"id":"run-1","kind":"run","label":"a\nb","status":"running","startedAt":1000}"#;
        let failed = r#"{"id":"run-1","kind":"run","label":"a\nb","status":"failed","detail":"exit code: 3","startedAt":1000,"finishedAt":63000}"#;
        let mut changes = Changes::default();
        assert_eq!(changes.changes(tasks(&format!("[{running}]"))), "run-1 running: a\\nb\n");
        assert_eq!(changes.changes(tasks(&format!("[{running}]"))), "");
        assert_eq!(changes.changes(tasks(&format!("[{failed}]"))), "run-1 failed, exit code: 3 after 1m 02s: a\\nb\n");
        assert_eq!(changes.changes(Vec::new()), "run-1 gone\n");
    }
}
