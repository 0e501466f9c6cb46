//! A task as people see it from one change to the next, and its JSON.
//!
//! Promise: the JSON is written at most once, by whoever first asks for it, and shared by all lists and
//! answers in which the task stands. It is [one line](crate::sse::json_line).

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::TaskView;
use crate::sse;

/// One row of a list.
#[derive(Debug)]
pub(crate) struct Row {
    task: TaskView,
    json: OnceLock<Bytes>,
}

impl Row {
    /// What it shows.
    pub(crate) fn task(&self) -> &TaskView {
        &self.task
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| write_row(&self.task).into())
    }
}

/// The same JSON as [`sse::json_line`] writes, in a quarter of the instructions: every change pays for it.
fn write_row(task: &TaskView) -> Vec<u8> {
    // Named one by one, so that none is forgotten when another comes.
    let TaskView { id, kind, label, status, detail, started_at, finished_at } = task;
    let mut number = itoa::Buffer::new();
    let mut json = Vec::with_capacity(200 + label.as_str().len() + detail.as_ref().map_or(0, |detail| detail.len()));
    json.extend_from_slice(b"{\"id\":\"");
    // Neither an id nor a kind nor a status has anything to escape.
    json.extend_from_slice(id.kind().as_str().as_bytes());
    json.push(b'-');
    json.extend_from_slice(number.format(id.number().get()).as_bytes());
    json.extend_from_slice(b"\",\"kind\":\"");
    json.extend_from_slice(kind.as_str().as_bytes());
    json.extend_from_slice(b"\",\"label\":");
    sse::push_string(&mut json, label.as_str());
    json.extend_from_slice(b",\"status\":\"");
    json.extend_from_slice(status.as_str().as_bytes());
    json.push(b'"');
    if let Some(detail) = detail {
        json.extend_from_slice(b",\"detail\":");
        sse::push_string(&mut json, detail);
    }
    json.extend_from_slice(b",\"startedAt\":");
    json.extend_from_slice(number.format(started_at.0).as_bytes());
    if let Some(finished_at) = finished_at {
        json.extend_from_slice(b",\"finishedAt\":");
        json.extend_from_slice(number.format(finished_at.0).as_bytes());
    }
    json.push(b'}');
    json
}

impl From<TaskView> for Row {
    fn from(task: TaskView) -> Self {
        Self { task, json: OnceLock::new() }
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.task == other.task
    }
}

impl Eq for Row {}

/// How long the JSON of a list is, in bytes.
pub(crate) fn list_length(rows: &[Arc<Row>]) -> usize {
    let commas = rows.len().saturating_sub(1);
    rows.iter().map(|row| row.json().len()).sum::<usize>() + commas + "[]".len()
}

/// Appends the JSON of a list.
pub(crate) fn write_list(rows: &[Arc<Row>], json: &mut Vec<u8>) {
    json.push(b'[');
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        json.extend_from_slice(row.json());
    }
    json.push(b']');
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        clock::UnixMillis,
        id::{Kind, TaskId},
        task::{Label, Status},
    };

    fn task(number: u64, label: &str) -> TaskView {
        TaskView {
            id: TaskId::new(Kind::bash(), NonZeroU64::new(number).unwrap()),
            kind: Kind::bash(),
            label: Label::new(label).unwrap(),
            status: Status::Running,
            detail: None,
            started_at: UnixMillis(number),
            finished_at: None,
        }
    }

    #[test]
    fn a_list_of_rows_is_the_json_of_the_list() {
        let labels = ["a", "构建\u{2028}", "\"quoted\""];
        for length in 0..=labels.len() {
            let tasks: Vec<_> = (1..).zip(&labels[..length]).map(|(number, label)| task(number, label)).collect();
            let rows: Vec<_> = tasks.iter().map(|task| Arc::new(Row::from(task.clone()))).collect();
            let mut json = Vec::new();
            write_list(&rows, &mut json);
            assert_eq!(json, sse::json_line(&tasks));
            assert_eq!(json.len(), list_length(&rows));
        }
    }

    proptest! {
        #[test]
        fn a_row_is_the_json_of_its_task(
            number in 1_u64..,
            label in "[ -~\u{0}-\u{20}\u{7f}-\u{a0}\u{2020}-\u{2030}\u{1f600}]{0,40}",
            detail in proptest::option::of("[ -~]{0,40}|\\PC{0,20}"),
            status in prop::sample::select(vec![
                Status::Running, Status::Stopping, Status::Completed, Status::Killed, Status::Failed,
            ]),
            finished_at in proptest::option::of(any::<u64>()),
        ) {
            let task = TaskView {
                status,
                detail: detail.map(Into::into),
                finished_at: finished_at.map(UnixMillis),
                ..task(number, &format!("x{label}"))
            };
            let row = Row::from(task);
            prop_assert_eq!(row.json(), &sse::json_line(row.task()));
        }
    }

    #[test]
    fn the_json_of_a_row_is_written_once() {
        let row = Row::from(task(1, "a"));
        assert_eq!(row.json().as_ptr(), row.json().as_ptr());
        assert_eq!(row.json(), &sse::json_line(row.task()));
    }
}
