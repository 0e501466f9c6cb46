//! A list that is drawn in place: only its own lines are cleared and written again.
//!
//! Promise: however it ends, the cursor stands below the list, at the start of a line.

use std::{io, time::Duration};

use rustix::termios::tcgetwinsize;
use tasklight::{
    SessionId, TaskView,
    clock::{Clock, UnixMillis},
};
use tokio::time::sleep;

use super::{
    super::{
        CommandError,
        events::List,
        print,
        text::{cut, one_line, width},
    },
    rows::{Style, rows, summary},
};

pub(super) struct Screen {
    session: SessionId,
    clock: Clock,
    colours: bool,
    /// None before the first list.
    tasks: Option<Vec<TaskView>>,
    /// The server's time and ours, when the newest list came.
    came_at: Option<(UnixMillis, UnixMillis)>,
    /// Why nothing new comes, and since when by the server's time: durations stand still then.
    trouble: Option<(String, UnixMillis)>,
    /// The widths of the lines that are on the screen.
    drawn: Vec<usize>,
}

impl Screen {
    pub(super) fn new(session: SessionId) -> Self {
        // https://no-color.org: set, and to anything but nothing.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { session, clock: Clock::system(), colours, tasks: None, came_at: None, trouble: None, drawn: Vec::new() }
    }

    pub(super) fn list(&mut self, list: List) -> Result<(), CommandError> {
        self.came_at = list.sent_at.map(|theirs| (theirs, self.clock.now())).or(self.came_at);
        self.tasks = Some(list.tasks);
        self.trouble = None;
        self.draw()
    }

    pub(super) fn lost(&mut self, why: String) -> Result<(), CommandError> {
        self.trouble = Some((why, self.now()));
        self.draw()
    }

    /// Returns when a duration shows another second.
    pub(super) async fn tick(&self) {
        let live = self.tasks.iter().flatten().filter(|task| task.finished_at.is_none());
        let now = self.now();
        let next = live.map(|task| 1_000 - now.0.saturating_sub(task.started_at.0) % 1_000).min();
        match next.filter(|_| self.trouble.is_none()) {
            Some(millis) => sleep(Duration::from_millis(millis)).await,
            None => std::future::pending().await,
        }
    }

    /// The server's time.
    fn now(&self) -> UnixMillis {
        match (&self.trouble, self.came_at) {
            (Some((_, since)), _) => *since,
            (None, Some((theirs, ours))) => UnixMillis(theirs.0 + self.clock.now().0.saturating_sub(ours.0)),
            (None, None) => self.clock.now(),
        }
    }

    pub(super) fn draw(&mut self) -> Result<(), CommandError> {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (columns, lines): (usize, usize) = size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()));
        let state = match (&self.trouble, &self.tasks) {
            (Some((why, _)), _) => one_line(why),
            (None, None) => "connecting".to_owned(),
            (None, Some(tasks)) => summary(tasks),
        };
        let head = cut(&format!("{}: {state}", one_line(self.session.as_str())), columns);
        let tasks = self.tasks.as_deref().unwrap_or_default();
        // One line is the head's, and on one below the list the cursor waits.
        let style = Style { columns, lines: lines.saturating_sub(2), colours: self.colours };
        let bare = rows(tasks, self.now(), Style { colours: false, ..style });
        let shown = rows(tasks, self.now(), style);
        // A terminal that became narrower has wrapped what was drawn.
        let above: usize = self.drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        let up = if above == 0 { String::new() } else { format!("\u{1b}[{}A", above.min(lines)) };
        self.drawn = std::iter::once(&head).chain(&bare).map(|line| width(line)).collect();
        let drawn = std::iter::once(head).chain(shown).collect::<Vec<_>>().join("\n");
        // ECMA-48: cursor up, to the start of the line, clear to the end of the screen.
        print::write(&format!("{up}\r\u{1b}[J{drawn}\n"))
    }
}
