//! The control API: what it does, and what bad input gets.

use std::{
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    Gateway, PATIENCE, eventually,
    http::{over_unix, request},
};

#[test]
fn a_start_answers_201_with_location_and_the_task() {
    let gateway = Gateway::start();
    let body = json!({"command": "echo $GREETING; pwd", "kind": "bash", "cwd": "/", "env": {"GREETING": "hello"}, "label": "greet"});
    let answer = gateway.control("POST", "/sessions/a%20b/tasks", Some(body));
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("location"), Some("/sessions/a%20b/tasks/bash-1"));
    let task = answer.json();
    assert_eq!((&task["id"], &task["label"], &task["status"]), (&json!("bash-1"), &json!("greet"), &json!("running")));
    assert_eq!(gateway.ended("a%20b", "bash-1")["status"], "completed");
    let read = gateway.control("GET", "/sessions/a%20b/tasks/bash-1/output", None).json();
    assert_eq!(read["text"], "hello\n/\n");
    assert_eq!(gateway.control("GET", answer.header("location").unwrap(), None).json()["status"], "completed");
}

#[test]
fn an_unowned_task_is_in_every_list_and_has_a_path_of_its_own() {
    let gateway = Gateway::start();
    let answer = gateway.control("POST", "/tasks", Some(json!({"command": "sleep 60"})));
    assert_eq!(answer.header("location"), Some("/tasks/bash-1"));
    gateway.run("demo", "sleep 60");
    let ids = |list: &Value| list.as_array().unwrap().iter().map(|task| task["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&gateway.list("demo")), ["bash-1", "bash-2"]);
    assert_eq!(ids(&gateway.list("other")), ["bash-1"]);
    assert_eq!(ids(&gateway.control("GET", "/tasks", None).json()), ["bash-1"]);
    assert_eq!(gateway.control("POST", "/tasks/bash-1/kill", None).status, 202);
}

#[test]
fn a_kill_is_202_and_of_an_ended_task_200() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    let path = "/sessions/demo/tasks/bash-1/kill";
    let killed = gateway.control("POST", path, Some(json!({"reason": "no longer needed"})));
    assert_eq!(killed.status, 202);
    let ended = gateway.ended("demo", "bash-1");
    assert_eq!((&ended["status"], &ended["detail"]), (&json!("killed"), &json!("signal: SIGTERM")));
    let again = gateway.control("POST", path, None);
    assert_eq!((again.status, again.json()), (200, ended));
    assert!(gateway.log().contains("reason=requested: no longer needed"));
}

#[test]
fn output_is_what_is_new_since_the_last_read_and_wait_holds_until_there_is_something() {
    let gateway = Gateway::start();
    gateway.run("demo", "echo one; read -t 0.4 <> <(:); echo two >&2; sleep 60");
    let read = |wait: &str| gateway.control("GET", &format!("/sessions/demo/tasks/bash-1/output{wait}"), None).json();
    assert_eq!(read("?wait=30s")["text"], "one\n");
    let second = read("?wait=30s");
    assert_eq!((&second["text"], &second["task"]["status"]), (&json!("two\n"), &json!("running")));
    assert_eq!(read("")["text"], "");
    assert_eq!(read("?wait=50ms")["text"], "");
    std::thread::scope(|threads| {
        let held = threads.spawn(|| read("?wait=10m"));
        gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", None);
        let held = held.join().unwrap();
        // It may have been asked for before or after the kill: it returns with the end.
        assert_eq!((&held["text"], &held["task"]["status"]), (&json!(""), &json!("killed")));
    });
}

#[test]
fn stdout_and_stderr_stand_in_the_order_of_arrival_and_what_fell_out_is_said() {
    let gateway = Gateway::with(&["--output-tail", "1000"]);
    gateway.run("demo", "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done");
    gateway.ended("demo", "bash-1");
    let read = |id: &str| gateway.control("GET", &format!("/sessions/demo/tasks/{id}/output"), None).json();
    let expected: String = ["1", "2", "3", "4", "5"].iter().flat_map(|i| ["out", i, "\nerr", i, "\n"]).collect();
    assert_eq!(read("bash-1")["text"], expected);
    gateway.run("demo", "head -c 3000 /dev/zero | tr '\\0' x; echo end");
    gateway.ended("demo", "bash-2");
    let text = read("bash-2")["text"].as_str().unwrap().to_owned();
    assert_eq!(text, format!("[2004 bytes of older output are gone]\n{}end\n", "x".repeat(996)));
}

#[test]
fn a_disposal_ends_what_runs_empties_the_list_and_may_be_repeated() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    gateway.run("demo", "true");
    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    assert_eq!(gateway.list("demo"), json!([]));
    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    assert_eq!(gateway.run("demo", "true")["id"], "bash-3");
}

#[test]
fn alive_and_ready_are_told_apart_while_draining() {
    let mut gateway = Gateway::start();
    assert_eq!(gateway.control("GET", "/healthz", None).body, "ok\n");
    assert_eq!(gateway.control("GET", "/readyz", None).body, "ready\n");
    // It takes the grace to end, and for that long the gateway drains.
    gateway.run("demo", "trap '' TERM; echo up; while :; do sleep 0.1; done");
    gateway.control("GET", "/sessions/demo/tasks/bash-1/output?wait=30s", None);
    gateway.signal("TERM");
    eventually("it drains", || (gateway.control("GET", "/readyz", None).status == 503).then_some(()));
    let refused = gateway.control("POST", "/sessions/demo/tasks", Some(json!({"command": "true"})));
    refused.problem(503);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(gateway.control("GET", "/healthz", None).status, 200);
    assert_eq!(gateway.list("demo")[0]["status"], "stopping");
    assert!(gateway.wait().success());
}

/// Asserts that a start is refused with this status and field, and changes nothing.
fn refused(gateway: &Gateway, body: &Value, status: u16, field: &str) -> String {
    let answer = gateway.control("POST", "/sessions/bad/tasks", Some(body.clone()));
    let problem = answer.problem(status);
    assert_eq!(problem["field"], field, "{body} → {problem}");
    assert_eq!(gateway.list("bad"), json!([]));
    problem["detail"].as_str().unwrap().to_owned()
}

#[test]
fn a_bad_field_is_named_with_what_is_allowed_and_changes_nothing() {
    let gateway = Gateway::start();
    let refused = |body, field| refused(&gateway, &body, 422, field);
    refused(json!({}), "command");
    refused(json!({"command": 7}), "command");
    refused(json!({"command": null}), "command");
    refused(json!({"command": " \n"}), "command");
    refused(json!({"command": "a\u{0}b"}), "command");
    let unknown = refused(json!({"command": "true", "comand": "x"}), "comand");
    assert!(unknown.contains("`cwd`"), "{unknown}");
    refused(json!({"command": "true", "kind": ""}), "kind");
    refused(json!({"command": "true", "kind": "Bash"}), "kind");
    refused(json!({"command": "true", "kind": 1}), "kind");
    refused(json!({"command": "true", "label": ""}), "label");
    let long = refused(json!({"command": "true", "label": "x".repeat(4_097)}), "label");
    assert!(long.contains("4096"), "{long}");
    refused(json!({"command": "true", "cwd": "/not/there"}), "cwd");
    refused(json!({"command": "true", "cwd": "/dev/null"}), "cwd");
    refused(json!({"command": "true", "cwd": "relative"}), "cwd");
    refused(json!({"command": "true", "env": {"A=B": "x"}}), "env");
    refused(json!({"command": "true", "env": {"A": "x\u{0}"}}), "env.A");
    refused(json!({"command": "true", "env": {"A": 1}}), "env.A");
    refused(json!(["true"]), "(body)");
    assert_eq!(gateway.run("good", "true")["id"], "bash-1", "no id was used up");
}

#[test]
fn a_command_that_cannot_start_is_told_and_uses_no_id() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let mut serve = crate::support::tasklight();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(&socket).env("PATH", folder.path());
    let mut child = serve.stderr(std::process::Stdio::null()).spawn().unwrap();
    eventually("it serves", || UnixStream::connect(&socket).ok());
    let body = json!({"command": "true"}).to_string();
    let headers = [("content-type", "application/json")];
    let start = request("POST", "/sessions/demo/tasks", &headers, &body);
    let problem = over_unix(&socket, &start).problem(422);
    assert_eq!(problem["field"], "kind");
    assert_eq!(problem["detail"], "bash is not installed where the gateway runs");
    std::os::unix::fs::symlink("/bin/bash", folder.path().join("bash")).unwrap();
    assert_eq!(over_unix(&socket, &start).json()["id"], "bash-1");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_broken_body_is_400_a_wrong_type_415_a_large_one_413() {
    let gateway = Gateway::start();
    let send = |content_type: &str, body: &[u8]| {
        let headers = [("content-type", content_type), ("content-length", &body.len().to_string())];
        let mut bytes = request("PUT", "/", &headers, "");
        let line = b"POST /sessions/demo/tasks HTTP/1.1";
        bytes.splice(..b"PUT / HTTP/1.1".len(), line.iter().copied());
        bytes.extend_from_slice(body);
        over_unix(&gateway.socket(), &bytes)
    };
    for broken in [&b"{"[..], b"", b"{\"command\":\"true\"}}", b"{\"command\":\"\xff\"}", b"nonsense"] {
        send("application/json", broken).problem(400);
    }
    for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        send(other, b"{\"command\":\"true\"}").problem(415);
    }
    let sized = |size: usize| {
        let frame = r#"{"command":"true #"}"#.len();
        format!(r#"{{"command":"true #{}"}}"#, "x".repeat(size - frame)).into_bytes()
    };
    assert_eq!(send("application/json", &sized(64 * 1024 + 1)).problem(413)["detail"], "the body may have 65536 bytes");
    assert_eq!(gateway.list("demo"), json!([]));
    assert_eq!(send("Application/JSON; charset=utf-8", &sized(64 * 1024)).status, 201);
    let label = gateway.list("demo")[0]["label"].as_str().unwrap().to_owned();
    assert!(label.len() <= 4_096 && label.ends_with('…'), "the command is longer than a label");
}

#[test]
fn unknown_tasks_are_404_and_those_of_another_session_403() {
    let gateway = Gateway::start();
    gateway.run("mine", "sleep 60");
    for (method, rest) in [("GET", ""), ("POST", "/kill"), ("GET", "/output")] {
        for unknown in ["bash-2", "bash-0", "nonsense", "%20"] {
            gateway.control(method, &format!("/sessions/mine/tasks/{unknown}{rest}"), None).problem(404);
        }
        let other = gateway.control(method, &format!("/sessions/yours/tasks/bash-1{rest}"), None);
        assert_eq!(other.problem(403)["detail"], "task bash-1 belongs to another session");
        gateway.control(method, &format!("/tasks/bash-1{rest}"), None).problem(403);
    }
    assert_eq!(gateway.list("mine")[0]["status"], "running");
}

#[test]
fn one_over_the_admission_limit_is_429_and_names_the_limit() {
    let gateway = Gateway::start();
    for _ in 0..10 {
        gateway.run("full", "sleep 60");
    }
    let answer = gateway.control("POST", "/sessions/full/tasks", Some(json!({"command": "true"})));
    assert!(answer.problem(429)["detail"].as_str().unwrap().starts_with("full has 10 live tasks"));
    assert!(answer.header("retry-after").is_some());
    gateway.control("POST", "/sessions/full/tasks/bash-1/kill", None);
    gateway.ended("full", "bash-1");
    assert_eq!(gateway.run("full", "true")["id"], "bash-11", "the refused start used no id");
}

#[test]
fn bad_paths_methods_and_waits_are_told() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    for bad in ["/sessions/a%2Fb/tasks", "/sessions/%FF/tasks", "/sessions/%00"] {
        gateway.control("GET", bad, None).problem(400);
    }
    for (method, path, allow) in [
        ("PUT", "/sessions/demo/tasks", "GET, HEAD, POST"),
        ("DELETE", "/sessions/demo/tasks/bash-1", "GET, PATCH"),
        ("GET", "/sessions/demo/tasks/bash-1/kill", "POST"),
        ("DELETE", "/sessions/demo/tasks/bash-1/output", "GET, POST"),
        ("GET", "/sessions/demo", "DELETE"),
        ("POST", "/healthz", "GET"),
    ] {
        let answer = gateway.control(method, path, None);
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
    }
    for wait in ["soon", "-1s", "11m", "30"] {
        let answer = gateway.control("GET", &format!("/sessions/demo/tasks/bash-1/output?wait={wait}"), None);
        assert_eq!(answer.problem(422)["field"], "wait", "{wait}");
    }
    gateway.control("GET", "/nothing", None).problem(404);
    let unknown = gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", Some(json!({"why": "x"})));
    assert_eq!(unknown.problem(422)["field"], "why");
    assert_eq!(gateway.list("demo")[0]["status"], "running");
}

#[test]
fn half_a_request_is_closed_or_told_to_hurry() {
    let gateway = Gateway::with(&["--request-timeout", "300ms"]);
    let mut half_head = UnixStream::connect(gateway.socket()).unwrap();
    half_head.set_read_timeout(Some(PATIENCE)).unwrap();
    half_head.write_all(b"POST /tasks HTTP/1.1\r\nhost: x\r\ncont").unwrap();
    assert_eq!(half_head.read(&mut [0; 100]).unwrap(), 0);
    let head = "POST /tasks HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 20\r\nconnection: close\r\n\r\n{";
    over_unix(&gateway.socket(), head.as_bytes()).problem(408);
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_gateway() {
    let mut gateway = Gateway::start();
    let mode = std::fs::metadata(gateway.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(!gateway.socket().exists());
}

#[test]
fn a_dead_gateways_socket_is_replaced_and_a_live_ones_is_not() {
    let mut gateway = Gateway::start();
    let serve = || {
        let mut command = crate::support::tasklight();
        command.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(gateway.socket());
        command.output().unwrap()
    };
    let refused = serve();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(message.contains("a gateway is already running at"), "{message}");
    assert_eq!(gateway.control("GET", "/healthz", None).status, 200, "the live one goes on");

    gateway.signal("KILL");
    gateway.wait();
    assert!(gateway.socket().exists(), "it had no time to tidy up");
    let mut next = crate::support::tasklight();
    next.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(gateway.socket());
    let mut next = next.stderr(std::process::Stdio::null()).spawn().unwrap();
    eventually("the next one answers", || {
        UnixStream::connect(gateway.socket()).ok().map(drop)?;
        (gateway.control("GET", "/healthz", None).status == 200).then_some(())
    });
    next.kill().unwrap();
    next.wait().unwrap();

    std::fs::remove_file(gateway.socket()).unwrap();
    std::fs::write(gateway.socket(), "mine").unwrap();
    let mut command = crate::support::tasklight();
    let refused =
        command.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(gateway.socket()).output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("is there and is not a socket"), "{message}");
    assert_eq!(std::fs::read_to_string(gateway.socket()).unwrap(), "mine");
}

#[test]
fn a_held_read_does_not_hold_the_shutdown() {
    let mut gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    std::thread::scope(|threads| {
        let held = threads.spawn(|| gateway.control("GET", "/sessions/demo/tasks/bash-1/output?wait=10m", None));
        std::thread::sleep(Duration::from_millis(100));
        gateway.signal("TERM");
        assert_eq!(held.join().unwrap().json()["task"]["detail"], "signal: SIGTERM (gateway shut down)");
    });
    assert!(gateway.wait().success());
}
