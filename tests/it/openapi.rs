//! The description of the control API at `/openapi.json`: what it says is so, operation by operation
//! and status by status. (That it has each path and method is shown beside the router.)

use std::{collections::BTreeSet, io::Write, os::unix::net::UnixStream, sync::Mutex, thread};

use serde_json::{Value, json};

use crate::support::{
    Gateway, eventually,
    http::{self, Answer},
    openapi::{Document, Operation},
};

const TOKEN: &str = "a-token-of-a-test-0123456789";

/// What no request can bring about: a machine that lacks something, a producer that cannot be asked, an end of
/// the gateway at the right moment, a process of another user in a terminal.
const NOT_SHOWN: [(&str, u16); 3] = [("", 502), ("", 503), ("closeTerminal", 202)];

/// Asks, holds each answer to the description, and remembers what was seen.
struct Walk<'a> {
    gateway: &'a Gateway,
    document: Document,
    seen: Mutex<BTreeSet<(String, u16)>>,
}

impl Walk<'_> {
    fn saw(&self, operation: &Operation, answer: Answer) -> Answer {
        self.document.check(operation, &answer);
        self.seen.lock().unwrap().insert((operation.id.clone(), answer.status));
        answer
    }

    /// One request over the Unix socket, whose body is said to have that length.
    fn send(&self, operation: &Operation, path: &str, headers: &[(&str, &str)], body: &[u8], length: usize) -> Answer {
        assert!(operation.is_of(path), "{path} is not of {}", operation.template);
        let length = length.to_string();
        let mut headers = headers.to_vec();
        if operation.takes().is_some() && length != "0" {
            headers.push(("content-length", &length));
        }
        let mut request = http::request(&operation.method, path, &headers, "");
        if length != "0" {
            // The one that was made for an empty body.
            let text = String::from_utf8(request).unwrap();
            request = text.replacen("content-length: 0\r\n", "", 1).into_bytes();
        }
        request.extend_from_slice(body);
        let mut socket = UnixStream::connect(self.gateway.socket()).unwrap();
        socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        socket.write_all(&request).unwrap();
        self.saw(operation, http::read_to_end_of(&operation.method, &mut socket))
    }

    fn ask(&self, id: &str, path: &str, status: u16) -> Answer {
        let answer = self.send(&self.document.operation(id), path, &[], b"", 0);
        assert_eq!(answer.status, status, "{answer:?}");
        answer
    }

    fn give(&self, id: &str, path: &str, body: &Value, status: u16) -> Answer {
        let body = body.to_string();
        let json = [("content-type", "application/json")];
        let answer = self.send(&self.document.operation(id), path, &json, body.as_bytes(), body.len());
        assert_eq!(answer.status, status, "{answer:?}");
        answer
    }

    fn append(&self, id: &str, path: &str, status: u16) {
        let text = [("content-type", "text/plain")];
        let answer = self.send(&self.document.operation(id), path, &text, b"text", 4);
        assert_eq!(answer.status, status, "{answer:?}");
    }

    /// Opens a stream, and reads events until one of that type; a list or a task has none.
    fn watch(&self, id: &str, path: &str, headers: &[(&str, &str)], last: &Value) {
        let operation = self.document.operation(id);
        assert!(operation.is_of(path));
        let mut stream = self.gateway.stream(path, headers);
        assert!(stream.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", stream.head);
        assert!(stream.head.contains("content-type: text/event-stream\r\n"), "{}", stream.head);
        stream.until(|event| {
            let data = event.list();
            self.document.check_event(&operation, &data);
            data.get("type").unwrap_or_default() == last
        });
        self.seen.lock().unwrap().insert((operation.id, 200));
    }

    /// Everything about tasks, of a session or of none.
    fn tasks(&self, prefix: &str, suffix: &str) {
        let all = format!("{prefix}/tasks");
        let id = |name: &str| format!("{name}{suffix}");
        let start = |body: &Value| {
            let task = self.give(&id("startTask"), &all, body, 201).json();
            format!("{all}/{}", task["id"].as_str().unwrap())
        };
        let command = start(&json!({"command": "sleep 60", "env": {"A": "b"}, "cwd": "/", "label": null}));
        let external = start(&json!({"kind": "subagent", "label": "look", "leaseMs": 60_000, "command": null}));
        self.ask(&id("listTasks"), &all, 200);
        self.ask(&id("headTasks"), &all, 200);
        self.ask(&id("getTask"), &command, 200);
        self.give(&id("updateTask"), &external, &json!({"detail": "1 of 2", "status": null}), 200);
        self.append(&id("appendOutput"), &format!("{external}/output"), 204);
        let read = self.ask(&id("readOutput"), &format!("{external}/output?wait=10s"), 200);
        assert_eq!(read.json()["text"], "text");
        self.give(&id("updateTask"), &command, &json!({}), 409);

        // What is wrong with a body is told only where there is something to report on.
        self.all_bodies(&[
            (&id("updateTask"), &external),
            (&id("appendOutput"), &format!("{external}/output")),
            (&id("killTask"), &format!("{command}/kill")),
            (&id("startTask"), &all),
        ]);

        self.give(&id("killTask"), &format!("{command}/kill"), &json!({"reason": "enough"}), 202);
        eventually("it has ended", || self.ask(&id("getTask"), &command, 200).json().get("finishedAt").cloned());
        self.ask(&id("killTask"), &format!("{command}/kill"), 200);
        self.give(&id("updateTask"), &external, &json!({"status": "completed"}), 200);
        self.append(&id("appendOutput"), &format!("{external}/output"), 409);

        let one_more = json!({"kind": "build", "label": "one more"});
        let live: Vec<_> = (0..3).map(|_| start(&one_more)).collect();
        self.give(&id("startTask"), &all, &one_more, 429);
        for task in live {
            self.give(&id("updateTask"), &task, &json!({"status": "failed", "detail": "on purpose"}), 200);
        }
        self.ask(&id("headDone"), &format!("{prefix}/done"), 200);
        let operation = self.document.operation(&id("streamDone"));
        let mut stream = self.gateway.stream(&format!("{prefix}/done"), &[]);
        self.document.check_event(&operation, &stream.list().list());
        self.seen.lock().unwrap().insert((operation.id, 200));
    }

    /// At once, since one that is slow takes its time.
    fn all_bodies(&self, operations: &[(&str, &str)]) {
        thread::scope(|scope| {
            for (id, path) in operations {
                scope.spawn(|| self.bodies(id, path));
            }
        });
    }

    /// Everything that can be wrong with a body.
    fn bodies(&self, id: &str, path: &str) {
        let operation = self.document.operation(id);
        let media_type = operation.takes().unwrap();
        let send = |media_type: &str, body: &[u8], status| {
            let answer = self.send(&operation, path, &[("content-type", media_type)], body, body.len());
            assert_eq!(answer.status, status, "{answer:?}");
        };
        send("text/html", b"{}", 415);
        send(&media_type, b"\xff", 400);
        if media_type == "text/plain" {
            send(&media_type, &vec![b'x'; 262_145], 413);
        } else {
            send(&media_type, &vec![b' '; 65_537], 413);
            send(&media_type, br#"{"nonsense":1}"#, 422);
        }
        let slow = self.send(&operation, path, &[("content-type", &media_type)], b"", 10);
        assert_eq!(slow.status, 408);
    }

    fn terminals(&self, session: &str) {
        let all = format!("/sessions/{session}/terminals");
        let open = |body: &Value| {
            let terminal = self.give("openTerminal", &all, body, 201).json();
            format!("{all}/{}", terminal["id"].as_str().unwrap())
        };
        let shell = open(&json!({"command": "cat", "cwd": "/", "rows": null, "cols": 100}));
        let short = open(&json!({"command": "true", "env": {}}));
        self.ask("listTerminals", &all, 200);
        self.ask("getTerminal", &shell, 200);
        self.give("resizeTerminal", &format!("{shell}/resize"), &json!({"rows": 50, "cols": 100}), 200);
        eventually("it has closed", || {
            (self.ask("getTerminal", &short, 200).json()["status"] == "closed").then_some(())
        });
        self.give("resizeTerminal", &format!("{short}/resize"), &json!({"rows": 50, "cols": 100}), 409);
        let another = open(&json!({"command": "cat"}));
        self.give("openTerminal", &all, &json!({"command": "cat"}), 429);

        self.all_bodies(&[
            ("openTerminal", &all),
            ("sendText", &format!("{shell}/send")),
            ("resizeTerminal", &format!("{shell}/resize")),
        ]);

        let send = format!("{shell}/send");
        let long = json!({"text": "hello", "enter": null, "wait": {"idleMs": 60_000, "timeoutMs": 60_000}});
        self.give("sendText", &send, &long, 201);
        self.give("sendText", &send, &long, 409);
        let tasks = format!("/sessions/{session}/tasks");
        let one_more = json!({"kind": "build", "label": "one more"});
        while self.gateway.control("POST", &tasks, Some(one_more.clone())).status == 201 {}
        self.give("sendText", &format!("{another}/send"), &long, 429);
        self.ask("closeTerminal", &shell, 204);
    }

    /// A session that is just being disposed takes nothing.
    fn disposal(&self) {
        let stays = self.gateway.folder.path().join("stays");
        std::fs::write(&stays, "").unwrap();
        let loops = format!("trap '' TERM; echo set; while [ -e '{}' ]; do sleep 0.1; done", stays.display());
        let stubborn = json!({ "command": loops });
        let task = self.give("startTask", "/sessions/going/tasks", &stubborn, 201).json();
        let path = format!("/sessions/going/tasks/{}", task["id"].as_str().unwrap());
        assert_eq!(self.ask("readOutput", &format!("{path}/output?wait=30s"), 200).json()["text"], "set\n");
        thread::scope(|scope| {
            scope.spawn(|| self.ask("disposeSession", "/sessions/going", 204));
            let status = || self.ask("getTask", &path, 200).json()["status"].clone();
            eventually("it is going", || (status() == "stopping").then_some(()));
            self.give("startTask", "/sessions/going/tasks", &stubborn, 409);
            self.give("openTerminal", "/sessions/going/terminals", &json!({"command": "cat"}), 409);
            std::fs::remove_file(&stays).unwrap();
        });
    }

    /// What is refused whatever is asked for, and names that lead nowhere.
    fn refusals(&self, operation: &Operation, task_of_another: &str, terminal_of_another: &str) {
        let path = operation.path("demo", "bash-999", "term-999");
        let send = |path: &str, headers: &[(&str, &str)]| self.send(operation, path, headers, b"", 0).status;
        let json = [("content-type", "application/json")];
        let body = if operation.id == "sendText" {
            json!({"text": ""}).to_string()
        } else if operation.id == "resizeTerminal" {
            json!({"rows": 1, "cols": 1}).to_string()
        } else {
            json!({}).to_string()
        };
        let find = |path: &str| {
            let takes_json = operation.takes().as_deref() == Some("application/json");
            let (headers, body) = if takes_json { (&json[..], body.as_bytes()) } else { (&[][..], &b""[..]) };
            self.send(operation, path, headers, body, body.len()).status
        };
        assert_eq!(send(&path, &[("origin", "https://page.test")]), 403);
        if operation.template.contains("{session}") {
            assert_eq!(send(&operation.path("%00", "bash-1", "term-1"), &[]), 400);
        }
        if operation.template.contains("{task}") || operation.template.contains("{terminal}") {
            assert_eq!(find(&path), 404);
            assert_eq!(find(&operation.path("demo", task_of_another, terminal_of_another)), 403);
        }
        if operation.statuses().contains(&406) {
            assert_eq!(send(&path, &[("accept", "text/html")]), 406);
            assert_eq!(send(&format!("{path}?heartbeat=loud"), &[]), 422);
        }
        if operation.id.starts_with("readOutput") {
            let path = operation.path("other", task_of_another, "");
            assert_eq!(send(&format!("{path}?wait=long"), &[]), 422);
        }

        let bearer = format!("Bearer {TOKEN}");
        let over_tcp = |headers: &[(&str, &str)]| {
            let mut socket = http::connect(self.gateway.control_address());
            let request = String::from_utf8(http::request(&operation.method, &path, headers, "")).unwrap();
            // A second one counts, and a first one that is given takes the place of the usual one.
            let names = headers.iter().any(|(name, _)| *name == "host");
            let request = if names { request.replacen("host: localhost\r\n", "", 1) } else { request };
            socket.write_all(request.as_bytes()).unwrap();
            self.saw(operation, http::read_to_end_of(&operation.method, &mut socket)).status
        };
        assert_eq!(over_tcp(&[]), 401);
        assert_eq!(over_tcp(&[("authorization", &bearer), ("host", "evil.test")]), 421);
        assert_eq!(over_tcp(&[("authorization", &bearer), ("host", "localhost"), ("host", "localhost")]), 400);
    }
}

#[test]
fn each_operation_answers_what_its_description_says() {
    let flags = ["--max-live-tasks", "3", "--max-terminals", "2", "--request-timeout", "2s", "--grace", "30s"];
    let flags = [&flags[..], &["--control", "127.0.0.1:0"]].concat();
    let gateway = Gateway::with_variables(&flags, &[("TASKLIGHT_CONTROL_TOKEN", TOKEN)]);
    let walk = Walk { document: Document::of(&gateway), gateway: &gateway, seen: Mutex::default() };
    for gateway_wide in ["getDocument", "headDocument", "getHealth", "getReadiness", "getMetrics", "headMetrics"] {
        walk.ask(gateway_wide, &walk.document.operation(gateway_wide).template, 200);
    }
    let other = gateway.run("other", "sleep 60");
    let opened = gateway.control("POST", "/sessions/other/terminals", Some(json!({"command": "cat"}))).json();
    let (task, terminal) = (other["id"].as_str().unwrap(), opened["id"].as_str().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| walk.tasks("/sessions/demo", ""));
        scope.spawn(|| walk.tasks("", "Unowned"));
        scope.spawn(|| walk.terminals("terminals"));
        scope.spawn(|| walk.disposal());
        for operation in walk.document.operations() {
            let walk = &walk;
            scope.spawn(move || walk.refusals(&operation, task, terminal));
        }
    });
    walk.ask("headSessions", "/mux", 200);
    walk.watch("streamSessions", "/mux", &[], &json!("baseline"));
    walk.watch("streamSessions", "/mux?session=other", &[], &json!("session/tasks"));
    thread::scope(|scope| {
        let watched =
            scope.spawn(|| walk.watch("streamSessions", "/mux?session=other", &[], &json!("host/session-removed")));
        gateway.metric_becomes("tasklight_streams{source=\"mux\"}", 1);
        walk.ask("disposeSession", "/sessions/other", 204);
        watched.join().unwrap();
    });
    let resumes = [("accept", "text/event-stream"), ("last-event-id", "1")];
    walk.watch("listTasks", "/sessions/demo/tasks", &resumes, &Value::Null);

    let seen = walk.seen.into_inner().unwrap();
    for operation in walk.document.operations() {
        for status in operation.statuses() {
            let shown = seen.contains(&(operation.id.clone(), status));
            let excused = NOT_SHOWN.iter().any(|(id, not)| *not == status && (id.is_empty() || *id == operation.id));
            assert!(shown || excused, "{} is said to answer {status}, and never did", operation.id);
        }
    }
}

#[test]
fn a_method_that_is_not_described_is_405_and_those_that_are_stand_in_allow() {
    let gateway = Gateway::start();
    let operations = Document::of(&gateway).operations();
    let templates: BTreeSet<_> = operations.iter().map(|operation| &operation.template).collect();
    for template in templates {
        let here = || operations.iter().filter(|operation| operation.template == *template);
        let path = here().next().unwrap().path("demo", "bash-1", "term-1");
        let described: BTreeSet<_> = here().map(|operation| operation.method.as_str()).collect();
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"] {
            if described.contains(method) {
                continue;
            }
            let mut socket = UnixStream::connect(gateway.socket()).unwrap();
            socket.write_all(&http::request(method, &path, &[], "")).unwrap();
            let answer = http::read_to_end_of(method, &mut socket);
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow").unwrap().split(", ").collect::<BTreeSet<_>>(), described, "{path}");
            if method != "HEAD" {
                answer.problem(405);
            }
        }
    }
}

#[test]
fn the_description_is_of_this_version_and_its_examples_are_valid() {
    let gateway = Gateway::start();
    let document = Document::of(&gateway);
    assert_eq!(document.0["openapi"], "3.1.0");
    assert_eq!(document.0["info"]["version"], env!("CARGO_PKG_VERSION"));
    document.check_examples();
    let (streams, others): (Vec<_>, Vec<_>) = document.operations().into_iter().partition(Operation::is_stream);
    assert!(streams.len() == 3 && others.len() > 30, "{} {}", streams.len(), others.len());
}
