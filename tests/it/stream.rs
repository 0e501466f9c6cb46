//! The stream's wire: what goes over the socket, byte for byte where it matters.
//!
//! Answers the kinds of report in fanout/django-eventstream#185 (a CR in a label forges fields),
//! florimondmanca/httpx-sse#34 (U+2028 splits events), api7/aisix#111 (characters are torn on the way
//! to a slow reader) and tokio-rs/axum#2729 (`/a` is not `/%61`, and `%2F` separates).
//! Others have reported eventsource#134 (a reader hangs after sleep: a sign of life that scripts see),
//! and connect-rust#189 (half a request's head is never given up).

use std::{
    io::{Read, Write},
    process::Command,
    time::Duration,
};

use serde_json::json;

use crate::support::{
    Gateway, PATIENCE,
    http::{self, Answer, over_tcp, request},
    sse::Stream,
};

#[test]
fn headers_and_a_comment_come_at_once_on_a_session_that_nobody_knows() {
    let gateway = Gateway::start();
    let mut stream = Stream::open(gateway.address, "nobody");
    let head = stream.head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 ok\r\n"));
    for header in [
        "content-type: text/event-stream",
        "cache-control: no-store, no-transform",
        "x-accel-buffering: no",
        "x-content-type-options: nosniff",
        "transfer-encoding: chunked",
        "connection: close",
        "date: ",
    ] {
        assert_eq!(head.matches(&format!("\r\n{header}")).count(), 1, "{header} in {head}");
    }
    assert!(!head.contains("server:"));
    gateway.control("POST", "/tasks", Some(json!({"command": "sleep 60"})));
    assert_eq!(stream.list().statuses(), [("bash-1".into(), "running".into())]);
    assert_eq!(stream.comments, ["session nobody"]);
    assert!((1_000..=3_000).contains(&stream.retry.unwrap()));
}

#[test]
fn the_head_and_the_baseline_are_one_write() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    let mut socket = http::connect(gateway.address);
    socket.write_all(&request("GET", "/sessions/demo/tasks", &[], "")).unwrap();
    let mut bytes = vec![0; 64 * 1024];
    let read = socket.read(&mut bytes).unwrap();
    let text = std::str::from_utf8(&bytes[..read]).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("}]\n\n\r\n"), "{text}");
}

#[test]
fn retry_differs_between_connections_so_that_reconnects_spread() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    let retries: std::collections::BTreeSet<_> = (0..20)
        .map(|_| {
            let mut stream = Stream::open(gateway.address, "demo");
            stream.list();
            stream.retry.unwrap()
        })
        .collect();
    assert!(retries.len() > 10, "{retries:?}");
}

#[test]
fn a_consumer_that_resumes_always_gets_an_answer_and_a_new_one_only_when_there_is_something() {
    let gateway = Gateway::start();
    let mut resumed = Stream::with(gateway.address, "demo", &[("last-event-id", "1764531014123")]);
    let event = resumed.list();
    assert_eq!((event.id.as_str(), event.data.as_str()), ("", "[]"));
    let mut fresh = Stream::open(gateway.address, "demo");
    let mut blank = Stream::with(gateway.address, "demo", &[("last-event-id", "")]);
    gateway.run("demo", "sleep 60");
    for stream in [&mut fresh, &mut blank, &mut resumed] {
        assert_eq!(stream.list().statuses(), [("bash-1".into(), "running".into())]);
    }
    let mut resumed = Stream::with(gateway.address, "demo", &[("last-event-id", "1")]);
    assert_eq!(resumed.list().statuses().len(), 1);
}

#[test]
fn ids_are_the_servers_clock_and_ascend_and_the_empty_list_resets_them() {
    let gateway = Gateway::start();
    let mut stream = Stream::open(gateway.address, "demo");
    let mut last = 0;
    for _ in 0..5 {
        gateway.run("demo", "true");
        let event = stream.until(|event| event.statuses().iter().all(|(_, status)| status == "completed"));
        let id: u64 = event.id.parse().unwrap();
        assert!(id >= last);
        let ends = event.list().as_array().unwrap().last().unwrap()["finishedAt"].as_u64().unwrap();
        assert!((ends..ends + 60_000).contains(&id), "{id} is not the time of {ends}");
        last = id;
    }
    gateway.control("DELETE", "/sessions/demo", None);
    let event = stream.list();
    assert_eq!((event.id.as_str(), event.data.as_str()), ("", "[]"));
}

#[test]
fn a_label_of_line_ends_quotes_and_emoji_is_one_event_with_an_equal_label() {
    let gateway = Gateway::start();
    let mut stream = Stream::open(gateway.address, "demo");
    for label in
        ["a\rdata: []\r\r", "\n\nid: 7\n\n", "x\u{2028}y\u{2029}z\u{85}", "🦀 \"构建\" \\ \u{0}\u{7f}", "<img src=x>"]
    {
        let body = json!({"command": "true", "label": label});
        assert_eq!(gateway.control("POST", "/sessions/demo/tasks", Some(body)).status, 201);
        let event = stream.until(|event| {
            let list = event.list();
            let newest = list.as_array().unwrap().last().unwrap();
            newest["label"] == label && newest["status"] == "completed"
        });
        for raw in ['\u{2028}', '\u{2029}', '\u{85}', '\r', '\n'] {
            assert!(!event.data.contains(raw), "{raw:?} in {:?}", event.data);
        }
    }
}

#[test]
fn a_reader_that_stalls_and_then_dawdles_gets_every_character_whole() {
    let gateway = Gateway::with(&["--peer-timeout", "1h"]);
    // One byte in front, so that the writes do not end between characters by luck.
    let label = |n: usize| format!("{}{}", "x".repeat(n % 4 + 1), "🦀".repeat(1_000));
    for n in 0..10 {
        let body = json!({"kind": "build", "label": label(n)});
        assert_eq!(gateway.control("POST", "/sessions/demo/tasks", Some(body)).status, 201);
    }
    let mut socket = http::connect(gateway.address);
    socket.write_all(&request("GET", "/sessions/demo/tasks", &[], "")).unwrap();
    // 300 lists of 40 KiB are more than the kernel holds: writes are taken in part.
    for n in 0..300 {
        let path = format!("/sessions/demo/tasks/build-{}", n % 10 + 1);
        assert_eq!(gateway.control("PATCH", &path, Some(json!({"detail": n.to_string()}))).status, 200);
    }
    gateway.control("PATCH", "/sessions/demo/tasks/build-1", Some(json!({"detail": "the last"})));
    gateway.signal("TERM");
    let mut bytes = Vec::new();
    let mut piece = [0; 997];
    while let read @ 1.. = socket.read(&mut piece).unwrap() {
        bytes.extend_from_slice(&piece[..read]);
        std::thread::yield_now();
    }
    let (answer, rest) = Answer::parse(&bytes);
    assert!(rest.is_empty());
    let lists: Vec<_> = answer.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert!(lists.len() < 300, "it was never held up");
    let mut newest = json!(null);
    for list in lists {
        newest = serde_json::from_str(list).unwrap();
        for (n, task) in newest.as_array().unwrap().iter().enumerate() {
            assert_eq!(task["label"], label(n));
        }
    }
    assert_eq!(newest[0]["status"], "killed", "and it comes to the newest list");
}

#[test]
fn unowned_changes_reach_every_watched_session() {
    let gateway = Gateway::start();
    let mut streams: Vec<_> = (0..5).map(|session| Stream::open(gateway.address, &format!("s{session}"))).collect();
    gateway.run("s0", "sleep 60");
    gateway.control("POST", "/tasks", Some(json!({"command": "sleep 60"})));
    for (session, stream) in streams.iter_mut().enumerate() {
        let expected: &[&str] = if session == 0 { &["bash-1", "bash-2"] } else { &["bash-2"] };
        stream.until(|event| event.statuses().iter().map(|(id, _)| id.as_str()).eq(expected.iter().copied()));
    }
    gateway.control("POST", "/sessions/s3/tasks/bash-2/kill", None);
    for stream in &mut streams {
        stream.until(|event| event.statuses().iter().any(|(id, status)| id == "bash-2" && status == "killed"));
    }
}

#[test]
fn silence_is_broken_by_a_comment_or_by_an_event_with_the_servers_clock() {
    let gateway = Gateway::with(&["--heartbeat", "300ms"]);
    let mut comments = Stream::open(gateway.address, "demo");
    let mut events = Stream::send(gateway.address, &request("GET", "/sessions/demo/tasks?heartbeat=event", &[], ""));
    for _ in 0..3 {
        assert_eq!(comments.next().unwrap().name, "comment");
    }
    let mut beats = (0..3).map(|_| {
        let event = events.next().unwrap();
        assert_eq!((event.name.as_str(), event.id.as_str()), ("heartbeat", ""));
        event.data.parse::<u64>().unwrap()
    });
    let (first, last) = (beats.next().unwrap(), beats.last().unwrap());
    assert!(first > 1_700_000_000_000 && last >= first + 500, "{first} {last}");
    for accept in ["text/event-stream", "application/json"] {
        let loud = request("GET", "/sessions/demo/tasks?heartbeat=loud", &[("accept", accept)], "");
        assert_eq!(over_tcp(gateway.address, &loud).problem(422)["field"], "heartbeat");
    }
}

#[test]
fn json_is_the_list_once_and_other_types_are_406() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    let get = |accept| over_tcp(gateway.address, &request("GET", "/sessions/demo/tasks", &[("accept", accept)], ""));
    let once = get("application/json");
    assert_eq!((once.status, once.header("content-type")), (200, Some("application/json")));
    assert_eq!(once.json(), gateway.list("demo"));
    for neither in ["text/html", "image/png", "text/event-stream;q=0"] {
        get(neither).problem(406);
    }
    for stream in ["text/event-stream", "*/*", "text/html, */*;q=0.1"] {
        assert_eq!(Stream::with(gateway.address, "demo", &[("accept", stream)]).list().statuses().len(), 1);
    }
}

#[test]
fn head_answers_the_headers_and_ends_and_leaves_nothing() {
    let gateway = Gateway::start();
    let before = gateway.descriptors();
    for _ in 0..500 {
        let answer = over_tcp(gateway.address, &request("HEAD", "/sessions/demo/tasks", &[], ""));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    }
    crate::support::eventually("the descriptors are as before", || (gateway.descriptors() <= before).then_some(()));
}

#[test]
fn other_methods_are_405_with_allow_and_unknown_paths_404() {
    let gateway = Gateway::start();
    for method in ["POST", "PUT", "DELETE", "PATCH", "BREW"] {
        let answer = over_tcp(gateway.address, &request(method, "/sessions/demo/tasks", &[], ""));
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    }
    for path in
        ["/sessions", "/sessions/demo", "/sessions/demo/tasks/", "/sessions/demo/tasks/bash-1", "/tasks", "/healthz"]
    {
        over_tcp(gateway.address, &request("GET", path, &[], "")).problem(404);
    }
}

#[test]
fn a_session_id_is_one_segment_decoded_once() {
    let gateway = Gateway::start();
    gateway.run("%61%20%E6%9E%84", "sleep 60");
    assert_eq!(Stream::open(gateway.address, "a%20%e6%9e%84").list().statuses().len(), 1);
    let json = |path: &str| over_tcp(gateway.address, &request("GET", path, &[("accept", "application/json")], ""));
    assert_eq!(json("/sessions/%2561/tasks").json(), json!([]), "decoded once only");
    for bad in ["", "%2F", "a%2fb", "%00", "%0a", "%FF", "%C2%85", &"x".repeat(129), &"%C3%A9".repeat(65)] {
        json(&format!("/sessions/{bad}/tasks")).problem(400);
    }
    assert_eq!(json(&format!("/sessions/{}/tasks", "%C3%A9".repeat(64))).status, 200);
}

#[test]
fn http_1_0_gets_the_same_bytes_without_chunks_to_end_of_file() {
    let mut gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    let mut curl = Command::new("curl");
    let curl = curl.args(["-0", "-sNi", &gateway.url("demo")]).stdout(std::process::Stdio::piped());
    let mut curl = curl.spawn().unwrap();
    let mut first = [0];
    curl.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let mut stream = Stream::send(gateway.address, b"GET /sessions/demo/tasks HTTP/1.0\r\n\r\n");
    assert!(stream.head.starts_with("HTTP/1.0 200 OK\r\n"));
    assert!(!stream.head.contains("transfer-encoding"));
    assert_eq!(stream.list().statuses().len(), 1);
    gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", None);
    stream.until(|event| event.statuses()[0].1 == "killed");
    gateway.signal("TERM");
    assert_eq!(stream.next(), None, "a clean end");
    let output = curl.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\r\n\r\nretry: ") && text.ends_with("\n\n"), "{text}");
    assert!(gateway.wait().success());
}

#[test]
fn requests_before_the_stream_on_the_same_connection_lose_no_byte() {
    let gateway = Gateway::start();
    // A list that is larger than what the kernel takes at once, so that answers wait for the peer.
    for n in 0..10 {
        let label = format!("{n}{}", "x".repeat(4_000));
        let body = json!({"command": "sleep 60", "label": label});
        assert_eq!(gateway.control("POST", "/sessions/big/tasks", Some(body)).status, 201);
    }
    let expected = gateway.list("big");
    let json = "GET /sessions/big/tasks HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n";
    let stream = "GET /sessions/big/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut socket = http::connect(gateway.address);
    // One answered and read; then many pipelined, the stream last, and bytes behind it.
    socket.write_all(json.as_bytes()).unwrap();
    let length = read_answer(&mut socket, Vec::new());
    socket.write_all(format!("{}{stream}{json}", json.repeat(200)).as_bytes()).unwrap();
    // Let the answers pile up before anything is read.
    std::thread::sleep(Duration::from_millis(300));
    let mut bytes = vec![0; length * 200];
    socket.read_exact(&mut bytes).unwrap();
    let mut rest = bytes.as_slice();
    for _ in 0..200 {
        let (answer, after) = Answer::parse(rest);
        assert_eq!(answer.json(), expected);
        rest = after;
    }
    assert!(rest.is_empty());
    let mut stream = Stream::read_from(socket);
    assert_eq!(stream.list().list(), expected);
    gateway.control("POST", "/sessions/big/tasks/bash-1/kill", None);
    stream.until(|event| event.statuses()[0].1 == "killed");
}

/// Reads one answer with a length, and returns how many bytes it had.
fn read_answer(socket: &mut impl Read, mut bytes: Vec<u8>) -> usize {
    loop {
        let mut buffer = [0; 4096];
        let read = socket.read(&mut buffer).unwrap();
        assert_ne!(read, 0);
        bytes.extend_from_slice(&buffer[..read]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            let total = end + 4 + length.parse::<usize>().unwrap();
            if bytes.len() == total {
                return total;
            }
        }
    }
}

#[test]
fn half_a_head_and_then_silence_is_closed_and_so_is_a_connection_that_says_nothing() {
    let gateway = Gateway::with(&["--request-timeout", "300ms"]);
    for half in ["", "GET /sessions/demo/tasks HTTP/1.1\r\nhost: lo"] {
        let mut socket = http::connect(gateway.address);
        socket.write_all(half.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // An end, by FIN or by RST; not the reader's own patience.
        let started = std::time::Instant::now();
        let _ = socket.read_to_end(&mut answer);
        assert!(started.elapsed() < PATIENCE / 2);
    }
}

#[test]
fn a_reader_that_takes_nothing_is_dropped_in_bounded_time() {
    let gateway = Gateway::with(&["--peer-timeout", "500ms"]);
    let before = gateway.descriptors();
    for n in 0..10 {
        let label = format!("{n}{}", "x".repeat(4_000));
        gateway.control("POST", "/sessions/demo/tasks", Some(json!({"command": "sleep 600", "label": label})));
    }
    let running = gateway.descriptors();
    let mut stalled = Stream::open(gateway.address, "demo");
    stalled.list();
    crate::support::eventually("it is dropped", || {
        gateway.control("POST", "/tasks", Some(json!({"command": "true"})));
        (gateway.descriptors() <= running).then_some(())
    });
    assert!(running > before);
}

#[test]
fn a_head_of_20_kib_is_431() {
    let gateway = Gateway::start();
    let long = "x".repeat(20 * 1024);
    let answer = over_tcp(gateway.address, &request("GET", "/sessions/demo/tasks", &[("cookie", &long)], ""));
    assert_eq!(answer.status, 431);
}
