//! The works: what servers are asked to do, and what is measured of it.
//!
//! Each run has a server of its own, and ends by showing that each reader has the newest list of its
//! session, whole. CPU is the server's, of all its processes, over the time from the first change until
//! the last reader has the last list; it includes taking the changes.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    http::{Connection, request},
    list::{self, Numbered},
    load::Load,
    problem::Result,
    process::{self, Memory, Processes},
    server::{self, Kind, Places, Server},
};

/// Streams that wait for their baseline at once, where it is not a storm.
const AT_ONCE: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// One session; the next change when all have the last.
    FanOut { streams: usize },
    /// A change in each of many sessions; the next round when all have it.
    SpreadClosed { sessions: usize, each: usize },
    /// A thousand changes a second, going round the sessions.
    SpreadOpen { sessions: usize, each: usize },
    /// Streams of one session that has nothing to say.
    Idle { streams: usize },
    /// A hundred changes a second in one session, some of whose streams never read.
    Stalled { streams: usize, stalled: usize, seconds: u64 },
    /// All connect at once.
    Storm { streams: usize },
    /// Changes in sessions that nobody watches.
    Churn { sessions: usize },
    /// A realistic hour, `faster` times as fast: a change in each session every 30 s, and one stream in
    /// a hundred reconnecting a minute.
    Mixed { streams: usize, sessions: usize, faster: u32, seconds: u64 },
}

/// What was measured, by name.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

impl Work {
    /// What is run when nothing else is asked for, at the size that the bars speak of or at a tenth
    /// of it.
    ///
    /// Stalled readers are looked at for so many `seconds`.
    pub(crate) fn all(small: bool, seconds: u64) -> Vec<Self> {
        let size = |full: usize| if small { full / 10 } else { full };
        let stalled = |stalled| Self::Stalled { streams: size(1_000), stalled, seconds };
        vec![
            Self::FanOut { streams: size(5_000) },
            Self::SpreadClosed { sessions: size(1_000), each: 5 },
            Self::SpreadOpen { sessions: size(1_000), each: 5 },
            Self::Idle { streams: size(10_000) },
            stalled(0),
            stalled(size(100)),
            Self::Storm { streams: size(5_000) },
            Self::Churn { sessions: size(1_000) },
            Self::Mixed { streams: size(10_000), sessions: size(2_000), faster: 6, seconds: if small { 2 } else { 5 } },
        ]
    }

    /// How the cost of a delivery and of a change grow.
    pub(crate) fn curve() -> Vec<Self> {
        let mut works: Vec<_> = [100, 1_000, 10_000].map(|streams| Self::FanOut { streams }).into();
        works.extend([100, 1_000, 10_000].map(|sessions| Self::Churn { sessions }));
        works
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FanOut { .. } => "fan-out",
            Self::SpreadClosed { .. } => "spread-closed",
            Self::SpreadOpen { .. } => "spread-open",
            Self::Idle { .. } => "idle",
            Self::Stalled { stalled: 0, .. } => "unstalled",
            Self::Stalled { .. } => "stalled",
            Self::Storm { .. } => "storm",
            Self::Churn { .. } => "churn",
            Self::Mixed { .. } => "mixed",
        }
    }

    /// The work in a line.
    pub(crate) fn title(self) -> String {
        match self {
            Self::FanOut { streams } => format!("fan-out: 1 session, {streams} streams, closed loop"),
            Self::SpreadClosed { sessions, each } => format!("spread: {sessions} sessions of {each}, closed loop"),
            Self::SpreadOpen { sessions, each } => format!("spread: {sessions} sessions of {each}, 1,000 changes/s"),
            Self::Idle { streams } => format!("idle: {streams} streams"),
            Self::Stalled { streams, stalled, seconds } => {
                format!("stalled: {stalled} of {streams} streams never read, {seconds} s at 100 changes/s")
            }
            Self::Storm { streams } => format!("storm: {streams} streams connect at once"),
            Self::Churn { sessions } => format!("churn: {sessions} sessions that nobody watches"),
            Self::Mixed { streams, sessions, faster, seconds } => {
                format!("mixed: {streams} streams, {sessions} sessions, {seconds} s at {faster} times the pace")
            }
        }
    }

    /// Runs it once against a fresh server; closed loops and churn last about `time`.
    pub(crate) fn run(self, kind: Kind, places: &Places, time: Duration) -> Result<Figures> {
        let server = Server::start(kind, places)?;
        match self {
            Self::FanOut { streams } => closed_loop(&server, 1, streams, time),
            Self::SpreadClosed { sessions, each } => closed_loop(&server, sessions, sessions * each, time),
            Self::SpreadOpen { sessions, each } => spread_open(&server, sessions, each, time),
            Self::Idle { streams } => idle(&server, streams),
            Self::Stalled { streams, stalled, seconds } => stall(&server, streams, stalled, seconds),
            Self::Storm { streams } => storm(&server, streams),
            Self::Churn { sessions } if kind == Kind::Tasklight => churn(&server, sessions, time),
            Self::Churn { sessions } => unwatched(&server, sessions, time),
            Self::Mixed { streams, sessions, faster, seconds } => mixed(&server, streams, sessions, faster, seconds),
        }
    }
}

/// A server with sessions that have their first list.
fn prepared(server: &Server, sessions: usize) -> Result<(Load, Processes)> {
    let lanes = sessions.min(4);
    let mut load = Load::new(server, server.sessions(sessions)?, lanes)?;
    load.first_lists()?;
    Ok((load, server.processes()?))
}

/// What was spent since it began.
struct Meter<'a> {
    processes: &'a Processes,
    server: Duration,
    own: Duration,
}

impl<'a> Meter<'a> {
    fn start(processes: &'a Processes) -> Result<Self> {
        Ok(Self { processes, server: processes.cpu()?, own: process::own_cpu()? })
    }

    /// The server's CPU and this program's, in microseconds.
    fn read(&self) -> Result<(f64, f64)> {
        let server = self.processes.cpu()?.saturating_sub(self.server);
        let own = process::own_cpu()?.saturating_sub(self.own);
        Ok((microseconds(server), microseconds(own)))
    }
}

/// What every work with deliveries tells.
fn figures(load: &Load, meter: &Meter<'_>, changes: u64) -> Result<Figures> {
    let (server, own) = meter.read()?;
    let deliveries = load.readers.deliveries.max(1) as f64;
    load.readers.ends_are_whole()?;
    Ok(BTreeMap::from([
        ("cpu_us", server / deliveries),
        ("own_us", own / deliveries),
        ("p50_ms", milliseconds(load.readers.latency.quantile(0.5))),
        ("p99_ms", milliseconds(load.readers.latency.quantile(0.99))),
        ("changes", changes as f64),
        ("deliveries", load.readers.deliveries as f64),
    ]))
}

fn closed_loop(server: &Server, sessions: usize, streams: usize, time: Duration) -> Result<Figures> {
    let (mut load, processes) = prepared(server, sessions)?;
    load.open(streams, AT_ONCE)?;
    load.closed_loop(time / 10)?;
    load.reset();
    let meter = Meter::start(&processes)?;
    let changes = load.closed_loop(time)?;
    figures(&load, &meter, changes)
}

fn spread_open(server: &Server, sessions: usize, each: usize, time: Duration) -> Result<Figures> {
    let (mut load, processes) = prepared(server, sessions)?;
    load.open(sessions * each, AT_ONCE)?;
    load.closed_loop(Duration::from_millis(1))?;
    load.reset();
    let meter = Meter::start(&processes)?;
    let changes = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    load.open_rate(changes, Duration::from_millis(1), |_, _| Ok(()))?;
    figures(&load, &meter, changes)
}

fn idle(server: &Server, streams: usize) -> Result<Figures> {
    let (mut load, processes) = prepared(server, 1)?;
    let before = processes.memory()?;
    load.open(streams, AT_ONCE)?;
    load.rest(Duration::from_millis(1_500))?;
    let after = processes.memory()?;
    // They are alive.
    load.closed_loop(Duration::from_millis(1))?;
    load.readers.ends_are_whole()?;
    let each = |of: fn(Memory) -> u64| of(after).saturating_sub(of(before)) as f64 / streams as f64;
    Ok(BTreeMap::from([
        ("stream_bytes", each(|memory| memory.own)),
        ("stream_pss_bytes", each(|memory| memory.pss)),
        ("own_mb", megabytes(after.own)),
    ]))
}

fn stall(server: &Server, streams: usize, stalled: usize, seconds: u64) -> Result<Figures> {
    let (mut load, processes) = prepared(server, 1)?;
    load.open(streams - stalled, AT_ONCE)?;
    let sleepers: Vec<_> = (0..stalled).map(|_| load.readers.open_stalled(0)).collect::<Result<_>>()?;
    load.rest(Duration::from_millis(200))?;
    load.reset();
    let before = processes.memory()?;
    let meter = Meter::start(&processes)?;
    let changes = 100 * seconds;
    load.open_rate(changes, Duration::from_millis(10), |_, _| Ok(()))?;
    let mut figures = figures(&load, &meter, changes)?;
    figures.insert("before_mb", megabytes(before.own));
    figures.insert("own_mb", megabytes(processes.memory()?.own));
    figures.insert("queued_mb", megabytes(process::queued(server.address())?));
    drop(sleepers);
    Ok(figures)
}

fn storm(server: &Server, streams: usize) -> Result<Figures> {
    let (mut load, processes) = prepared(server, 1)?;
    let meter = Meter::start(&processes)?;
    let took = load.storm(streams)?;
    let (server, own) = meter.read()?;
    load.readers.ends_are_whole()?;
    Ok(BTreeMap::from([
        ("storm_s", took.as_secs_f64()),
        ("lost_percent", 100.0 * load.readers.lost.len() as f64 / streams as f64),
        ("connect_us", server / streams as f64),
        ("own_us", own / streams as f64),
    ]))
}

/// Tasks start and settle; beside it, requests that change nothing. Twice over: what the second pass
/// leaves behind after its sessions are disposed is what a change keeps, since the first one's room is
/// there to be used again.
fn churn(server: &Server, sessions: usize, time: Duration) -> Result<Figures> {
    let mut control = Connection::open(server.endpoint())?;
    let processes = server.processes()?;
    let task = server::start_task(&mut control, "/sessions/idle/tasks", &list::label(0))?;
    let renewal = request("PATCH", &format!("/sessions/idle/tasks/{task}"), "application/json", "{}");
    let mut sum = Churn::default();
    let mut kept = 0.0;
    for _ in 0..2 {
        let before = processes.memory()?.own;
        let pass = churn_once(&mut control, &processes, &renewal, sessions, time / 2)?;
        kept = processes.memory()?.own.saturating_sub(before) as f64 / pass.changes;
        sum.changes += pass.changes;
        sum.changes_us += pass.changes_us;
        sum.requests += pass.requests;
        sum.requests_us += pass.requests_us;
    }
    let (change, control) = (sum.changes_us / sum.changes, sum.requests_us / sum.requests);
    Ok(BTreeMap::from([
        ("change_us", change),
        ("control_us", control),
        ("beyond_us", change - control),
        ("changes", sum.changes),
        ("kept_bytes", kept),
    ]))
}

/// Changes, requests that change nothing, and the server's CPU for each sort.
#[derive(Default)]
struct Churn {
    changes: f64,
    changes_us: f64,
    requests: f64,
    requests_us: f64,
}

fn churn_once(
    control: &mut Connection,
    processes: &Processes,
    renewal: &[u8],
    sessions: usize,
    time: Duration,
) -> Result<Churn> {
    /// By turns of that many, so that both sorts meet the same machine.
    const TURN: usize = 50;
    let mut churn = Churn::default();
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < time || round < sessions {
        let meter = Meter::start(processes)?;
        for _ in 0..2 * TURN {
            control.ask(renewal)?;
        }
        churn.requests += 2.0 * TURN as f64;
        churn.requests_us += meter.read()?.0;
        let meter = Meter::start(processes)?;
        for _ in 0..TURN {
            let path = format!("/sessions/s{}/tasks", round % sessions);
            round += 1;
            server::live_and_die(control, &path, &list::label(round % list::TASKS))?;
        }
        churn.changes += 2.0 * TURN as f64;
        churn.changes_us += meter.read()?.0;
    }
    for session in 0..sessions {
        control.ask(&request("DELETE", &format!("/sessions/s{session}"), "text/plain", ""))?;
    }
    Ok(churn)
}

/// For servers that know lists and no tasks: lists that nobody reads.
fn unwatched(server: &Server, sessions: usize, time: Duration) -> Result<Figures> {
    let mut requests: Vec<Numbered> = server.sessions(sessions)?;
    let mut control = Connection::open(server.endpoint())?;
    let processes = server.processes()?;
    let meter = Meter::start(&processes)?;
    let began = Instant::now();
    let mut changes = 0_u32;
    while began.elapsed() < time {
        let at = changes as usize % sessions;
        changes += 1;
        control.ask(requests[at].with(changes))?;
    }
    let changes = f64::from(changes);
    Ok(BTreeMap::from([("change_us", meter.read()?.0 / changes), ("changes", changes)]))
}

fn mixed(server: &Server, streams: usize, sessions: usize, faster: u32, seconds: u64) -> Result<Figures> {
    let (mut load, processes) = prepared(server, sessions)?;
    load.open(streams, AT_ONCE)?;
    load.reset();
    let period = Duration::from_secs(30) / faster / u32::try_from(sessions).expect("a few thousand sessions");
    let changes = u64::try_from(Duration::from_secs(seconds).as_nanos() / period.as_nanos()).unwrap_or(u64::MAX);
    // One in a hundred a minute is `streams / 200` in the half minute of one round.
    let reconnects_each_round = (streams / 200).max(1);
    let every = (sessions / reconnects_each_round).max(1) as u64;
    let mut next = 0;
    let meter = Meter::start(&processes)?;
    load.open_rate(changes, period, |load, change| {
        if change % every == 0 {
            // A step that meets streams of every session.
            next = (next + 7_919) % streams;
            load.reopen(next)?;
        }
        Ok(())
    })?;
    let mut figures = figures(&load, &meter, changes)?;
    figures.insert("own_mb", megabytes(processes.memory()?.own));
    // And each stream is alive.
    load.closed_loop(Duration::from_millis(1))?;
    load.readers.ends_are_whole()?;
    Ok(figures)
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
