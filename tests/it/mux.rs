//! `/mux`: several sessions, or all of them, on one connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    thread,
};

use serde_json::{Value, json};

use crate::support::{Gateway, eventually, http, sse::Stream};

fn browser(gateway: &Gateway, query: &str, headers: &[(&str, &str)]) -> Stream {
    Stream::send(gateway.address, &http::request("GET", &format!("/mux?{query}"), headers, ""))
}

/// The next frame.
fn frame(stream: &mut Stream) -> Value {
    let event = stream.list();
    assert!(event.id.parse::<u64>().unwrap() > 1_700_000_000_000, "{event:?}");
    event.list()
}

/// What a client holds that follows the frames: last wins.
fn follow(mirror: &mut BTreeMap<String, Value>, frame: &Value) {
    let session = frame["sessionId"].as_str().unwrap_or_default().to_owned();
    match frame["type"].as_str().unwrap() {
        "baseline" => *mirror = serde_json::from_value(frame["sessions"].clone()).unwrap(),
        "session/subscribed" => {}
        "session/tasks" => _ = mirror.insert(session, frame["tasks"].clone()),
        "host/session-removed" => _ = mirror.remove(&session),
        other => panic!("{other}"),
    }
}

fn subscribed(session: &str) -> Value {
    json!({"type": "session/subscribed", "sessionId": session})
}

#[test]
fn a_page_sees_several_sessions_on_one_connection() {
    let gateway = Gateway::start();
    gateway.run("b", "sleep 300");
    let mut page = browser(&gateway, "session=a&session=b&session=a", &[]);
    let mut agent = gateway.stream("/mux?session=a&session=b", &[]);
    for stream in [&mut page, &mut agent] {
        assert_eq!(frame(stream), subscribed("a"));
        assert_eq!(frame(stream), subscribed("b"));
        // The empty list of `a` goes without saying.
        assert_eq!(frame(stream), json!({"type": "session/tasks", "sessionId": "b", "tasks": gateway.list("b")}));
    }
    gateway.run("other", "true");
    gateway.run("a", "sleep 300");
    for stream in [&mut page, &mut agent] {
        assert_eq!(frame(stream), json!({"type": "session/tasks", "sessionId": "a", "tasks": gateway.list("a")}));
    }
    assert_eq!(gateway.control("DELETE", "/sessions/b", None).status, 204);
    for stream in [&mut page, &mut agent] {
        while frame(stream) != json!({"type": "host/session-removed", "sessionId": "b"}) {}
        // A removal is followed by the list as it is now.
        assert_eq!(frame(stream), json!({"type": "session/tasks", "sessionId": "b", "tasks": []}));
    }
    gateway.run("b", "true");
    for stream in [&mut page, &mut agent] {
        assert_eq!(frame(stream)["sessionId"], "b");
    }
}

#[test]
fn an_agent_sees_every_session_and_a_page_cannot() {
    let gateway = Gateway::start();
    gateway.run("a", "sleep 300");
    let mut host = gateway.stream("/mux", &[]);
    assert_eq!(frame(&mut host), json!({"type": "baseline", "sessions": {"a": gateway.list("a")}}));
    gateway.run("b", "sleep 300");
    assert_eq!(frame(&mut host), json!({"type": "session/tasks", "sessionId": "b", "tasks": gateway.list("b")}));
    // An unowned task is in every session's list.
    assert_eq!(gateway.control("POST", "/tasks", Some(json!({"command": "sleep 300"}))).status, 201);
    let both: BTreeSet<_> = (0..2).map(|_| frame(&mut host)["sessionId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(both, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(gateway.control("DELETE", "/sessions/a", None).status, 204);
    while frame(&mut host) != json!({"type": "host/session-removed", "sessionId": "a"}) {}
    let mut later = gateway.stream("/mux", &[("last-event-id", "1764531014123")]);
    assert_eq!(frame(&mut later), json!({"type": "baseline", "sessions": {"b": gateway.list("b")}}));

    let answer = |path| http::over_tcp(gateway.address, &http::request("GET", path, &[], ""));
    assert_eq!(answer("/mux").problem(422)["field"], "session");
    assert_eq!(answer("/mux?heartbeat=event").problem(422)["field"], "session");
}

#[test]
fn a_mux_that_cannot_be_is_refused() {
    let gateway = Gateway::start();
    let many = (0..65).map(|n| format!("session={n}")).collect::<Vec<_>>().join("&");
    for (query, status) in
        [("session=", 400), ("session=a%2Fb", 400), ("session=%FF", 400), ("session=a&session=%0A", 400), (&many, 422)]
    {
        let request = http::request("GET", &format!("/mux?{query}"), &[], "");
        http::over_tcp(gateway.address, &request).problem(status);
        http::over_unix(&gateway.socket(), &request).problem(status);
    }
    let json = http::request("GET", "/mux?session=a", &[("accept", "application/json")], "");
    http::over_tcp(gateway.address, &json).problem(406);
    let post = http::over_tcp(gateway.address, &http::request("POST", "/mux?session=a", &[], ""));
    post.problem(405);
    assert_eq!(post.header("allow"), Some("GET, HEAD"));
    assert_eq!(gateway.metric("tasklight_watched_sessions"), 0);
}

#[test]
fn who_resumes_is_answered_for_each_session() {
    let gateway = Gateway::start();
    gateway.run("b", "sleep 300");
    let mut page = browser(&gateway, "session=a&session=b", &[("last-event-id", "1764531014123")]);
    let frames: Vec<_> = (0..4).map(|_| frame(&mut page)).collect();
    assert_eq!(
        frames,
        [
            subscribed("a"),
            subscribed("b"),
            json!({"type": "session/tasks", "sessionId": "a", "tasks": []}),
            json!({"type": "session/tasks", "sessionId": "b", "tasks": gateway.list("b")}),
        ]
    );
}

#[test]
fn whatever_happens_a_mux_comes_to_hold_each_sessions_list() {
    let gateway = Gateway::with(&["--max-settled-tasks", "5", "--grace", "100ms"]);
    let sessions = ["a", "b", "c"];
    let mut page = browser(&gateway, "session=a&session=b&session=c", &[]);
    let mut host = gateway.stream("/mux", &[]);
    let reader = |stream: &mut Stream| {
        let mut mirror = BTreeMap::new();
        // The mark is the last change of all.
        while !mirror.get("c").is_some_and(|list: &Value| list.to_string().contains("the mark")) {
            follow(&mut mirror, &frame(stream));
        }
        mirror
    };
    let (mut of_page, mut of_host) = thread::scope(|scope| {
        let page = scope.spawn(|| reader(&mut page));
        let host = scope.spawn(|| reader(&mut host));
        for n in 0..150 {
            let session = sessions[fastrand::usize(0..3)];
            match fastrand::u8(0..8) {
                0 => _ = gateway.control("DELETE", &format!("/sessions/{session}"), None),
                1 => _ = gateway.control("POST", "/tasks", Some(json!({"command": "true"}))),
                2..=3 => _ = gateway.control("POST", &format!("/sessions/{session}/tasks/bash-{n}/kill"), None),
                _ => {
                    let body = json!({"command": if fastrand::bool() { "true" } else { "sleep 300" }});
                    _ = gateway.control("POST", &format!("/sessions/{session}/tasks"), Some(body));
                }
            }
        }
        for session in sessions {
            gateway.control("DELETE", &format!("/sessions/{session}"), None);
        }
        gateway.run("a", "sleep 300");
        eventually("all is quiet", || {
            let unowned = gateway.control("GET", "/tasks", None).json();
            unowned.as_array().unwrap().iter().all(|task| task["finishedAt"].is_u64()).then_some(())
        });
        gateway.run("c", "sleep 300 # the mark");
        (page.join().unwrap(), host.join().unwrap())
    });
    // `b` is not open: an overview does not have it, and the page sees the unowned tasks there.
    let lists = |sessions: &[&str]| -> BTreeMap<String, Value> {
        let lists = sessions.iter().map(|session| ((*session).to_owned(), gateway.list(session)));
        lists.filter(|(_, list)| *list != json!([])).collect()
    };
    loop {
        of_page.retain(|_, list| *list != json!([]));
        if of_page == lists(&sessions) {
            break;
        }
        follow(&mut of_page, &frame(&mut page));
    }
    while of_host != lists(&["a", "c"]) {
        follow(&mut of_host, &frame(&mut host));
    }
}

#[test]
fn a_mux_reader_that_stops_costs_little_and_comes_to_the_newest_lists() {
    let gateway = Gateway::with(&["--max-settled-tasks", "40"]);
    let label = "x".repeat(4_000);
    let start = |session: &str, mark: &str| {
        let body = json!({"command": "true", "label": format!("{mark}{label}")});
        let path = format!("/sessions/{session}/tasks");
        eventually("there is room", || {
            let answer = gateway.control("POST", &path, Some(body.clone()));
            (answer.status == 201).then(|| answer.json())
        })
    };
    for session in ["a", "b"] {
        for _ in 0..45 {
            start(session, "");
        }
    }
    let mut stalled: Vec<_> =
        (0..8).flat_map(|_| [browser(&gateway, "session=a&session=b", &[]), gateway.stream("/mux", &[])]).collect();
    for stream in &mut stalled {
        frame(stream);
    }
    let before = gateway.memory();
    for n in 0..150 {
        start(["a", "b"][n % 2], "");
    }
    // Each of 300 changes is a list of 160 KB: 48 MB for each of 16 readers, if they were kept.
    let grown = gateway.memory().saturating_sub(before);
    assert!(grown < 40_000, "{grown} KiB");
    let last = start("b", "the last ");
    for stream in &mut stalled {
        loop {
            let frame = frame(stream);
            let has = frame["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(|task| task["id"] == last["id"]));
            if has {
                break;
            }
        }
    }
}

#[test]
fn a_thousand_muxes_of_random_sessions_leave_nothing() {
    let gateway = Gateway::start();
    gateway.run("a", "sleep 300");
    for _ in 0..1_000 {
        let query: Vec<_> = (0..fastrand::usize(1..=8)).map(|_| format!("session={}", fastrand::u32(..))).collect();
        let query = query.join("&");
        if fastrand::bool() {
            drop(browser(&gateway, &query, &[]));
        } else {
            let mut socket = http::connect(gateway.address);
            socket.write_all(&http::request("GET", &format!("/mux?{query}"), &[], "")).unwrap();
        }
    }
    gateway.metric_becomes("tasklight_watched_sessions", 0);
    gateway.metric_becomes("tasklight_streams{source=\"mux\"}", 0);
    assert_eq!(gateway.metric("tasklight_sessions"), 1);
}
