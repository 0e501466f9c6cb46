//! What `run` says of the gateway, on stderr: one line each time that something has changed.

use std::io::{self, IsTerminal, Write};

use tasklight::{SessionId, TaskId};

use super::super::{client::ClientError, text::one_line};

/// Says where the command shows.
pub(super) struct Notices {
    session: SessionId,
    said: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing was said yet, as nothing is to be said while all is well.
    Unsaid,
    Shown,
    Absent,
    Refused,
}

impl Notices {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, said: Standing::Unsaid }
    }

    /// The command shows as that task.
    pub(super) fn shown(&mut self, task: &TaskId, is_new: bool) {
        if self.said != Standing::Unsaid && (is_new || self.said != Standing::Shown) {
            say(&format!("the gateway is there: the command shows as {task} in session {}", self.session));
        }
        self.said = Standing::Shown;
    }

    /// The gateway cannot be asked, or says no.
    pub(super) fn trouble(&mut self, error: &ClientError) {
        let now = if error.is_final() { Standing::Refused } else { Standing::Absent };
        if now == self.said {
            return;
        }
        match (now, self.said) {
            (Standing::Absent, Standing::Shown) => say("the gateway is gone; the command goes on"),
            _ => say(&format!("the command does not show in session {}, and runs all the same: {error}", self.session)),
        }
        self.said = now;
    }
}

/// One line, all at once. Our terminal may be set to take line feeds as they are.
fn say(what: &str) {
    let mut stderr = io::stderr();
    let end = if stderr.is_terminal() { "\r\n" } else { "\n" };
    // Where stderr is gone, nobody is left to tell.
    let _ = stderr.write_all(format!("tasklight: {}{end}", one_line(what)).as_bytes());
}
