//! What one delivery costs, counted instead of timed: system calls, instructions and allocations.
//!
//! The same program runs twice under a counter, once with few changes and once with many; the
//! difference belongs to the changes and their deliveries alone. Counts hardly depend on the machine or
//! on what else it does, so that they can be held against figures that were recorded.
//!
//! Each bound is what was counted when it was recorded, with a margin for what differs from run to
//! run. Whoever passes one has made a change or a delivery dearer: either that was not meant, or the
//! bound is to be recorded anew.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    http::{Connection, request},
    list,
    load::Load,
    problem::{Problem, Result},
    process::Processes,
    server::{self, Kind, Places, Server},
};

/// What is done few times and many times.
struct Scenario {
    title: &'static str,
    act: Act,
    few: u64,
    many: u64,
    /// The most that one may cost by each counter.
    bounds: [&'static [Bound]; COUNTERS.len()],
}

#[derive(Clone, Copy)]
enum Act {
    /// A change goes to that many streams of one session.
    Deliver { streams: usize },
    /// A change where nobody watches.
    Change,
    /// A task starts and ends where nobody watches; at last its session is disposed.
    Life,
}

struct Bound {
    what: &'static str,
    most: f64,
}

const fn most(what: &'static str, most: f64) -> Bound {
    Bound { what, most }
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        title: "a delivery, 200 streams of one session, its share of the change included",
        act: Act::Deliver { streams: 200 },
        few: 5,
        many: 305,
        bounds: [
            // One for each reader, and one in 200 is the answer to the producer.
            &[most("sends", 1.02), most("other system calls", 0.1)],
            &[most("instructions", 450.0)],
            &[most("allocations", 0.2), most("allocations kept", 0.005)],
        ],
    },
    Scenario {
        title: "a change that nobody watches, the control request included",
        act: Act::Change,
        few: 50,
        many: 1_050,
        bounds: [
            &[most("sends", 1.05), most("other system calls", 2.4)],
            &[most("instructions", 22_000.0)],
            &[most("allocations", 13.5), most("allocations kept", 0.02)],
        ],
    },
    Scenario {
        title: "a task's start and end where nobody watches, both control requests included",
        act: Act::Life,
        few: 50,
        many: 1_050,
        bounds: [
            &[most("sends", 2.1), most("other system calls", 4.8)],
            &[most("instructions", 66_000.0)],
            &[most("allocations", 42.0), most("allocations kept", 0.05)],
        ],
    },
];

/// A program that counts what another does.
struct Counter {
    /// `REPORT` is the file that it writes.
    words: &'static [&'static str],
    read: fn(&str) -> Vec<f64>,
}

const COUNTERS: [Counter; 3] = [
    Counter { words: &["strace", "-f", "-c", "-o", "REPORT"], read: system_calls },
    Counter {
        words: &["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=REPORT"],
        read: instructions,
    },
    Counter {
        words: &["valgrind", "--tool=memcheck", "--leak-check=no", "--undef-value-errors=no", "--log-file=REPORT"],
        read: allocations,
    },
];

/// Counts, prints, and fails when a bound is passed.
pub(crate) fn cost(places: &Places) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for scenario in SCENARIOS {
        println!("{}:", scenario.title);
        for (counter, bounds) in COUNTERS.iter().zip(scenario.bounds) {
            let few = counter.count(places, scenario.act, scenario.few)?;
            let many = counter.count(places, scenario.act, scenario.many)?;
            let each = match scenario.act {
                Act::Deliver { streams } => streams as f64,
                Act::Change | Act::Life => 1.0,
            };
            let times = (scenario.many - scenario.few) as f64 * each;
            for ((few, many), Bound { what, most }) in few.iter().zip(&many).zip(bounds) {
                let each = (many - few) / times;
                // A count that is none is no pass.
                let within = each <= *most;
                println!("{each:12.3} {what}, {} {most}", if within { "at most" } else { "MORE THAN" });
                if !within {
                    code = ExitCode::FAILURE;
                }
            }
        }
    }
    Ok(code)
}

impl Counter {
    /// Counts over the whole life of a server in which that is done so many times.
    fn count(&self, places: &Places, act: Act, times: u64) -> Result<Vec<f64>> {
        let report = places.scratch.join("report");
        let words = self.words.iter().map(|word| word.replace("REPORT", &report.display().to_string()));
        let places = Places { wrapper: words.collect(), ..places.clone() };
        let server = Server::start(Kind::Tasklight, &places)?;
        match act {
            Act::Deliver { streams } => deliver(&server, streams, times)?,
            Act::Change => deliver(&server, 0, times)?,
            Act::Life => live(&server, times)?,
        }
        // The last descendant is the server itself, or the only process is, where the counter became it.
        let processes = Processes::of(server.id())?;
        let server_id = processes.ids().last().copied().unwrap_or(Pid::from_raw(server.id().cast_signed()));
        kill(server_id, Signal::SIGTERM)?;
        server.wait(Duration::from_secs(30))?;
        Ok((self.read)(&read(&report)?))
    }
}

fn deliver(server: &Server, streams: usize, changes: u64) -> Result<()> {
    let mut load = Load::new(server, server.sessions(1)?, 1)?;
    load.first_lists()?;
    load.open(streams, streams + 1)?;
    for _ in 0..changes {
        load.publish_round()?;
        load.all_current()?;
    }
    load.readers.ends_are_whole()
}

fn live(server: &Server, tasks: u64) -> Result<()> {
    let mut control = Connection::open(server.endpoint())?;
    for _ in 0..tasks {
        server::live_and_die(&mut control, "/sessions/s/tasks", &list::label(0))?;
    }
    control.ask(&request("DELETE", "/sessions/s", "text/plain", ""))?;
    Ok(())
}

fn read(report: &Path) -> Result<String> {
    fs::read_to_string(report).map_err(|error| Problem::NotUp(format!("no report: {error}")))
}

/// strace(1) -c: a line a call, with its count in the fourth column and its name in the last.
fn system_calls(report: &str) -> Vec<f64> {
    let (mut sends, mut others) = (0.0, 0.0);
    for line in report.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (Some(count), Some(name)) = (fields.get(3).and_then(|count| count.parse::<f64>().ok()), fields.last())
        else {
            continue;
        };
        match *name {
            "total" => {}
            "sendto" | "sendmsg" | "writev" => sends += count,
            _ => others += count,
        }
    }
    vec![sends, others]
}

/// callgrind ends with `Collected : N`.
fn instructions(report: &str) -> Vec<f64> {
    vec![figure(report, "Collected :", 0)]
}

/// memcheck ends with `in use at exit: N bytes in M blocks` and `total heap usage: N allocs, …`.
fn allocations(report: &str) -> Vec<f64> {
    vec![figure(report, "total heap usage:", 0), figure(report, "in use at exit:", 3)]
}

/// The number at that place behind a name; not a number where there is none.
fn figure(report: &str, name: &str, at: usize) -> f64 {
    let number = report.lines().find_map(|line| {
        let (_, rest) = line.split_once(name)?;
        rest.split_whitespace().nth(at)?.replace(',', "").parse().ok()
    });
    number.unwrap_or(f64::NAN)
}
