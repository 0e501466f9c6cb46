//! External tasks: somebody else works, and reports by the control API.
//!
//! Answers the kind of report in kestra-io/kestra#6331 (a task runs for hours after its worker died).

use std::{
    io::Write,
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tasklight::clock::Clock;

use crate::support::{
    Gateway, eventually,
    http::{over_unix, request},
    sse::Stream,
};

const TASKS: &str = "/sessions/demo/tasks";

/// Registers a subagent and returns its path.
fn register(gateway: &Gateway, lease_ms: Option<u64>) -> String {
    let mut body = json!({"kind": "subagent", "label": "review"});
    if let Some(lease_ms) = lease_ms {
        body["leaseMs"] = lease_ms.into();
    }
    let answer = gateway.control("POST", TASKS, Some(body));
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.header("location").unwrap().to_owned()
}

fn patch(gateway: &Gateway, path: &str, body: &Value) -> Value {
    let answer = gateway.control("PATCH", path, Some(body.clone()));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn stands(task: &Value) -> (&str, Option<&str>) {
    (task["status"].as_str().unwrap(), task["detail"].as_str())
}

#[test]
fn a_producer_registers_reports_and_ends_its_task_and_the_stream_shows_each_step() {
    let gateway = Gateway::start();
    let mut stream = Stream::open(gateway.address, "demo");
    let path = register(&gateway, None);
    assert_eq!(path, "/sessions/demo/tasks/subagent-1");
    let mut shown = |status: &str, detail: Option<&str>, label: &str| {
        stream.until(|event| {
            let task = &event.list()[0];
            stands(task) == (status, detail) && task["label"] == label
        })
    };
    shown("running", None, "review");
    patch(&gateway, &path, &json!({"detail": "reads 3 files"}));
    shown("running", Some("reads 3 files"), "review");
    patch(&gateway, &path, &json!({"label": "review the parser", "status": "running"}));
    shown("running", Some("reads 3 files"), "review the parser");
    let ended = patch(&gateway, &path, &json!({"status": "completed", "detail": "2 remarks"}));
    assert_eq!(stands(&ended), ("completed", Some("2 remarks")));
    assert!(ended["finishedAt"].as_u64() >= ended["startedAt"].as_u64());
    shown("completed", Some("2 remarks"), "review the parser");

    for body in [json!({}), json!({"status": "failed"}), json!({"detail": "late"})] {
        let late = gateway.control("PATCH", &path, Some(body));
        assert_eq!(late.problem(409)["type"], "urn:tasklight:problem:already-finished");
        assert_eq!(late.header("retry-after"), None);
    }
    gateway.append(&path, "late").problem(409);
    assert_eq!(gateway.control("POST", &format!("{path}/kill"), None).status, 200);
    assert_eq!(gateway.control("GET", &path, None).json(), ended);
}

#[test]
fn each_terminal_status_can_be_reported_and_progress_gives_way_to_the_end() {
    let gateway = Gateway::start();
    for status in ["completed", "killed", "failed"] {
        let path = register(&gateway, None);
        patch(&gateway, &path, &json!({"detail": "step 1"}));
        assert_eq!(stands(&patch(&gateway, &path, &json!({"status": status}))), (status, None));
    }
}

#[test]
fn a_kill_is_seen_as_stopping_and_only_an_end_undoes_it() {
    let gateway = Gateway::start();
    let path = register(&gateway, None);
    let mut stream = Stream::open(gateway.address, "demo");
    let killed = gateway.control("POST", &format!("{path}/kill"), None);
    assert_eq!((killed.status, stands(&killed.json())), (202, ("stopping", None)));
    stream.until(|event| event.statuses() == [("subagent-1".into(), "stopping".into())]);
    assert_eq!(stands(&patch(&gateway, &path, &json!({"status": "running"}))), ("stopping", None));
    assert_eq!(gateway.control("POST", &format!("{path}/kill"), None).status, 202, "it may be asked again");
    patch(&gateway, &path, &json!({"status": "killed", "detail": "signal: SIGTERM"}));
    stream.until(|event| event.statuses() == [("subagent-1".into(), "killed".into())]);
}

#[test]
fn output_is_appended_as_text_read_by_the_same_cursor_and_bounded() {
    let gateway = Gateway::start();
    let path = register(&gateway, None);
    let read = || gateway.control("GET", &format!("{path}/output"), None).json()["text"].clone();
    assert_eq!(gateway.append(&path, "one 🦀\n").status, 204);
    assert_eq!(gateway.append(&path, "two\n").status, 204);
    assert_eq!(read(), "one 🦀\ntwo\n");
    assert_eq!(gateway.append(&path, "").status, 204);
    assert_eq!(read(), "");

    let send = |content_type: &str, body: &[u8]| {
        let headers = [("content-type", content_type), ("content-length", &body.len().to_string())];
        let mut bytes = request("PUT", &format!("{path}/output"), &headers, "");
        bytes.splice(..3, *b"POST");
        // `request` adds a length of its own to a POST; this one was a PUT.
        bytes.extend_from_slice(body);
        over_unix(&gateway.socket(), &bytes)
    };
    send("text/plain", b"half a crab: \xf0\x9f").problem(400);
    for other in ["application/json", "text/html", "text/plain; charset=latin1"] {
        assert_eq!(send(other, b"x").problem(415)["type"], "urn:tasklight:problem:not-text");
    }
    let large = vec![b'x'; 256 * 1024];
    assert_eq!(send("text/plain", &large).status, 204);
    assert_eq!(
        send("text/plain", &[&large[..], b"x"].concat()).problem(413)["detail"],
        "the body may have 262144 bytes"
    );
    assert_eq!(read().as_str().unwrap().len(), large.len());

    std::thread::scope(|threads| {
        let held = threads.spawn(|| gateway.control("GET", &format!("{path}/output?wait=10m"), None).json());
        gateway.append(&path, "news");
        assert_eq!(held.join().unwrap()["text"], "news");
    });
}

#[test]
fn a_bad_registration_or_report_names_its_field_and_changes_nothing() {
    let gateway = Gateway::start();
    let refused = |body: Value, field: &str| {
        let problem = gateway.control("POST", TASKS, Some(body.clone())).problem(422);
        assert_eq!(problem["field"], field, "{body} → {problem}");
    };
    refused(json!({"label": "x"}), "kind");
    refused(json!({"kind": "build"}), "label");
    refused(json!({"kind": "Build", "label": "x"}), "kind");
    refused(json!({"kind": "build", "label": " "}), "label");
    refused(json!({"kind": "build", "label": "x", "cwd": "/"}), "cwd");
    refused(json!({"kind": "build", "label": "x", "env": {}}), "env");
    for lease in [json!(999), json!(86_400_001), json!(-1), json!(1_000.5), json!("2s")] {
        refused(json!({"kind": "build", "label": "x", "leaseMs": lease}), "leaseMs");
    }
    refused(json!({"command": "true", "leaseMs": 1_000}), "leaseMs");
    refused(json!({"kind": "build", "label": "x", "lease": 1_000}), "lease");
    assert_eq!(gateway.list("demo"), json!([]));
    let written_otherwise = json!({"kind": "task", "label": "x", "leaseMs": 60_000.0});
    assert_eq!(gateway.control("POST", "/tasks", Some(written_otherwise)).status, 201, "it is 60000");

    let path = register(&gateway, Some(86_400_000));
    for (body, field) in [
        (json!({"status": "stopping"}), "status"),
        (json!({"status": "done"}), "status"),
        (json!({"detail": "x".repeat(4_097)}), "detail"),
        (json!({"label": ""}), "label"),
        (json!({"leaseMs": 1_000}), "leaseMs"),
        (json!({"status": "completed", "label": 7}), "label"),
    ] {
        assert_eq!(gateway.control("PATCH", &path, Some(body)).problem(422)["field"], field);
    }
    let task = gateway.control("GET", &path, None).json();
    assert_eq!((stands(&task), &task["label"]), (("running", None), &json!("review")));
    let longest = "é".repeat(2_048);
    assert_eq!(patch(&gateway, &path, &json!({"detail": longest}))["detail"], longest);
}

#[test]
fn only_a_tasks_own_producer_reports_on_it() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    register(&gateway, None);
    for (path, status) in [
        ("/sessions/demo/tasks/bash-1", 409),
        ("/sessions/other/tasks/subagent-1", 403),
        ("/tasks/subagent-1", 403),
        ("/sessions/demo/tasks/subagent-2", 404),
    ] {
        gateway.control("PATCH", path, Some(json!({"status": "completed"}))).problem(status);
        gateway.append(path, "x").problem(status);
    }
    let gateways_own = gateway.control("PATCH", "/sessions/demo/tasks/bash-1", Some(json!({})));
    assert_eq!(gateways_own.problem(409)["type"], "urn:tasklight:problem:not-external");
    let statuses: Vec<_> = gateway.list("demo").as_array().unwrap().iter().map(|task| task["status"].clone()).collect();
    assert_eq!(statuses, ["running", "running"]);
}

#[test]
fn external_tasks_count_for_admission_with_the_others() {
    let gateway = Gateway::with(&["--max-live-tasks", "2"]);
    gateway.run("demo", "sleep 60");
    let path = register(&gateway, None);
    let one_more = json!({"kind": "subagent", "label": "review"});
    gateway.control("POST", TASKS, Some(one_more)).problem(429);
    patch(&gateway, &path, &json!({"status": "completed"}));
    register(&gateway, None);
}

#[test]
fn a_live_producer_keeps_its_task_and_a_killed_one_loses_it_within_three_seconds() {
    let gateway = Gateway::start();
    let path = register(&gateway, Some(2_000));
    let script = r#"
        for i in {1..1000}; do
            curl -s --unix-socket "$SOCKET" -X PATCH -H 'content-type: application/json' \
                -d "{\"detail\":\"step $i\"}" "http://gateway$TASK" >/dev/null
            sleep 0.3
        done"#;
    let mut producer = Command::new("bash")
        .args(["-c", script])
        .envs([("SOCKET", gateway.socket().into_os_string()), ("TASK", path.clone().into())])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = Stream::open(gateway.address, "demo");
    stream.until(|event| stands(&event.list()[0]) == ("running", Some("step 10")));
    producer.kill().unwrap();
    let killed_at = Clock::system().now();
    producer.wait().unwrap();
    let ended = stream.until(|event| event.list()[0]["finishedAt"].is_u64()).list()[0].clone();
    assert_eq!(stands(&ended), ("failed", Some("no word from its producer for 2 s")));
    let took = ended["finishedAt"].as_u64().unwrap().saturating_sub(killed_at.0);
    assert!(took < 3_000, "{took} ms");
}

#[test]
fn a_gateway_that_was_held_up_still_hears_who_spoke_meanwhile() {
    let gateway = Gateway::start();
    let path = register(&gateway, Some(1_000));
    gateway.signal("STOP");
    std::thread::scope(|threads| {
        let word = threads.spawn(|| patch(&gateway, &path, &json!({"detail": "still here"})));
        std::thread::sleep(Duration::from_millis(1_600));
        gateway.signal("CONT");
        assert_eq!(stands(&word.join().unwrap()), ("running", Some("still here")));
    });
    assert_eq!(stands(&gateway.list("demo")[0]).0, "running");
}

#[test]
fn a_word_that_arrives_slowly_keeps_the_task() {
    let gateway = Gateway::start();
    let path = register(&gateway, Some(1_000));
    let mut slow = UnixStream::connect(gateway.socket()).unwrap();
    let head =
        format!("POST {path}/output HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\n");
    slow.write_all(head.as_bytes()).unwrap();
    for byte in b"slow\n" {
        std::thread::sleep(Duration::from_millis(500));
        slow.write_all(&[*byte]).unwrap();
    }
    let read = gateway.control("GET", &format!("{path}/output?wait=30s"), None).json();
    assert_eq!((&read["text"], &read["task"]["status"]), (&json!("slow\n"), &json!("running")));
}

#[test]
fn a_shutdown_ends_the_row_at_once_says_so_and_never_asks_the_producer_to_stop() {
    let mut gateway = Gateway::start();
    register(&gateway, None);
    let mut stream = Stream::open(gateway.address, "demo");
    assert_eq!(stream.list().statuses(), [("subagent-1".into(), "running".into())]);
    let began = Instant::now();
    gateway.signal("TERM");
    assert_eq!(stands(&stream.list().list()[0]), ("killed", Some("gateway shut down")));
    assert!(gateway.wait().success());
    assert!(began.elapsed() < Duration::from_secs(5), "it held the drain up: {:?}", began.elapsed());
}

#[test]
fn a_disposal_shows_stopping_and_awaits_the_producers_last_word() {
    let gateway = Gateway::with(&["--grace", "20s"]);
    let path = register(&gateway, Some(60_000));
    let mut stream = Stream::open(gateway.address, "demo");
    std::thread::scope(|threads| {
        let disposal = threads.spawn(|| gateway.control("DELETE", "/sessions/demo", None).status);
        stream.until(|event| event.statuses() == [("subagent-1".into(), "stopping".into())]);
        patch(&gateway, &path, &json!({"status": "killed", "detail": "cleaned up"}));
        assert_eq!(disposal.join().unwrap(), 204);
    });
    stream.until(|event| event.list() == json!([]));
    gateway.control("PATCH", &path, Some(json!({}))).problem(404);
    eventually("the log tells", || gateway.log().contains("cleaned up").then_some(()));
}
