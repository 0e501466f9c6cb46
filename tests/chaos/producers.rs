//! External tasks, and the producers who work on them: each on a thread of its own, for a while.

use std::{path::Path, thread, time::Duration};

use serde_json::{Value, json};

use crate::{control::ask, random::Random};

/// What becomes of a producer when its work is over.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Completes,
    Fails,
    /// It is gone without a word: the lease must end its task.
    Dies,
}

/// How often a lease of [`LEASE_MS`] is renewed.
const RENEWAL: Duration = Duration::from_millis(300);
const LEASE_MS: u64 = 1_500;

pub(crate) struct Producer {
    renewals: u64,
    fate: Fate,
    /// Whether it ends when it is asked to; else it works on.
    obeys: bool,
    detail: u64,
}

impl Producer {
    pub(crate) fn choose(random: &mut Random) -> Self {
        Self {
            renewals: random.below(12),
            fate: *random.of(&[Fate::Completes, Fate::Fails, Fate::Dies]),
            obeys: !random.one_in(4),
            detail: random.below(1_000),
        }
    }

    /// One that is gone before it did anything.
    pub(crate) fn dead() -> Self {
        Self { renewals: 0, fate: Fate::Dies, obeys: false, detail: 0 }
    }

    pub(crate) fn body(&self, owner: &str, kind: &str) -> Value {
        json!({"kind": kind, "label": format!("{owner} work {}", self.detail), "leaseMs": LEASE_MS})
    }

    /// Works on a task that was registered. Ends by itself: at a refusal, when nobody answers, or
    /// when the work is over.
    pub(crate) fn work(self, socket: &Path, path: &str) {
        for step in 0..self.renewals {
            thread::sleep(RENEWAL);
            let report = if step % 3 == 2 { json!({"detail": format!("step {step}")}) } else { json!({}) };
            let Some((200, task)) = ask(socket, "PATCH", path, Some(&report)) else { return };
            if self.obeys && task["status"] == "stopping" {
                ask(socket, "PATCH", path, Some(&json!({"status": "killed"})));
                return;
            }
        }
        let status = match self.fate {
            Fate::Completes => "completed",
            Fate::Fails => "failed",
            Fate::Dies => return,
        };
        ask(socket, "PATCH", path, Some(&json!({"status": status, "detail": "the work is over"})));
    }
}
