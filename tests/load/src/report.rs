//! The table, and the same as JSON.

use std::{collections::BTreeMap, fmt::Write, fs};

use crate::{
    server::Kind,
    works::{Figures, Work},
};

/// Every run that was made.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<(Work, Kind), Runs>);

#[derive(Default)]
struct Runs {
    good: Vec<Figures>,
    failed: Vec<String>,
}

/// A column: a figure, its heading, and whether it is told as a multiple of the floor's too.
struct Column {
    figure: &'static str,
    heading: &'static str,
    decimals: usize,
    ratio: bool,
}

const fn column(figure: &'static str, heading: &'static str, decimals: usize, ratio: bool) -> Column {
    Column { figure, heading, decimals, ratio }
}

const COLUMNS: &[Column] = &[
    column("cpu_us", "CPU us a delivery", 2, true),
    column("p50_ms", "p50 ms", 2, false),
    column("p99_ms", "p99 ms", 2, true),
    column("stream_bytes", "bytes a stream", 0, false),
    column("stream_pss_bytes", "Pss bytes a stream", 0, false),
    column("storm_s", "seconds", 3, true),
    column("lost_percent", "% lost", 1, false),
    column("connect_us", "CPU us a stream", 1, true),
    column("change_us", "CPU us a change", 2, true),
    column("control_us", "CPU us a bare request", 2, false),
    column("beyond_us", "beyond it", 2, false),
    column("kept_bytes", "bytes kept a change", 1, false),
    column("before_mb", "MB before", 1, false),
    column("own_mb", "MB after", 1, false),
    column("queued_mb", "MB in queues", 1, false),
    column("own_us", "generator us", 2, false),
    column("others_percent", "% of the CPU to others", 0, false),
];

impl Results {
    pub(crate) fn add(&mut self, work: Work, kind: Kind, run: Result<Figures, String>) {
        let runs = self.0.entry((work, kind)).or_default();
        match run {
            Ok(figures) => runs.good.push(figures),
            Err(why) => runs.failed.push(why),
        }
    }

    fn median(&self, work: Work, kind: Kind, figure: &str) -> Option<f64> {
        let runs = self.0.get(&(work, kind))?;
        median(runs.good.iter().filter_map(|figures| figures.get(figure).copied()).collect())
    }

    /// The median of what each run is, as a multiple of the floor's run in the same round: so that a
    /// machine that is slower for a while is so for both.
    fn ratio(&self, work: Work, kind: Kind, figure: &str) -> Option<f64> {
        let (runs, floor) = (self.0.get(&(work, kind))?, self.0.get(&(work, Kind::Floor))?);
        let pairs = runs.good.iter().zip(&floor.good);
        let ratios = pairs.filter_map(|(run, floor)| Some(run.get(figure)? / floor.get(figure).filter(|f| **f > 0.0)?));
        median(ratios.collect())
    }

    /// Markdown: a part for each work, a line for each server, the floor's multiple in parentheses.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut works: Vec<Work> = self.0.keys().map(|(work, _)| *work).collect();
        works.dedup();
        for work in works {
            let lines: Vec<_> = self.0.iter().filter(|((of, _), _)| *of == work).collect();
            let columns: Vec<_> = COLUMNS
                .iter()
                .filter(|column| lines.iter().any(|((_, kind), _)| self.median(work, *kind, column.figure).is_some()))
                .collect();
            let headings = columns.iter().map(|column| column.heading).collect::<Vec<_>>().join(" | ");
            let rule = "---:|".repeat(columns.len());
            let _ = writeln!(text, "\n{}\n\n| server | {headings} | runs |\n|---|{rule}---:|", work.title());
            for ((_, kind), runs) in lines {
                let cells: String = columns.iter().map(|column| self.cell(work, *kind, column)).collect();
                let _ = write!(text, "| {} |{cells} {} |", kind.name(), runs.good.len());
                let failed = runs.failed.first().map(|why| format!(" failed {} times: {why}", runs.failed.len()));
                let _ = writeln!(text, "{}", failed.unwrap_or_default());
            }
        }
        text
    }

    fn cell(&self, work: Work, kind: Kind, column: &Column) -> String {
        let Some(value) = self.median(work, kind, column.figure) else { return " – |".to_owned() };
        let ratio = self.ratio(work, kind, column.figure).filter(|_| column.ratio);
        let ratio = ratio.map(|ratio| format!(" ({ratio:.2}×)"));
        format!(" {value:.*}{} |", column.decimals, ratio.unwrap_or_default())
    }

    /// Everything: each run's figures, and on what machine.
    pub(crate) fn json(&self, machine: &serde_json::Value) -> serde_json::Value {
        let rows: Vec<_> = self
            .0
            .iter()
            .map(|((work, kind), runs)| {
                let mut names: Vec<_> = runs.good.iter().flat_map(BTreeMap::keys).copied().collect();
                names.sort_unstable();
                names.dedup();
                let medians: BTreeMap<_, _> =
                    names.into_iter().map(|name| (name, self.median(*work, *kind, name))).collect();
                serde_json::json!({
                    "work": work.name(), "title": work.title(), "server": kind.name(),
                    "medians": medians, "runs": runs.good, "failed": runs.failed,
                })
            })
            .collect();
        serde_json::json!({ "machine": machine, "results": rows })
    }

    pub(crate) fn any_failed(&self, kind: Kind) -> bool {
        self.0.iter().any(|((_, of), runs)| *of == kind && !runs.failed.is_empty())
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        even if even % 2 == 0 => Some(f64::midpoint(*values.get(middle - 1)?, *values.get(middle)?)),
        _ => values.get(middle).copied(),
    }
}

/// The machine, and how busy it is with other work now.
pub(crate) fn machine() -> serde_json::Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    serde_json::json!({
        "cpu": model.trim_start_matches(['\t', ' ', ':']),
        "cores": cores,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "load": load_average(),
    })
}

/// Processes that wanted to run, over the last minute.
pub(crate) fn load_average() -> f64 {
    let average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    average.split(' ').next().and_then(|average| average.parse().ok()).unwrap_or(0.0)
}
