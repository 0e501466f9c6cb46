//! A list as JSON, written anew only where it changed.
//!
//! Promise: what comes out is byte for byte the JSON of the whole list. A change of one task costs that
//! task's JSON and a copy of the rest, however long the list is.

use std::{ops::Range, sync::Arc};

use crate::{sse, task::TaskView};

/// The tasks of the newest list, and where each stands in its JSON.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<(Arc<TaskView>, Range<usize>)>);

impl Rows {
    /// The JSON of `list`; none if that is `before`, which is the JSON of the list before it.
    pub(super) fn encode(&mut self, list: Vec<Arc<TaskView>>, before: &[u8]) -> Option<Vec<u8>> {
        if self.0.iter().map(|(task, _)| task).eq(&list) {
            return None;
        }
        let mut json = Vec::with_capacity(before.len() + 128);
        json.push(b'[');
        let mut rows = Vec::with_capacity(list.len());
        let mut rest = self.0.as_slice();
        for task in list {
            if json.len() > 1 {
                json.push(b',');
            }
            let from = json.len();
            // Lists keep their order, so that one that was there is found at once, or behind some that went.
            let at = rest.iter().position(|(known, _)| known.id == task.id);
            let known = at.and_then(|at| rest.get(at..)).and_then(<[_]>::split_first);
            if let Some((_, others)) = known {
                rest = others;
            }
            let same = known.filter(|((known, _), _)| *known == task).and_then(|((_, at), _)| before.get(at.clone()));
            match same {
                Some(same) => json.extend_from_slice(same),
                None => sse::write_json_line(&mut json, &task),
            }
            rows.push((task, from..json.len()));
        }
        json.push(b']');
        self.0 = rows;
        Some(json)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::{
        clock::UnixMillis,
        id::{Kind, TaskId},
        task::{Label, Status},
    };

    fn task(number: u64, label: &str) -> Arc<TaskView> {
        Arc::new(TaskView {
            id: TaskId::new(Kind::bash(), NonZeroU64::new(number).unwrap()),
            kind: Kind::bash(),
            label: Label::new(label).unwrap(),
            status: Status::Running,
            detail: None,
            started_at: UnixMillis(number),
            finished_at: None,
        })
    }

    #[test]
    fn any_list_after_any_other_is_its_json() {
        let mut rows = Rows::default();
        let mut before = b"[]".to_vec();
        for turn in 0..2_000 {
            let list: Vec<_> = (1..8)
                .filter(|_| fastrand::bool())
                .map(|number| task(number, ["a", "构建\u{2028}", "\"quoted\""][fastrand::usize(..3)]))
                .collect();
            let whole = sse::json_line(&list);
            match rows.encode(list, &before) {
                Some(json) => before = json,
                None => assert_eq!(before, whole, "turn {turn}"),
            }
            assert_eq!(before, whole, "turn {turn}");
        }
    }

    #[test]
    fn a_list_that_stayed_as_it_was_is_none() {
        let mut rows = Rows::default();
        assert!(rows.encode(Vec::new(), b"[]").is_none());
        let json = rows.encode(vec![task(1, "a"), task(2, "b")], b"[]").unwrap();
        assert!(rows.encode(vec![task(1, "a"), task(2, "b")], &json).is_none());
        let other = rows.encode(vec![task(2, "b")], &json).unwrap();
        assert_eq!(rows.encode(Vec::new(), &other).unwrap(), b"[]");
    }
}
