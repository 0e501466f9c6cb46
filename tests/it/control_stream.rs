//! The live list over the control socket: the same stream as the browsers'.

use std::{io::Read, io::Write, os::unix::net::UnixStream};

use serde_json::json;

use crate::support::{Gateway, http, sse::Stream};

const STREAM: &[(&str, &str)] = &[("accept", "text/event-stream")];

#[test]
fn whoever_asks_for_events_on_the_control_socket_gets_the_browsers_stream() {
    let gateway = Gateway::start();
    let mut control = gateway.stream("/sessions/demo/tasks", STREAM);
    let mut browser = Stream::open(gateway.address, "demo");
    let without_date = |head: &str| -> Vec<String> {
        head.lines().filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect()
    };
    assert_eq!(without_date(&control.head), without_date(&browser.head));
    gateway.run("demo", "exit 3");
    for stream in [&mut control, &mut browser] {
        let ended = stream.until(|event| event.statuses() == [("bash-1".to_owned(), "failed".to_owned())]);
        assert!(ended.id.parse::<u64>().unwrap() > 1_700_000_000_000);
        assert_eq!(ended.list(), gateway.list("demo"));
        assert_eq!(stream.comments, ["session demo"]);
    }
    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    for stream in [&mut control, &mut browser] {
        let emptied = stream.list();
        assert_eq!((emptied.id.as_str(), emptied.list()), ("", json!([])));
    }
}

#[test]
fn the_list_as_json_stays_what_the_control_socket_gives_by_default() {
    let gateway = Gateway::start();
    for headers in [&[][..], &[("accept", "*/*")], &[("accept", "application/json")]] {
        let request = http::request("GET", "/sessions/demo/tasks", headers, "");
        let answer = http::over_unix(&gateway.socket(), &request);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{headers:?}");
        assert_eq!(answer.json(), json!([]));
    }
    let request = http::request("GET", "/sessions/demo/tasks", &[("accept", "text/html")], "");
    http::over_unix(&gateway.socket(), &request).problem(406);
    let refused = gateway.control("PUT", "/sessions/demo/tasks", None);
    refused.problem(405);
    assert_eq!(refused.header("allow"), Some("GET, HEAD, POST"));
}

#[test]
fn who_resumes_is_answered_and_beats_come_as_asked_for() {
    let gateway = Gateway::with(&["--heartbeat", "200ms"]);
    let resumes = &[("accept", "text/event-stream"), ("last-event-id", "1764531014123")];
    let mut stream = gateway.stream("/sessions/demo/tasks?heartbeat=event", resumes);
    assert_eq!(stream.next().unwrap().list(), json!([]));
    let beat = stream.next().unwrap();
    assert_eq!(beat.name, "heartbeat");
    assert!(beat.data.parse::<u64>().unwrap() > 1_700_000_000_000);
    assert_eq!(gateway.stream("/sessions/demo/tasks", STREAM).next().unwrap().name, "comment");
    for path in ["/sessions/demo/done", "/done", "/mux", "/mux?session=a"] {
        let mut stream =
            gateway.stream(&format!("{path}{}heartbeat=event", if path.contains('?') { '&' } else { '?' }), &[]);
        let beat = loop {
            let event = stream.next().unwrap();
            if event.name != "message" {
                break event;
            }
        };
        assert_eq!(beat.name, "heartbeat", "{path}");
    }
    let bad = http::request("GET", "/sessions/demo/done?heartbeat=loud", &[], "");
    assert_eq!(http::over_unix(&gateway.socket(), &bad).problem(422)["field"], "heartbeat");
}

#[test]
fn a_head_request_for_a_stream_gets_its_headers_and_an_end() {
    let gateway = Gateway::start();
    let connect = || UnixStream::connect(gateway.socket()).unwrap();
    for path in ["/sessions/demo/tasks", "/sessions/demo/done", "/done", "/mux", "/mux?session=a"] {
        let mut socket = connect();
        socket.write_all(&http::request("HEAD", path, STREAM, "")).unwrap();
        let mut head = String::new();
        socket.read_to_string(&mut head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{path}: {head}");
        assert!(head.contains("content-type: text/event-stream\r\n"), "{path}: {head}");
    }
    let answer = http::over_tcp(gateway.address, &http::request("HEAD", "/mux?session=a", &[], ""));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    for path in ["/tasks", "/sessions/demo/tasks", "/metrics"] {
        let mut socket = connect();
        socket.write_all(&http::request("HEAD", path, &[], "")).unwrap();
        let mut head = String::new();
        socket.read_to_string(&mut head).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{path}: {head}");
    }
    for source in ["tasks", "mux", "overview", "done"] {
        assert_eq!(gateway.metric(&format!("tasklight_streams{{source=\"{source}\"}}")), 0);
    }
    assert_eq!(gateway.metric("tasklight_watched_sessions"), 0);
}

#[test]
fn an_old_http_client_gets_every_stream_to_end_of_file() {
    let mut gateway = Gateway::start();
    gateway.run("demo", "sleep 300");
    let mut sockets: Vec<_> = ["/sessions/demo/tasks", "/sessions/demo/done", "/mux"]
        .iter()
        .map(|path| {
            let mut socket = UnixStream::connect(gateway.socket()).unwrap();
            write!(socket, "GET {path} HTTP/1.0\r\naccept: text/event-stream\r\n\r\n").unwrap();
            let mut head = [0; 12];
            socket.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.0 200");
            socket
        })
        .collect();
    gateway.signal("TERM");
    for socket in &mut sockets {
        let mut rest = String::new();
        socket.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("chunked") && rest.ends_with("\n\n"), "{rest}");
        assert!(rest.contains(r#""status":"killed""#), "{rest}");
    }
    assert!(gateway.wait().success());
}

#[test]
fn a_stream_follows_answers_that_came_before_it_on_the_same_connection() {
    let gateway = Gateway::start();
    let mut socket = UnixStream::connect(gateway.socket()).unwrap();
    socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    socket
        .write_all(
            b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /sessions/demo/tasks HTTP/1.1\r\nhost: a\r\n\
              accept: text/event-stream\r\n\r\n",
        )
        .unwrap();
    let mut all = String::new();
    while !all.contains(": session demo\n") {
        let mut some = [0; 512];
        let read = socket.read(&mut some).unwrap();
        assert_ne!(read, 0, "{all}");
        all.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 2, "{all}");
    assert!(all.find("ok\n").unwrap() < all.find("text/event-stream").unwrap(), "{all}");
}
