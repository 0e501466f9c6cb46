//! `/metrics`: a page that Prometheus can read, of numbers that are true.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Gateway, http, sse::Stream};

/// One family of samples.
#[derive(Debug)]
struct Family {
    kind: String,
    samples: BTreeMap<String, u64>,
}

/// Reads a page strictly by the text format's rules (version 0.0.4): HELP, then TYPE, then the samples
/// of one family after another, each family and each sample once; LF line ends, the last line too.
/// All our values are whole numbers.
fn parse(page: &str) -> BTreeMap<String, Family> {
    assert!(page.ends_with('\n') && !page.contains('\r') && !page.contains("\n\n"));
    let is_name = |name: &str, extra: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || extra.contains(c);
        !name.is_empty() && name.chars().all(ok) && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut lines = page.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, text) = help.strip_prefix("# HELP ").unwrap_or_else(|| panic!("{help}")).split_once(' ').unwrap();
        assert!(is_name(name, ":"), "{name}");
        assert!(!text.is_empty() && !text.contains('\\'), "{text}");
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap().to_owned();
        assert!(["counter", "gauge"].contains(&kind.as_str()), "{kind}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        let mut samples = BTreeMap::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (of, labels) = sample.split_once('{').unwrap_or((sample, ""));
            assert_eq!(of, name, "a sample stands with its family");
            if !labels.is_empty() {
                let (label, text) = labels.strip_suffix("\"}").unwrap().split_once("=\"").unwrap();
                assert!(is_name(label, "") && is_name(text, ""), "{line}");
            }
            let value: u64 = value.parse().unwrap();
            assert_eq!(samples.insert(sample.to_owned(), value), None, "{sample} is there twice");
        }
        assert!(!samples.is_empty(), "{name} has no sample");
        assert!(families.insert(name.to_owned(), Family { kind, samples }).is_none(), "{name} is there twice");
    }
    families
}

#[test]
fn the_page_is_well_formed_and_its_numbers_are_true() {
    let gateway = Gateway::start();
    gateway.run("a", "exit 3");
    gateway.run("b", "true");
    gateway.run("b", "sleep 300");
    gateway.run("c", "sleep 300");
    gateway.ended("a", "bash-1");
    gateway.ended("b", "bash-2");
    assert_eq!(gateway.control("POST", "/sessions/c/tasks/bash-4/kill", None).status, 202);
    gateway.ended("c", "bash-4");
    assert_eq!(gateway.control("DELETE", "/sessions/c", None).status, 204);
    let mut streams: Vec<_> = (0..3).map(|_| Stream::open(gateway.address, "b")).collect();
    for stream in &mut streams {
        stream.list();
    }

    let answer = gateway.control("GET", "/metrics", None);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let families = parse(&answer.body);
    for (sample, expected) in [
        ("tasklight_tasks{status=\"running\"}", 1),
        ("tasklight_tasks{status=\"stopping\"}", 0),
        ("tasklight_tasks{status=\"completed\"}", 1),
        ("tasklight_tasks{status=\"killed\"}", 0),
        ("tasklight_tasks{status=\"failed\"}", 1),
        ("tasklight_sessions", 2),
        ("tasklight_watched_sessions", 1),
        ("tasklight_streams{source=\"tasks\"}", 3),
        ("tasklight_connections{listener=\"browsers\"}", 3),
        ("tasklight_tasks_started_total", 4),
        ("tasklight_tasks_settled_total{status=\"completed\"}", 1),
        ("tasklight_tasks_settled_total{status=\"killed\"}", 1),
        ("tasklight_tasks_settled_total{status=\"failed\"}", 1),
        // Four starts, one asked to end, three ends, one removal.
        ("tasklight_changes_total", 9),
        ("tasklight_lists_encoded_total", 1),
    ] {
        let name = sample.split('{').next().unwrap();
        assert_eq!(families[name].samples[sample], expected, "{sample}");
    }
    let memory = families["process_resident_memory_bytes"].samples["process_resident_memory_bytes"];
    assert!((1_000_000..1_000_000_000).contains(&memory), "{memory}");
    let descriptors = families["process_open_fds"].samples["process_open_fds"];
    assert!((8..100).contains(&descriptors), "{descriptors}");
    assert!(families.values().any(|family| family.kind == "counter"));
}

#[test]
fn no_label_names_a_session_or_a_task() {
    let gateway = Gateway::start();
    let before: BTreeSet<String> = parse(&gateway.control("GET", "/metrics", None).body)
        .into_values()
        .flat_map(|family| family.samples.into_keys())
        .collect();
    for n in 0..20 {
        gateway.run(&format!("s{n}"), "true");
    }
    let _watching: Vec<_> = (0..20).map(|n| Stream::open(gateway.address, &format!("s{n}"))).collect();
    let after: BTreeSet<String> = parse(&gateway.control("GET", "/metrics", None).body)
        .into_values()
        .flat_map(|family| family.samples.into_keys())
        .collect();
    assert_eq!(before, after);
}

#[test]
fn every_gauge_of_streams_falls_to_zero_after_their_clients_left() {
    let gateway = Gateway::start();
    gateway.run("demo", "true");
    for _ in 0..50 {
        let stream = |path| gateway.stream(path, &[("accept", "text/event-stream")]);
        let mut streams =
            ["/sessions/demo/tasks", "/sessions/x/tasks", "/sessions/demo/done", "/mux", "/mux?session=y"].map(stream);
        streams[0].list();
        drop(streams);
        drop(Stream::open(gateway.address, "demo"));
        // A peer that resets rather than ends.
        let unread = http::connect(gateway.address);
        std::io::Write::write_all(&mut &unread, &http::request("GET", "/sessions/demo/tasks", &[], "")).unwrap();
    }
    for source in ["tasks", "mux", "overview", "done"] {
        gateway.metric_becomes(&format!("tasklight_streams{{source=\"{source}\"}}"), 0);
    }
    gateway.metric_becomes("tasklight_watched_sessions", 0);
    gateway.metric_becomes("tasklight_connections{listener=\"browsers\"}", 0);
    // The one that asks.
    gateway.metric_becomes("tasklight_connections{listener=\"control\"}", 1);
}
