//! The gateway in numbers, as Prometheus reads them (text exposition format, version 0.0.4).
//!
//! Promise: nothing here has a label whose values grow with sessions or tasks.

use std::{
    fmt::{Display, Write},
    fs,
    sync::Arc,
};

use hyper::StatusCode;

use super::Whole;
use crate::{
    hub::Hub,
    registry::{ByEnd, Census},
    traffic::{Open, Traffic},
};

/// All numbers, as they are now.
pub(crate) fn answer(census: &Census, hub: &Hub, traffic: &Arc<Traffic>) -> Whole {
    let mut page = Page::default();
    let Census { sessions, tasks, started, ended, changes, .. } = *census;
    page.gauge("tasklight_tasks", "Records of tasks, by where they stand.")
        .label("status", "running", tasks.running)
        .label("status", "stopping", tasks.stopping)
        .ends(tasks.ended);
    page.gauge("tasklight_sessions", "Open sessions.").value(sessions);
    page.gauge("tasklight_watched_sessions", "Sessions whose list somebody watches.").value(hub.watched());
    page.gauge(
        "tasklight_streams",
        "Open streams, by what they tell: a session's list (tasks), those of several \
        sessions (mux) or of all (overview), or notices of ended tasks (done).",
    )
    .label("source", "tasks", traffic.open(Open::Tasks))
    .label("source", "mux", traffic.open(Open::Mux))
    .label("source", "overview", traffic.open(Open::Overview))
    .label("source", "done", traffic.open(Open::Notices));
    page.gauge("tasklight_connections", "Open connections, streams among them, by listener.")
        .label("listener", "browsers", traffic.open(Open::Browsers))
        .label("listener", "control", traffic.open(Open::Control));
    page.counter("tasklight_tasks_started_total", "Tasks registered.").value(started);
    page.counter("tasklight_tasks_settled_total", "Tasks ended, by how.").ends(ended);
    page.counter("tasklight_changes_total", "Changes of a list that the registry told.").value(changes);
    page.counter("tasklight_lists_encoded_total", "Lists encoded, each once for all who watch it.")
        .value(hub.encoded());
    page.counter("tasklight_frames_sent_total", "Events written to streams, signs of life aside.")
        .value(traffic.sent());
    // Where the system does not tell, nothing is better than a zero.
    if let Some(open) = open_descriptors() {
        page.gauge("process_open_fds", "Number of open file descriptors.").value(open);
    }
    if let Some(bytes) = resident_memory() {
        page.gauge("process_resident_memory_bytes", "Resident memory size in bytes.").value(bytes);
    }
    super::with_body(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page.text)
}

/// The text, one family after another.
#[derive(Default)]
struct Page {
    text: String,
}

/// The samples of one family.
struct Samples<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Page {
    fn gauge(&mut self, name: &'static str, help: &'static str) -> Samples<'_> {
        self.family(name, "gauge", help)
    }

    fn counter(&mut self, name: &'static str, help: &'static str) -> Samples<'_> {
        self.family(name, "counter", help)
    }

    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> Samples<'_> {
        // A string takes whatever is written to it.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Samples { name, text: &mut self.text }
    }
}

impl Samples<'_> {
    fn value(self, value: impl Display) {
        let _ = writeln!(self.text, "{} {value}", self.name);
    }

    fn label(self, label: &'static str, of: &'static str, value: u64) -> Self {
        let _ = writeln!(self.text, "{}{{{label}=\"{of}\"}} {value}", self.name);
        self
    }

    fn ends(self, ends: ByEnd) -> Self {
        self.label("status", "completed", ends.completed).label("status", "killed", ends.killed).label(
            "status",
            "failed",
            ends.failed,
        )
    }
}

/// `proc_pid_fd(5)`: since Linux 6.2 the folder's size says how many there are. Before, they are counted,
/// but for the one that lists them; that takes a while where there are many.
fn open_descriptors() -> Option<u64> {
    let path = "/proc/self/fd";
    match fs::metadata(path).ok()?.len() {
        0 => Some(fs::read_dir(path).ok()?.count().saturating_sub(1) as u64),
        open => Some(open),
    }
}

/// `proc_pid_status(5)`, in bytes.
fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}
