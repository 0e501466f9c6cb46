//! `…/done`: the end of each task is told once, and a reader that comes back misses none.

use std::{collections::BTreeMap, io::Write, os::unix::net::UnixStream, thread};

use serde_json::{Value, json};

use crate::support::{Gateway, http, sse::Stream};

fn done(gateway: &Gateway, last_id: &str) -> Stream {
    let headers = [("accept", "text/event-stream"), ("last-event-id", last_id)];
    gateway.stream("/sessions/demo/done", if last_id.is_empty() { &headers[..1] } else { &headers })
}

/// The next notice's task.
fn told(stream: &mut Stream) -> String {
    stream.list().list()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_tasks_end_is_one_event_with_its_last_record() {
    let gateway = Gateway::start();
    let mut stream = done(&gateway, "");
    assert!(!stream.opening_id().is_empty());
    gateway.run("demo", "exit 3");
    let event = stream.list();
    assert_eq!(event.list(), gateway.list("demo")[0]);
    assert_eq!(event.list()["detail"], "exit code: 3");
    assert_eq!(stream.comments, ["notices of demo"]);
    assert!(stream.head.contains("cache-control: no-store, no-transform\r\n"));
    // Another session's reader, and one who comes later, hear of the next end only.
    drop(stream);
    gateway.metric_becomes("tasklight_streams{source=\"done\"}", 0);
    let mut later = done(&gateway, "");
    gateway.run("demo", "true");
    assert_eq!(told(&mut later), "bash-2");
}

#[test]
fn what_a_model_has_read_is_not_told_and_what_nobody_heard_waits() {
    let gateway = Gateway::start();
    for _ in 0..2 {
        gateway.run("demo", "true");
    }
    gateway.ended("demo", "bash-1");
    gateway.ended("demo", "bash-2");
    let read = gateway.control("GET", "/sessions/demo/tasks/bash-1/output", None);
    assert_eq!(read.json()["task"]["status"], "completed");
    assert_eq!(told(&mut done(&gateway, "")), "bash-2");
}

#[test]
fn an_unowned_tasks_end_is_told_to_the_readers_of_the_unowned_alone() {
    let gateway = Gateway::start();
    let mut session = done(&gateway, "");
    assert_eq!(gateway.control("POST", "/tasks", Some(json!({"command": "true"}))).status, 201);
    assert_eq!(told(&mut gateway.stream("/done", &[])), "bash-1");
    gateway.run("demo", "true");
    assert_eq!(told(&mut session), "bash-2");
}

#[test]
fn no_notice_is_lost_or_doubled_over_200_reconnects_while_tasks_end() {
    const TASKS: usize = 400;
    let gateway = Gateway::with(&["--max-settled-tasks", "1000", "--max-live-tasks", "1000"]);
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..TASKS {
                gateway.run("demo", "true");
            }
        });
        let mut last_id = String::new();
        let mut hear = |event: Value| *heard.entry(event["id"].as_str().unwrap().to_owned()).or_default() += 1;
        for turn in 0..200 {
            match fastrand::u8(0..4) {
                // It goes before it reads a byte.
                0 => {
                    let mut socket = UnixStream::connect(gateway.socket()).unwrap();
                    let resume = [("last-event-id", last_id.as_str())];
                    let headers = if last_id.is_empty() { &[][..] } else { &resume };
                    socket.write_all(&http::request("GET", "/sessions/demo/done", headers, "")).unwrap();
                    if fastrand::bool() {
                        // Some answer is there when it goes.
                        gateway.control("GET", "/healthz", None);
                    }
                }
                // It reads on, and goes with what came meanwhile unread.
                some => {
                    let mut stream = done(&gateway, &last_id);
                    last_id = stream.opening_id().to_owned();
                    for _ in 1..some {
                        let event = stream.list();
                        hear(event.list());
                        last_id = event.id;
                    }
                    if turn % 50 == 0 {
                        // The connection before this one seems to go on for a while.
                        let mut again = done(&gateway, &last_id);
                        let event = again.list();
                        hear(event.list());
                        last_id = event.id;
                    }
                }
            }
        }
        let mut stream = done(&gateway, &last_id);
        while heard.len() < TASKS {
            let event = stream.list();
            *heard.entry(event.list()["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    });
    // Whatever is left would come now, before this one.
    let last = gateway.run("demo", "true");
    assert!(heard.values().all(|times| *times == 1), "{heard:?}");
    let mut fresh = done(&gateway, "");
    assert_eq!(told(&mut fresh), last["id"].as_str().unwrap());
}

#[test]
fn readers_of_one_session_share_the_notices() {
    const TASKS: usize = 30;
    let gateway = Gateway::with(&["--max-live-tasks", "100"]);
    let mut streams: Vec<_> = (0..3).map(|_| done(&gateway, "")).collect();
    for stream in &mut streams {
        stream.opening_id();
    }
    let readers: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            thread::spawn(move || {
                let mut heard = Vec::new();
                while let Some(event) = stream.next() {
                    heard.push(event.list()["id"].as_str().unwrap().to_owned());
                }
                heard
            })
        })
        .collect();
    for _ in 0..TASKS {
        gateway.run("demo", "true");
    }
    gateway.metric_becomes("tasklight_frames_sent_total", TASKS as u64);
    gateway.signal("TERM");
    let mut all: Vec<_> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), TASKS);
}

#[test]
fn a_shutdown_tells_the_last_ends_and_then_ends_the_stream() {
    let mut gateway = Gateway::start();
    gateway.run("demo", "sleep 300");
    let mut stream = done(&gateway, "");
    stream.opening_id();
    gateway.signal("TERM");
    let event = stream.next().unwrap();
    assert_eq!((&event.list()["id"], &event.list()["status"]), (&json!("bash-1"), &json!("killed")));
    assert_eq!(stream.next(), None);
    assert!(gateway.wait().success());
}

#[test]
fn an_id_of_another_gateway_is_that_of_a_new_reader() {
    let before = Gateway::start();
    before.run("demo", "true");
    let mut stream = done(&before, "");
    stream.list();
    let gateway = Gateway::start();
    gateway.run("demo", "true");
    assert_eq!(told(&mut done(&gateway, stream.last_id())), "bash-1");
    for odd in ["1764531014123", "-", "🦀", "ffffffffffffffff-1-1"] {
        gateway.run("demo", "true");
        told(&mut done(&gateway, odd));
    }
}

#[test]
fn looking_for_notices_opens_no_session_and_asks_for_events() {
    let gateway = Gateway::start();
    let mut stream = gateway.stream("/sessions/nobody/done", &[]);
    stream.opening_id();
    assert_eq!(gateway.metric("tasklight_sessions"), 0);
    let send = |method, path, headers| http::over_unix(&gateway.socket(), &http::request(method, path, headers, ""));
    send("GET", "/sessions/demo/done", &[("accept", "application/json")]).problem(406);
    let refused = send("POST", "/sessions/demo/done", &[]);
    refused.problem(405);
    assert_eq!(refused.header("allow"), Some("GET, HEAD"));
    send("GET", "/sessions/a%2Fb/done", &[]).problem(400);
    http::over_tcp(gateway.address, &http::request("GET", "/sessions/demo/done", &[], "")).problem(404);
    http::over_tcp(gateway.address, &http::request("GET", "/metrics", &[], "")).problem(404);
}
