//! Processes: how a command's end reads, and that nothing is left of it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Gateway, eventually, sse::Stream, wait};

#[test]
fn an_end_is_told_as_it_was() {
    let gateway = Gateway::start();
    for (id, (command, status, detail)) in [
        ("exit 0", "completed", json!(null)),
        ("exit 3", "failed", json!("exit code: 3")),
        ("no-such-command-anywhere", "failed", json!("exit code: 127")),
        ("kill -SEGV $$", "failed", json!("signal: SIGSEGV")),
        ("kill -KILL $$", "failed", json!("signal: SIGKILL")),
    ]
    .into_iter()
    .enumerate()
    {
        gateway.run("demo", command);
        let task = gateway.ended("demo", &format!("bash-{}", id + 1));
        assert_eq!((&task["status"], &task["detail"]), (&json!(status), &detail), "{command}");
    }
}

#[test]
fn after_a_kill_any_end_is_killed_with_what_happened() {
    let gateway = Gateway::start();
    for (id, (command, detail)) in [
        ("echo up; sleep 60", "signal: SIGTERM"),
        ("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", "exit code: 0"),
        ("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done", "exit code: 7"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("bash-{}", id + 1);
        gateway.run("demo", command);
        gateway.control("GET", &format!("/sessions/demo/tasks/{id}/output?wait=30s"), None);
        gateway.control("POST", &format!("/sessions/demo/tasks/{id}/kill"), None);
        let task = gateway.ended("demo", &id);
        assert_eq!((&task["status"], &task["detail"]), (&json!("killed"), &json!(detail)), "{command}");
    }
}

#[test]
fn a_kill_takes_the_whole_group() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 99.125 & wait");
    eventually("the grandchild runs", || (gateway.children("sleep 99.125").len() > 1).then_some(()));
    gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", None);
    assert_eq!(gateway.ended("demo", "bash-1")["detail"], "signal: SIGTERM");
    gateway.has_none_left("sleep 99.125");
}

#[test]
fn what_ignores_sigterm_gets_sigkill_after_the_grace_leader_or_not() {
    let gateway = Gateway::with(&["--grace", "300ms"]);
    gateway.run("demo", "trap '' TERM; echo up; while :; do sleep 0.0625; done");
    // Here the leader goes at once, and a member that ignores SIGTERM stays.
    gateway.run("demo", "trap 'exit 0' TERM; (trap '' TERM; echo up; while :; do sleep 0.03125; done) & wait");
    for id in ["bash-1", "bash-2"] {
        gateway.control("GET", &format!("/sessions/demo/tasks/{id}/output?wait=30s"), None);
        gateway.control("POST", &format!("/sessions/demo/tasks/{id}/kill"), None);
    }
    assert_eq!(gateway.ended("demo", "bash-1")["detail"], "signal: SIGKILL");
    assert_eq!(gateway.ended("demo", "bash-2")["detail"], "exit code: 0");
    gateway.has_none_left("sleep 0.0625");
    gateway.has_none_left("sleep 0.03125");
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_keep_the_task_live() {
    let gateway = Gateway::start();
    let before = Instant::now();
    gateway.run("demo", "sleep 60.125 & echo x");
    let task = gateway.ended("demo", "bash-1");
    assert_eq!(task["status"], "completed");
    let took = task["finishedAt"].as_u64().unwrap() - task["startedAt"].as_u64().unwrap();
    assert!(took < 1_000 && before.elapsed() < Duration::from_secs(10), "{took} ms");
    let read = gateway.control("GET", "/sessions/demo/tasks/bash-1/output", None).json();
    assert_eq!(read["text"], "x\n");
    assert!(!gateway.children("sleep 60.125").is_empty(), "what was left running is left alone");
    gateway.control("DELETE", "/sessions/demo", None);
    gateway.has_none_left("sleep 60.125");
}

#[test]
fn what_a_command_left_running_can_still_write_and_ends_with_the_gateway() {
    let mut gateway = Gateway::with(&["--grace", "300ms"]);
    // It writes far more than a pipe holds, after the time in which its output is kept.
    gateway.run("demo", "(sleep 0.6; head -c 1000000 /dev/zero; exec sleep 61.125) & echo x");
    gateway.ended("demo", "bash-1");
    eventually("it got through its writes", || (!gateway.children("sleep 61.125").is_empty()).then_some(()));
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    gateway.has_none_left("sleep 61.125");
}

#[test]
fn output_before_the_exit_is_there_when_the_task_has_ended() {
    let gateway = Gateway::start();
    for n in 1..=50 {
        gateway.run("demo", "echo the last words");
        gateway.ended("demo", &format!("bash-{n}"));
        let read = gateway.control("GET", &format!("/sessions/demo/tasks/bash-{n}/output"), None).json();
        assert_eq!(read["text"], "the last words\n");
    }
}

#[test]
fn a_shutdown_ends_children_and_says_so_in_their_rows_while_streams_live() {
    let mut gateway = Gateway::with(&["--grace", "500ms"]);
    let mut stream = Stream::open(gateway.address, "demo");
    gateway.run("demo", "sleep 98.125 & wait");
    gateway.run("demo", "trap '' TERM; echo up; sleep 97.125 & wait; wait");
    gateway.control("GET", "/sessions/demo/tasks/bash-2/output?wait=30s", None);
    gateway.signal("INT");
    let last = stream.until(|event| event.statuses().iter().all(|(_, status)| status == "killed"));
    let details: Vec<_> = last.list().as_array().unwrap().iter().map(|task| task["detail"].clone()).collect();
    assert_eq!(details, ["signal: SIGTERM (gateway shut down)", "signal: SIGKILL (gateway shut down)"]);
    assert_eq!(stream.next(), None, "and then a clean end");
    assert!(gateway.wait().success());
    gateway.has_none_left("sleep 98.125");
    gateway.has_none_left("sleep 97.125");
}

#[test]
fn a_shutdown_is_bounded_and_a_second_signal_ends_it_at_once() {
    let mut gateway = Gateway::with(&["--grace", "1h"]);
    let before = Instant::now();
    gateway.run("demo", "trap '' TERM; echo up; while :; do sleep 0.015625; done");
    gateway.control("GET", "/sessions/demo/tasks/bash-1/output?wait=30s", None);
    gateway.signal("TERM");
    eventually("it drains", || gateway.log().contains("draining").then_some(()));
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(1));
    assert!(before.elapsed() < Duration::from_secs(9), "the drain would have taken 10 s");
    gateway.has_none_left("sleep 0.015625");

    let mut gateway = Gateway::with(&["--grace", "1h", "--drain", "1s"]);
    gateway.run("demo", "trap '' TERM; echo up; while :; do sleep 0.0078125; done");
    gateway.control("GET", "/sessions/demo/tasks/bash-1/output?wait=30s", None);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    gateway.has_none_left("sleep 0.0078125");
}

#[test]
fn sigterm_with_200_streams_open_ends_every_curl_with_0() {
    let mut gateway = Gateway::start();
    gateway.run("demo", "sleep 60");
    let mut curls: Vec<_> = (0..200)
        .map(|n| {
            let mut curl = std::process::Command::new("curl");
            curl.args(["-sN", "--max-time", "60", &gateway.url(if n % 2 == 0 { "demo" } else { "empty" })]);
            curl.stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for curl in &mut curls {
        // Its first byte shows that its stream is open.
        std::io::Read::read_exact(curl.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    }
    gateway.signal("TERM");
    for curl in &mut curls {
        assert_eq!(wait(curl).code(), Some(0));
    }
    assert!(gateway.wait().success());
}
