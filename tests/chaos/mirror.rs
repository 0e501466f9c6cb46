//! The model: what one reader may ever see of a session, whatever happens around it.
//!
//! - A list is whole: unique ids, each kind's numbers in their order, nobody else's tasks.
//! - A task goes `running`, `stopping`, ended, and never back; its start never changes; its end is
//!   the same for every reader, for ever.
//! - A task that was gone from a list is gone from every later one, also on a later connection.
//! - The ids of a connection never descend, and only the empty list has none.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::reader::Event;

/// A task, told from its namesake in another life of the gateway.
type Key = (String, u64);

/// How tasks ended, as whoever saw it first saw it.
pub(crate) type Ends = Arc<Mutex<HashMap<Key, Value>>>;

/// What of the past is told when something is wrong.
const RECENT: usize = 12;

/// One reader's copy of one session's list.
pub(crate) struct Mirror {
    session: String,
    rows: Vec<Value>,
    /// What a reader sends as `Last-Event-ID`; empty when there is nothing to send.
    last_id: String,
    /// The newest id on this connection.
    stamp: u64,
    /// How far each task of the newest list had come.
    newest: HashMap<Key, u8>,
    gone: HashSet<Key>,
    ends: Ends,
    recent: VecDeque<String>,
    pub(crate) lists: u64,
}

impl Mirror {
    pub(crate) fn new(session: String, ends: Ends) -> Self {
        Self {
            session,
            rows: Vec::new(),
            last_id: String::new(),
            stamp: 0,
            newest: HashMap::new(),
            gone: HashSet::new(),
            ends,
            recent: VecDeque::new(),
            lists: 0,
        }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    pub(crate) fn last_id(&self) -> &str {
        &self.last_id
    }

    pub(crate) fn rows(&self) -> &[Value] {
        &self.rows
    }

    /// Notes what happened to the connection, for the story of a failure.
    pub(crate) fn note(&mut self, what: String) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(what);
    }

    /// The last that happened, and the rows that it came to.
    pub(crate) fn story(&self) -> String {
        let recent: Vec<_> = self.recent.iter().map(|line| format!("    {line}\n")).collect();
        format!("session {}\n{}    rows: {:?}", self.session, recent.concat(), statuses(&self.rows))
    }

    /// A new connection. One that resumes keeps its rows until it is told; another begins afresh.
    pub(crate) fn connected(&mut self, resumes: bool) {
        self.stamp = 0;
        if !resumes {
            self.rows.clear();
            self.last_id.clear();
        }
        self.note(format!("connected{}", if resumes { ", resumes" } else { "" }));
    }

    /// Takes what a stream said, or says what is wrong with it.
    pub(crate) fn take(&mut self, event: &Event) -> Result<(), String> {
        match event.name.as_str() {
            "message" => self.list(event),
            "heartbeat" => event.data.parse::<u64>().map(drop).map_err(|_| format!("a beat of {:?}", event.data)),
            other => Err(format!("an event named {other:?}")),
        }
    }

    fn list(&mut self, event: &Event) -> Result<(), String> {
        self.lists += 1;
        let rows: Vec<Value> =
            serde_json::from_str(&event.data).map_err(|error| format!("{error} in {:?}", event.data))?;
        self.note(format!("id {:?} {:?}", event.id, statuses(&rows)));
        if rows.is_empty() {
            if !event.id.is_empty() {
                return Err("the empty list has an id".into());
            }
        } else {
            let id = event.id.parse::<u64>().map_err(|_| format!("an id of {:?}", event.id))?;
            if id < self.stamp {
                return Err(format!("ids descend from {} to {id}", self.stamp));
            }
            self.stamp = id;
        }
        let mut newest = HashMap::new();
        let mut numbers: HashMap<&str, u64> = HashMap::new();
        for row in &rows {
            let (key, progress) = self.row(row)?;
            let (kind, number) = key.0.rsplit_once('-').ok_or("an id without a number")?;
            let number = number.parse().map_err(|_| format!("an id of {:?}", key.0))?;
            let kind = row["kind"].as_str().filter(|named| *named == kind).ok_or("an id of another kind")?;
            if numbers.insert(kind, number).is_some_and(|before| before >= number) {
                return Err(format!("{} is out of order, or there twice", key.0));
            }
            newest.insert(key, progress);
        }
        for (key, _) in self.newest.drain() {
            if !newest.contains_key(&key) {
                self.gone.insert(key);
            }
        }
        self.newest = newest;
        self.rows = rows;
        self.last_id.clone_from(&event.id);
        Ok(())
    }

    fn row(&self, row: &Value) -> Result<(Key, u8), String> {
        let (id, label) = (text(row, "id")?, text(row, "label")?);
        let started = row["startedAt"].as_u64().ok_or("a task without a start")?;
        // Whoever starts a task calls it by the session that it is for.
        let owner = label.split(' ').next().unwrap_or_default();
        if owner != self.session && owner != "unowned" {
            return Err(format!("{id} belongs to {owner}"));
        }
        let progress = match text(row, "status")? {
            "running" => 0,
            "stopping" => 1,
            "completed" | "killed" | "failed" => 2,
            other => return Err(format!("{id} is {other:?}")),
        };
        let key = (id.to_owned(), started);
        if self.gone.contains(&key) {
            return Err(format!("{id} was gone, and is back"));
        }
        if self.newest.get(&key).is_some_and(|before| *before > progress) {
            return Err(format!("{id} went back to {}", row["status"]));
        }
        let finished = row.get("finishedAt").map(|at| at.as_u64().ok_or("an end that is no time")).transpose()?;
        match (progress, finished) {
            (2, Some(finished)) if finished >= started => {}
            (0 | 1, None) => return Ok((key, progress)),
            _ => return Err(format!("{row} has a wrong end")),
        }
        let mut ends = self.ends.lock().unwrap();
        let end = ends.entry(key.clone()).or_insert_with(|| row.clone());
        if end == row { Ok((key, progress)) } else { Err(format!("{end} became {row}")) }
    }
}

fn text<'a>(row: &'a Value, field: &str) -> Result<&'a str, String> {
    row[field].as_str().ok_or_else(|| format!("{row} has no {field}"))
}

fn statuses(rows: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    rows.iter().map(|row| format!("{} {}", text(&row["id"]), text(&row["status"]))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(id: &str, status: &str) -> Value {
        let mut task = json!({"id": id, "kind": "bash", "label": "a x", "status": status, "startedAt": 5});
        if !["running", "stopping"].contains(&status) {
            task["finishedAt"] = json!(6);
        }
        task
    }

    fn event(id: &str, tasks: &[Value]) -> Event {
        Event { name: "message".into(), id: id.into(), data: Value::from(tasks).to_string() }
    }

    /// What is wrong with the last of these events, the others being right.
    fn wrong(events: &[Event]) -> String {
        let mut mirror = Mirror::new("a".into(), Ends::default());
        mirror.connected(false);
        let (last, others) = events.split_last().unwrap();
        for event in others {
            mirror.take(event).unwrap();
        }
        mirror.take(last).unwrap_err()
    }

    #[test]
    fn the_model_notices_each_fault() {
        let (one, two) = (task("bash-1", "running"), task("bash-2", "running"));
        let ended = task("bash-1", "completed");
        let mut other = ended.clone();
        other["detail"] = json!("no");
        let faults: [(&[Event], &str); 9] = [
            (&[event("7", std::slice::from_ref(&one)), event("6", std::slice::from_ref(&one))], "ids descend"),
            (&[event("7", std::slice::from_ref(&ended)), event("7", std::slice::from_ref(&one))], "went back"),
            (
                &[event("7", &[one.clone(), two.clone()]), event("", &[]), event("8", std::slice::from_ref(&two))],
                "back",
            ),
            (&[event("7", std::slice::from_ref(&ended)), event("7", &[other])], "became"),
            (&[event("7", &[two.clone(), one.clone()])], "out of order"),
            (&[event("7", &[one.clone(), one.clone()])], "there twice"),
            (&[event("7", &[])], "has an id"),
            (&[event("", std::slice::from_ref(&one))], "an id of"),
            (
                &[event(
                    "7",
                    &[json!({"id": "bash-1", "kind": "bash", "label": "b x", "status": "running", "startedAt": 5})],
                )],
                "belongs to b",
            ),
        ];
        for (events, fault) in faults {
            let said = wrong(events);
            assert!(said.contains(fault), "{said} is not {fault}");
        }
    }
}
