//! What is limited says so, lets the others go on, and comes back by itself when the load goes.
//!
//! Limits that have their tests elsewhere: of a request's head in time and size, and of a reader that
//! takes nothing (`stream`), of bodies (`control`), of live tasks (`registry`), of kept records and
//! outputs (`registry`, `output`), of terminals (`pty`).
//!
//! Of what others have reported this answers EventSource#14 (a 204 stops reconnects: too much is 503
//! with `Retry-After`).

use std::{
    io::{Read, Write},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::support::{
    Gateway,
    counter::{Counter, counted},
    eventually,
    http::{self, Answer, over_tcp, request},
    more_descriptors,
    sse::Stream,
};

fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Answer {
    over_tcp(gateway.address, &request("GET", path, headers, ""))
}

/// Asserts that it says to come back later.
fn later(answer: &Answer, name: &str) {
    assert_eq!(answer.problem(503)["type"], format!("urn:tasklight:problem:{name}"));
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() > 0);
}

fn lines(gateway: &Gateway, text: &str) -> usize {
    gateway.log().lines().filter(|line| line.contains(text)).count()
}

#[test]
fn a_connection_too_many_is_told_so_at_once_and_the_others_go_on() {
    let gateway = Gateway::with(&["--max-connections", "20", "--request-timeout", "1h"]);
    let mut counter = Counter::start(&gateway);
    let mut streams: Vec<_> = (0..19).map(|_| Stream::open(gateway.address, "demo")).collect();
    // One that says nothing has a place like any other.
    let silent = http::connect(gateway.address);
    eventually("all have their place", || {
        (gateway.metric("tasklight_connections{listener=\"browsers\"}") == 20).then_some(())
    });
    for _ in 0..300 {
        let answer = get(&gateway, "/sessions/demo/tasks", &[]);
        later(&answer, "too-many-connections");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    // Also to who has not asked yet.
    let mut waiting = http::connect(gateway.address);
    later(&http::read_to_end(&mut waiting), "too-many-connections");
    counter.count(1);
    for stream in &mut streams {
        stream.until(|event| counted(&event.list()) == Some(counter.last()));
    }
    assert_eq!(lines(&gateway, "as many connections as may be"), 1);
    drop((silent, streams));
    eventually("there is room again", || {
        let answer = get(&gateway, "/sessions/demo/tasks", &[("accept", "application/json")]);
        (answer.status == 200).then_some(())
    });
    eventually("the log says that it is over", || {
        get(&gateway, "/", &[]);
        (lines(&gateway, "there is room for connections again") == 1).then_some(())
    });
    assert_eq!(lines(&gateway, "as many connections as may be"), 1);
}

#[test]
fn a_flood_that_reads_no_answer_is_closed_and_shuts_no_producer_out() {
    let gateway = Gateway::with(&["--max-connections", "10"]);
    let _streams: Vec<_> = (0..10).map(|_| Stream::open(gateway.address, "demo")).collect();
    let before = gateway.descriptors();
    let flood: Vec<_> = (0..500).map(|_| http::connect(gateway.address)).collect();
    gateway.run("demo", "true");
    eventually("the flood is closed", || (gateway.descriptors() <= before).then_some(()));
    drop(flood);
}

#[test]
fn by_default_connections_are_bounded_by_the_descriptors_and_children_have_theirs() {
    more_descriptors();
    let gateway = Gateway::with_descriptors(300, 400, &["--request-timeout", "1h"]);
    // Five eighths of 400.
    let streams: Vec<_> = (0..250).map(|_| Stream::open(gateway.address, "demo")).collect();
    later(&get(&gateway, "/sessions/demo/tasks", &[]), "too-many-connections");
    for _ in 0..10 {
        // What the gateway was started with, and not what it raised that to. It is given back in the
        // child's first moment.
        let command = "until [ $(ulimit -Sn) = 300 ]; do sleep 0.01; done; [ $(ulimit -Hn) = 400 ]";
        let id = gateway.run("demo", command)["id"].as_str().unwrap().to_owned();
        assert_eq!(gateway.ended("demo", &id)["status"], "completed");
    }
    drop(streams);
}

/// Processor time that a gateway has used, in ticks of 10 ms.
fn used(gateway: &Gateway) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.pid())).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn descriptors_that_run_out_for_30_s_hurt_nobody_who_is_in_and_service_returns_by_itself() {
    let gateway = Gateway::start();
    let mut counter = Counter::start(&gateway);
    counter.count(1);
    let mut streams: Vec<_> = (0..20).map(|_| Stream::open(gateway.address, "demo")).collect();
    for stream in &mut streams {
        stream.list();
    }
    let pid = Pid::from_raw(gateway.pid().try_into().unwrap());
    let so_many = |limit: u64| {
        let limit = Rlimit { current: Some(limit), maximum: Some(4_096) };
        prlimit(pid, Resource::Nofile, limit).unwrap()
    };
    so_many(1);
    let (started, used_before) = (Instant::now(), used(&gateway));
    // The kernel takes them, and they wait.
    let mut waiting: Vec<_> = (0..50)
        .map(|_| {
            let mut socket = http::connect(gateway.address);
            socket.write_all(&request("GET", "/sessions/demo/tasks", &[], "")).unwrap();
            socket
        })
        .collect();
    while started.elapsed() < Duration::from_secs(30) {
        counter.count(1);
        for stream in &mut streams {
            stream.until(|event| counted(&event.list()) == Some(counter.last()));
        }
        thread::sleep(Duration::from_millis(250));
    }
    let ticks = used(&gateway) - used_before;
    println!("{ticks} ticks of 10 ms used in 30 s without descriptors");
    assert!(ticks < 1_000, "it spins: {ticks} ticks");
    assert_eq!(lines(&gateway, "cannot accept connections"), 1, "{}", gateway.log());
    so_many(4_096);
    for socket in &mut waiting {
        let mut answer = [0; 15];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }
    eventually("the log says that it is over", || {
        (lines(&gateway, "connections are accepted again") == 1).then_some(())
    });
    assert_eq!(lines(&gateway, "cannot accept connections"), 1);
}

#[test]
fn a_stream_too_many_of_a_session_is_refused_and_other_sessions_are_not() {
    let gateway = Gateway::with(&["--max-session-streams", "2"]);
    gateway.run("a", "sleep 600");
    let mut streams: Vec<_> = (0..2).map(|_| Stream::open(gateway.address, "a")).collect();
    let refused = get(&gateway, "/sessions/a/tasks", &[]);
    later(&refused, "too-many-streams");
    assert_eq!(refused.json()["detail"], "session a has 2 streams");
    later(&get(&gateway, "/mux?session=b&session=a", &[]), "too-many-streams");
    assert_eq!(get(&gateway, "/sessions/a/tasks", &[("accept", "application/json")]).status, 200);
    assert_eq!(over_tcp(gateway.address, &request("HEAD", "/sessions/a/tasks", &[], "")).status, 200);
    let _other = [Stream::open(gateway.address, "b"), Stream::open(gateway.address, "b")];
    // Producers look without it.
    let _control = gateway.stream("/sessions/a/tasks", &[("accept", "text/event-stream")]);
    streams.pop();
    eventually("a place is free", || {
        let mut socket = http::connect(gateway.address);
        socket.write_all(&request("GET", "/sessions/a/tasks", &[], "")).unwrap();
        let mut answer = [0; 15];
        socket.read_exact(&mut answer).unwrap();
        (&answer == b"HTTP/1.1 200 OK").then_some(())
    });
}

#[test]
fn a_stream_too_many_of_a_client_is_refused_and_a_trusted_proxy_says_who_it_is() {
    let direct = Gateway::with(&["--max-client-streams", "2"]);
    let made_up: Vec<_> =
        ["1.1.1.1", "2.2.2.2"].map(|claim| Stream::with(direct.address, "a", &[("x-forwarded-for", claim)])).into();
    later(&get(&direct, "/sessions/b/tasks", &[("x-forwarded-for", "3.3.3.3")]), "too-many-streams");
    drop(made_up);

    let behind = Gateway::with(&["--max-client-streams", "2", "--trusted-proxy", "127.0.0.1"]);
    let from = |claim| Stream::with(behind.address, "a", &[("x-forwarded-for", claim)]);
    let _streams = [from("1.1.1.1"), from("9.9.9.9, 1.1.1.1"), from("2.2.2.2")];
    let refused = get(&behind, "/sessions/b/tasks", &[("x-forwarded-for", "1.1.1.1")]);
    later(&refused, "too-many-streams");
    assert_eq!(refused.json()["detail"], "your address has 2 streams");
    let _more = [from("2.2.2.2"), from("3.3.3.3")];
}

#[test]
fn a_session_too_many_is_refused_until_one_is_disposed() {
    let gateway = Gateway::with(&["--max-sessions", "3"]);
    for session in ["a", "b", "c"] {
        gateway.run(session, "true");
    }
    let start = |session: &str| {
        gateway.control("POST", &format!("/sessions/{session}/tasks"), Some(json!({"command": "true"})))
    };
    let refused = start("d");
    assert_eq!(refused.problem(429)["type"], "urn:tasklight:problem:too-many-sessions");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // To look is no session, and those that there are go on, and the unowned.
    let _looking = Stream::open(gateway.address, "d");
    gateway.run("a", "true");
    assert_eq!(gateway.control("POST", "/tasks", Some(json!({"command": "true"}))).status, 201);
    assert_eq!(gateway.control("DELETE", "/sessions/b", None).status, 204);
    assert_eq!(start("d").status, 201);
    start("b").problem(429);
}

#[test]
fn a_kind_too_many_is_refused_by_name_and_those_there_are_go_on() {
    let gateway = Gateway::with(&["--max-kinds", "3"]);
    let start = |kind: &str| {
        let body = json!({"kind": kind, "label": "work", "leaseMs": 1_000});
        gateway.control("POST", "/sessions/a/tasks", Some(body))
    };
    gateway.run("a", "true");
    assert_eq!((start("build").status, start("review").status), (201, 201));
    assert_eq!(start("deploy").problem(422)["field"], "kind");
    assert_eq!(start("build").status, 201);
    gateway.run("b", "true");
}
