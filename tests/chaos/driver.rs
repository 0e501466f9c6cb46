//! The steps: what is done to the gateway, one after the other, as the seed chooses.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    process::Command,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    client::STAYS,
    control::ask,
    goal::{Goal, Lists, Mode},
    producers::Producer,
    random::Random,
    support::eventually,
    world::{Lives, Proxy},
};

pub(crate) const SESSIONS: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];

/// How long everything may take to come to rest.
const REST: Duration = Duration::from_mins(1);
/// Steps that a failure tells of.
const RECENT: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    RunCommand,
    StartExternal,
    RunUnowned,
    StartUnownedExternal,
    Kill,
    Dispose,
    /// A child loses its process by another's hand.
    Murder,
    SetClock,
    RestartProxy,
    RestartGateway,
    KillGateway,
}

/// How often each step is taken before all begins anew.
const DECK: [(Step, usize); 11] = [
    (Step::RunCommand, 100),
    (Step::StartExternal, 50),
    (Step::RunUnowned, 10),
    (Step::StartUnownedExternal, 6),
    (Step::Kill, 40),
    (Step::Dispose, 12),
    (Step::Murder, 8),
    (Step::SetClock, 6),
    (Step::RestartProxy, 2),
    (Step::RestartGateway, 1),
    (Step::KillGateway, 1),
];

/// Each ends by itself.
const COMMANDS: [&str; 9] = [
    "true",
    "exit 3",
    "sleep 0.05",
    "sleep 0.3; echo done",
    "sleep 2",
    "sleep 4 & wait",
    "sleep 1 & echo left behind",
    "trap '' TERM; sleep 1; sleep 1",
    "yes | head -c 400000",
];

pub(crate) struct Driver {
    random: Random,
    lives: Lives,
    proxy: Option<Proxy>,
    deck: Vec<Step>,
    producers: Vec<JoinHandle<()>>,
    recent: VecDeque<String>,
    taken: BTreeMap<Step, u64>,
    rests: u32,
}

impl Driver {
    pub(crate) fn new(random: Random, lives: Lives, proxy: Option<Proxy>) -> Self {
        Self {
            random,
            lives,
            proxy,
            deck: Vec::new(),
            producers: Vec::new(),
            recent: VecDeque::new(),
            taken: BTreeMap::new(),
            rests: 0,
        }
    }

    /// One step, and a pause behind it.
    pub(crate) fn step(&mut self) {
        if self.deck.is_empty() {
            self.deck = DECK.iter().flat_map(|(step, times)| std::iter::repeat_n(*step, *times)).collect();
            self.random.shuffle(&mut self.deck);
            self.producers.retain(|producer| !producer.is_finished());
        }
        let step = self.deck.pop().unwrap();
        let what = self.take(step);
        *self.taken.entry(step).or_default() += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("{step:?} {what}"));
        thread::sleep(self.random.millis(40));
    }

    fn take(&mut self, step: Step) -> String {
        let session = *self.random.of(&SESSIONS);
        let socket = self.lives.socket();
        match step {
            Step::RunCommand => self.run(session, &format!("/sessions/{session}/tasks")),
            Step::RunUnowned => self.run("unowned", "/tasks"),
            Step::StartExternal => self.start_external(session, &format!("/sessions/{session}/tasks")),
            Step::StartUnownedExternal => self.start_external("unowned", "/tasks"),
            Step::Kill => {
                let choice = self.random.below(1 << 20);
                let list = list(&socket, session);
                let Some(id) = choose(&list, choice) else { return format!("{session} nothing") };
                let answer = ask(&socket, "POST", &format!("/sessions/{session}/tasks/{id}/kill"), None);
                format!("{session} {id} {:?}", answer.map(|(status, _)| status))
            }
            Step::Dispose => {
                let answer = ask(&socket, "DELETE", &format!("/sessions/{session}"), None);
                format!("{session} {:?}", answer.map(|(status, _)| status))
            }
            Step::Murder => {
                let choice = self.random.below(1 << 20);
                murder(self.lives.now().pid(), choice)
            }
            Step::SetClock => {
                let seconds = *self.random.of(&[-7_200_i64, -3_600, -60, -1, 0, 1, 60, 3_600]);
                format!("{seconds} s {}", if self.lives.step_clock(seconds) { "" } else { "(no libfaketime)" })
            }
            Step::RestartProxy => match &mut self.proxy {
                Some(proxy) => {
                    proxy.again();
                    String::new()
                }
                None => "(no nginx)".into(),
            },
            Step::RestartGateway => {
                self.lives.again("TERM");
                String::new()
            }
            Step::KillGateway => {
                self.lives.again("KILL");
                String::new()
            }
        }
    }

    fn run(&mut self, owner: &str, path: &str) -> String {
        let command = *self.random.of(&COMMANDS);
        let body = json!({"command": command, "label": format!("{owner} {command}")});
        started(ask(&self.lives.socket(), "POST", path, Some(&body))).1
    }

    fn start_external(&mut self, owner: &str, path: &str) -> String {
        let kind = *self.random.of(&["subagent", "build"]);
        let producer = Producer::choose(&mut self.random);
        let socket = self.lives.socket();
        let (id, what) = started(ask(&socket, "POST", path, Some(&producer.body(owner, kind))));
        if let Some(id) = id {
            let path = format!("{path}/{id}");
            self.producers.push(thread::spawn(move || producer.work(&socket, &path)));
        }
        what
    }

    /// Has all readers stay where they are, and changes little things time and again: what one of
    /// them is not told of, it would never learn. `faulty` says whether a reader gave up.
    pub(crate) fn rest(&mut self, goal: &Goal, faulty: &dyn Fn() -> bool) -> Result<(), String> {
        goal.set(Mode::Stay);
        // Whatever the last steps were: in each session somebody dies at his work.
        for session in SESSIONS {
            let (path, body) = (format!("/sessions/{session}/tasks"), Producer::dead().body(session, "build"));
            started(ask(&self.lives.socket(), "POST", &path, Some(&body)));
        }
        // What went before comes to its end.
        self.settle()?;
        arrival(goal, STAYS, faulty)?;
        for turn in 1..=self.random.below(8) + 4 {
            let time = u64::from(self.rests) * 100 + turn;
            goal.set(Mode::Stay);
            for _ in 0..=self.random.below(6) {
                let session = *self.random.of(&SESSIONS);
                let (owner, path) = if self.random.one_in(5) {
                    ("unowned", "/tasks".to_owned())
                } else {
                    (session, format!("/sessions/{session}/tasks"))
                };
                let body = json!({"command": "true", "label": format!("{owner} at rest")});
                started(ask(&self.lives.socket(), "POST", &path, Some(&body)));
            }
            goal.set(Mode::Arrive(time, Arc::new(self.settle()?)));
            arrival(goal, time, faulty)?;
        }
        self.rests += 1;
        goal.set(Mode::Roam);
        Ok(())
    }

    /// Does nothing any more. Whatever is live must end by itself, since all that work will end or
    /// is dead; the lists that it comes to are the last.
    fn settle(&mut self) -> Result<Lists, String> {
        for producer in self.producers.drain(..) {
            producer.join().map_err(|_| "a producer panicked")?;
        }
        let socket = self.lives.socket();
        let deadline = Instant::now() + REST;
        loop {
            let lists: Lists = SESSIONS.iter().map(|session| ((*session).to_owned(), list(&socket, session))).collect();
            let live: Vec<_> = lists.values().flatten().filter(|task| task.get("finishedAt").is_none()).collect();
            if live.is_empty() {
                return Ok(lists);
            }
            if Instant::now() > deadline {
                return Err(format!("live, and nobody works on them: {live:?}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until nothing is left of the readers, who have gone, and of the children.
    pub(crate) fn leaves_nothing(&self, descriptors: usize) {
        let gateway = self.lives.now();
        // Its own end is awaited elsewhere; what came of the children's groups goes with them.
        gateway.has_none_left("sleep");
        eventually("the readers' descriptors are closed", || {
            // A few are opened once, when they are needed first.
            (gateway.descriptors() <= descriptors + 4).then_some(())
        });
    }

    /// The last steps, for a failure.
    pub(crate) fn story(&self) -> String {
        let recent: Vec<_> = self.recent.iter().map(|line| format!("    {line}\n")).collect();
        format!("  the last steps:\n{}", recent.concat())
    }

    pub(crate) fn summary(&self) -> String {
        let taken: Vec<_> = self.taken.iter().map(|(step, times)| format!("{times} {step:?}")).collect();
        let nginx = if self.proxy.is_some() { "" } else { "no nginx, " };
        let clock = if self.lives.step_clock(0) { "" } else { "no libfaketime, " };
        format!(
            "{nginx}{clock}{} lives of the gateway, {} rests, steps: {}",
            self.lives.count,
            self.rests,
            taken.join(", ")
        )
    }
}

/// Waits until all readers are there.
fn arrival(goal: &Goal, time: u64, faulty: &dyn Fn() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + REST;
    while !goal.all_arrived(time) {
        if faulty() {
            return Err("a reader found a fault".into());
        }
        if Instant::now() > deadline {
            return Err("readers did not connect, or lost their connections time and again".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn list(socket: &Path, session: &str) -> Vec<Value> {
    match ask(socket, "GET", &format!("/sessions/{session}/tasks"), None) {
        Some((200, Value::Array(list))) => list,
        other => panic!("the list of {session} is {other:?}"),
    }
}

/// The id of a started task, and what became of the start.
fn started(answer: Option<(u16, Value)>) -> (Option<String>, String) {
    match answer {
        Some((201, task)) => {
            let id = task["id"].as_str().unwrap().to_owned();
            (Some(id.clone()), id)
        }
        // Over the limit, or the session is just being disposed.
        Some((status @ (409 | 429), _)) => (None, status.to_string()),
        other => panic!("a start was answered {other:?}"),
    }
}

fn choose(list: &[Value], choice: u64) -> Option<&str> {
    list.get(usize::try_from(choice).unwrap().checked_rem(list.len())?)?["id"].as_str()
}

/// Kills one of the processes that the gateway started itself.
fn murder(gateway: u32, choice: u64) -> String {
    let threads = std::fs::read_dir(format!("/proc/{gateway}/task")).unwrap().filter_map(Result::ok);
    let children: Vec<_> =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()).collect();
    let all: Vec<_> = children.iter().flat_map(|children| children.split_whitespace()).collect();
    let Some(victim) = usize::try_from(choice).unwrap().checked_rem(all.len()).map(|at| all[at]) else {
        return "nobody".into();
    };
    let killed = Command::new("kill").args(["-KILL", victim]).output().unwrap();
    format!("{}", killed.status)
}
