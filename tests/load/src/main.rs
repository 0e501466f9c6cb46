//! Measures what the server costs: drives servers through the same work, and tells what they used.
//!
//! `scripts/bench` builds this and calls it; `scripts/test-cost` calls `load cost`. Every run has a
//! fresh server, proves that each reader ended at the newest list, and tells this program's own CPU
//! beside the server's, since one that is itself busy measures nothing.

mod board;
mod cost;
mod histogram;
mod http;
mod list;
mod load;
mod problem;
mod process;
mod publisher;
mod readers;
mod report;
mod server;
mod works;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{
    problem::Problem,
    process::Machine,
    report::Results,
    server::{Kind, Places},
    works::Work,
};

/// The share of the machine's CPU that others may take; a machine that does other work tells little
/// about this.
const BUSY: f64 = 0.1;
/// How often more the floor and Tasklight are run where a few hundredths between them are told.
const MORE_RUNS: usize = 3;
/// After that long, what has had its first run is not run again.
const BUDGET: Duration = Duration::from_mins(9);

const HELP: &str = "\
scripts/bench [--small] [--curve] [--runs N] [--seconds S] [--stall S] [WORK|SERVER]...

works:   fan-out spread-closed spread-open idle unstalled stalled storm churn mixed
servers: floor tasklight nchan axum better-sse pushpin
--small  a tenth of the size, to try it out
--curve  fan-out at 100, 1,000 and 10,000 streams, churn at as many sessions
--runs, --seconds  how often, and how long a closed loop lasts [default: 3 and 2]; floor and
         tasklight run fan-out and spread three times more
--stall  how long unstalled and stalled last, in seconds [default: 8; 2 with --small]";

struct Options {
    works: Vec<Work>,
    kinds: Vec<Kind>,
    runs: usize,
    time: Duration,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if arguments == ["cost"] {
        return within_scratch(cost::cost).unwrap_or_else(|problem| failed(&problem));
    }
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(word) => {
            eprintln!("{word}: not understood\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    within_scratch(|places| bench(&options, places)).unwrap_or_else(|problem| failed(&problem))
}

fn failed(problem: &Problem) -> ExitCode {
    eprintln!("{problem}");
    ExitCode::FAILURE
}

/// Allows what many streams need, and calls with where all is; the scratch folder goes afterwards.
fn within_scratch(act: impl FnOnce(&Places) -> problem::Result<ExitCode>) -> problem::Result<ExitCode> {
    allow_descriptors()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let places = Places {
        programs: std::env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default(),
        tasklight: root.join("target/release/tasklight"),
        peers: root.join("tests/load/peers"),
        results: root.join("target/bench"),
        wrapper: Vec::new(),
        scratch: std::env::temp_dir().join(format!("tasklight-bench-{}", std::process::id())),
    };
    fs::create_dir_all(&places.scratch)?;
    let code = act(&places);
    let _ = fs::remove_dir_all(&places.scratch);
    code
}

impl Options {
    /// What was asked for, or the word that nobody understands.
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { works: Vec::new(), kinds: Vec::new(), runs: 3, time: Duration::from_secs(2) };
        let flag = |name: &str| arguments.iter().any(|argument| argument == name);
        let after = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
        let stall =
            after("--stall").and_then(|seconds| seconds.parse().ok()).unwrap_or(if flag("--small") { 2 } else { 8 });
        let known = if flag("--curve") { Work::curve() } else { Work::all(flag("--small"), stall) };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|number| number.parse().ok()).ok_or_else(|| word.clone());
            match word.as_str() {
                "--small" | "--curve" => {}
                "--runs" => options.runs = number()?,
                "--seconds" => options.time = Duration::from_secs(number()? as u64),
                "--stall" => drop(number()?),
                name => {
                    let before = options.works.len() + options.kinds.len();
                    options.works.extend(known.iter().filter(|work| work.name() == name));
                    options.kinds.extend(Kind::ALL.iter().filter(|kind| kind.name() == name));
                    if options.works.len() + options.kinds.len() == before {
                        return Err(word.clone());
                    }
                }
            }
        }
        if options.works.is_empty() {
            options.works = known;
        }
        if options.kinds.is_empty() {
            options.kinds = if flag("--curve") { vec![Kind::Floor, Kind::Tasklight] } else { Kind::ALL.into() };
        }
        Ok(options)
    }
}

fn bench(options: &Options, places: &Places) -> problem::Result<ExitCode> {
    let results = run_all(options, places);
    fs::create_dir_all(&places.results)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let file = places.results.join(format!("{seconds}.json"));
    let json = results.json(&report::machine());
    fs::write(&file, format!("{json:#}\n"))?;
    println!("{}", results.table());
    println!("{}", file.display());
    Ok(if results.any_failed(Kind::Tasklight) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// How often a server is run: once where a peer is far from the others, and most often where the bars are
/// about a few hundredths.
fn runs(work: Work, kind: Kind, usual: usize) -> usize {
    match (work, kind.is_peer()) {
        (Work::FanOut { .. } | Work::SpreadClosed { .. }, true) => usual,
        (_, true) => 1,
        (Work::FanOut { .. } | Work::SpreadClosed { .. } | Work::SpreadOpen { .. }, false) => usual + MORE_RUNS,
        (_, false) => usual,
    }
}

/// Servers by turns, A B C A B C, so that whatever else the machine does meets all of them.
fn run_all(options: &Options, places: &Places) -> Results {
    let mut results = Results::default();
    let began = Instant::now();
    for round in 0..options.runs + MORE_RUNS {
        for work in &options.works {
            for kind in &options.kinds {
                let runs = runs(*work, *kind, options.runs);
                if round >= runs || (round > 0 && began.elapsed() > BUDGET) {
                    continue;
                }
                eprint!(
                    "{:4.0} s  run {} of {}  {:<14} {:<11}",
                    began.elapsed().as_secs_f64(),
                    round + 1,
                    runs,
                    work.name(),
                    kind.name()
                );
                let machine = Machine::now();
                let run = work.run(*kind, places, options.time).map_err(|problem| problem.to_string());
                let others = machine.others();
                let busy =
                    if others > BUSY { format!("  BUSY: others took {:.0} %", 100.0 * others) } else { String::new() };
                let run = run.map(|mut figures| {
                    figures.insert("others_percent", 100.0 * others);
                    figures
                });
                match &run {
                    Ok(figures) => {
                        let first = ["cpu_us", "stream_bytes", "storm_s", "change_us"]
                            .iter()
                            .find_map(|name| Some((name, figures.get(name)?)));
                        eprintln!(
                            "{}{busy}",
                            first.map(|(name, value)| format!("{name} {value:.2}")).unwrap_or_default()
                        );
                    }
                    Err(why) => eprintln!("FAILED: {why}{busy}"),
                }
                results.add(*work, *kind, run);
            }
        }
    }
    results
}

/// Each stream needs a descriptor here and one in the server, which inherits the limit.
fn allow_descriptors() -> problem::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}
