//! Terminals: what is typed arrives, what is put out is shown, and each send ends as it should.

use serde_json::json;

use crate::support::{
    Gateway,
    terminal::{BASH, Terminal},
};

#[test]
fn a_text_is_typed_and_what_comes_of_it_is_its_tasks_output() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", BASH);
    assert_eq!(terminal.view(), json!({ "id": "term-1", "command": BASH, "rows": 24, "cols": 80, "status": "open" }));
    let sent = terminal.send(json!({ "text": "echo $((40 + 2))", "wait": { "idleMs": 1_000 } }));
    assert_eq!(sent.task["id"], "pty-1");
    assert_eq!(sent.task["kind"], "pty");
    assert_eq!(sent.task["label"], "term-1: echo $((40 + 2))");
    assert_eq!(sent.end(), ("completed", "wait: idle"));
    terminal.type_until("echo $((40 + 3))", "43");
    let list = gateway.control("GET", "/sessions/demo/terminals", None).json();
    assert_eq!(list, json!([terminal.view()]));
}

#[test]
fn a_program_has_a_terminal_of_its_own_with_colours_and_the_right_size() {
    let gateway = Gateway::with_variables(&[], &[("COLUMNS", "7"), ("LINES", "7"), ("TERM", "dumb")]);
    let body = json!({ "command": BASH, "rows": 30, "cols": 100, "env": { "GREETING": "hi" }, "cwd": "/" });
    let terminal = Terminal::with(&gateway, "demo", body);
    terminal.type_until("stty size", "30 100");
    terminal.type_until("echo $GREETING-$TERM-$PWD-", "hi-xterm-256color-/-");
    // It is the controlling terminal, or this could not be opened.
    terminal.type_until("echo its own: $((6 * 7)) > /dev/tty", "its own: 42");
    terminal.type_until(r"printf '\033[31mred\033[0m\n'", "\u{1b}[31mred\u{1b}[0m");

    let resized = terminal.ask("POST", "/resize", Some(json!({ "rows": 1, "cols": 1_000 })));
    assert_eq!((resized.status, &resized.json()["cols"]), (200, &json!(1_000)));
    terminal.type_until("stty size", "1 1000");
}

#[test]
fn a_program_is_told_of_a_new_size_at_once() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done");
    terminal.hear("ready");
    assert_eq!(terminal.ask("POST", "/resize", Some(json!({ "rows": 41, "cols": 142 }))).status, 200);
    terminal.hear("41 142");
}

#[test]
fn a_text_is_typed_byte_for_byte_and_enter_is_a_carriage_return() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "stty raw -echo; echo ready; head -c 6 | od -An -tx1");
    terminal.hear("ready");
    terminal.send(json!({ "text": "a\u{3}", "enter": false, "wait": { "idleMs": 10 } }));
    let sent = terminal.send(json!({ "text": "\né" }));
    assert!(sent.text.contains("61 03 0a c3 a9 0d"), "{sent:?}");
    assert_eq!(sent.task["label"], "term-1: \\né");
    assert_eq!(sent.end(), ("completed", "session exited: exit code: 0"));
}

#[test]
fn a_send_ends_with_the_terminals_process() {
    let gateway = Gateway::start();
    for (line, end) in [
        ("exit 0", ("completed", "session exited: exit code: 0")),
        ("exit 3", ("failed", "session exited: exit code: 3")),
        ("kill -9 $$", ("failed", "session exited: signal: SIGKILL")),
    ] {
        let terminal = Terminal::open(&gateway, "demo", BASH);
        terminal.type_until("echo $((1 + 1))-ready", "2-ready");
        assert_eq!(terminal.send(json!({ "text": line })).end(), end);
        let view = terminal.view();
        let how = end.1.strip_prefix("session exited: ").unwrap();
        assert_eq!((&view["status"], &view["detail"]), (&json!("closed"), &json!(how)));
        let problem = terminal.ask("POST", "/send", Some(json!({ "text": "echo" }))).problem(409);
        assert!(problem["detail"].as_str().unwrap().contains(how), "{problem}");
        terminal.ask("POST", "/resize", Some(json!({ "rows": 1, "cols": 1 }))).problem(409);
        assert_eq!(terminal.ask("DELETE", "", None).status, 204);
        terminal.ask("GET", "", None).problem(404);
    }
}

#[test]
fn at_the_timeout_the_wait_is_over_and_the_next_send_goes_on_where_it_ended() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "while :; do echo tick-$((++i)); sleep 0.005; done");
    let mut all = String::new();
    for _ in 0..3 {
        let sent = terminal.send(json!({ "text": "", "enter": false, "wait": { "timeoutMs": 300 } }));
        assert_eq!(sent.end(), ("completed", "wait: timeout"));
        all.push_str(&sent.text);
    }
    all.push_str(&terminal.hear("tick-"));
    // Each line once, in order; the last one may not be whole.
    let whole = all.rsplit_once("\r\n").unwrap().0;
    for (at, line) in whole.split("\r\n").enumerate() {
        assert_eq!(line, format!("tick-{}", at + 1), "{all:?}");
    }
}

#[test]
fn what_is_typed_for_a_password_is_not_in_the_label() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "read -rsp password: word; echo; echo got ${#word}");
    terminal.hear("password:");
    let sent = terminal.send(json!({ "text": "hunter2" }));
    assert_eq!(sent.task["label"], "term-1: (not shown)");
    assert!(sent.text.contains("got 7") && !sent.text.contains("hunter2"), "{sent:?}");
}

#[test]
fn a_send_that_is_not_admitted_leaves_the_terminal_free() {
    let gateway = Gateway::with(&["--max-live-tasks", "1"]);
    let terminal = Terminal::open(&gateway, "demo", "cat");
    let task = gateway.run("demo", "sleep 1000");
    terminal.ask("POST", "/send", Some(json!({ "text": "a" }))).problem(429);
    terminal.kill(&task);
    gateway.ended("demo", "bash-1");
    let sent = terminal.send(json!({ "text": "b", "wait": { "idleMs": 200 } }));
    assert_eq!(sent.end(), ("completed", "wait: idle"));
    assert!(!sent.text.contains('a'), "nothing was typed before: {sent:?}");
}

#[test]
fn output_between_two_sends_is_the_beginning_of_the_next_ones() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "read -r; echo one; read -r; echo two; read -r");
    let mut all = terminal.send(json!({ "text": "a", "wait": { "idleMs": 10 } })).text;
    all.push_str(&terminal.send(json!({ "text": "b", "wait": { "idleMs": 10 } })).text);
    if !all.contains("two") {
        all.push_str(&terminal.hear("two"));
    }
    let words: Vec<_> = all.split_whitespace().filter(|word| word.len() == 3).collect();
    assert_eq!(words, ["one", "two"], "{all:?}");
}

#[test]
fn the_last_output_of_a_process_that_ended_meanwhile_can_still_be_read() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "echo last words; exit 4");
    crate::support::eventually("it closes", || (terminal.view()["status"] == "closed").then_some(()));
    let sent = terminal.send(json!({ "text": "too late" }));
    assert_eq!(sent.text, "last words\r\n");
    assert_eq!(sent.end(), ("failed", "session exited: exit code: 4"));
    terminal.ask("POST", "/send", Some(json!({ "text": "" }))).problem(409);
}

#[test]
fn a_kill_is_ctrl_c_and_the_terminal_stays_usable() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", BASH);
    let task = terminal.start(json!({ "text": "while :; do echo on-$((1 + 1)); sleep 0.05; done" }));
    terminal.read_until(&task, "on-2\r\non-2");
    assert_eq!(terminal.view()["task"], task["id"]);
    let problem = terminal.ask("POST", "/send", Some(json!({ "text": "x" }))).problem(409);
    assert!(problem["detail"].as_str().unwrap().starts_with("pty-1 is still being sent to term-1"), "{problem}");

    terminal.kill(&task);
    let killed = terminal.ended(&task);
    // A job that is just being forked may swallow Ctrl-C, in any terminal; then it takes more.
    assert!(matches!(killed.end(), ("killed", "Ctrl-C" | "Ctrl-C, then SIGKILL")), "{killed:?}");
    assert_eq!(terminal.view().get("task"), None);
    let after = terminal.type_until("echo back-$((1 + 1))", "back-2");
    assert!(!after.contains("on-2"), "{after:?}");
}

#[test]
fn a_job_that_does_not_heed_ctrl_c_is_killed_after_the_grace_and_the_shell_is_not() {
    let gateway = Gateway::with(&["--grace", "300ms"]);
    let terminal = Terminal::open(&gateway, "demo", BASH);
    let task = terminal.start(json!({ "text": "(trap '' INT; echo deaf-$((1 + 1)); while :; do sleep 1; done)" }));
    terminal.read_until(&task, "deaf-2");
    terminal.kill(&task);
    assert_eq!(terminal.ended(&task).end(), ("killed", "Ctrl-C, then SIGKILL"));
    terminal.type_until("echo back-$((1 + 1))", "back-2");
}

#[test]
fn a_text_that_nothing_reads_is_not_called_sent_and_can_be_interrupted() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "stty raw -echo; echo ready; exec sleep 1000");
    terminal.hear("ready");
    let long = "x".repeat(60_000);
    let sent = terminal.send(json!({ "text": &long, "wait": { "idleMs": 10, "timeoutMs": 300 } }));
    assert_eq!(sent.task["status"], "failed");
    assert!(sent.end().1.starts_with("wait: timeout ("), "{:?}", sent.end());
    assert_eq!(sent.task["label"].as_str().unwrap().len(), 4_096);

    let task = terminal.start(json!({ "text": long }));
    terminal.kill(&task);
    assert_eq!(terminal.ended(&task).end(), ("killed", "session exited: signal: SIGINT"));
}

#[test]
fn without_a_command_the_users_shell_runs() {
    let shell = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|shell| std::path::Path::new(shell).exists()).unwrap();
    let gateway = Gateway::with_variables(&[], &[("SHELL", shell)]);
    let answer = gateway.control("POST", "/sessions/demo/terminals", None);
    assert_eq!((answer.status, &answer.json()["command"]), (201, &json!(shell)));
    let gateway = Gateway::with_variables(&[], &[("SHELL", "/nowhere/sh")]);
    let problem = gateway.control("POST", "/sessions/demo/terminals", None).problem(422);
    assert_eq!(problem["field"], "command");
    assert_eq!(gateway.control("GET", "/sessions/demo/terminals", None).json(), json!([]));
}

#[test]
fn what_cannot_be_done_is_refused_and_the_field_is_named() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "sleep 1000");
    let terminals = "/sessions/demo/terminals";
    let send = format!("{terminals}/{}/send", terminal.id);
    let resize = format!("{terminals}/{}/resize", terminal.id);
    for (path, body, field) in [
        (terminals, json!({ "command": " " }), "command"),
        (terminals, json!({ "command": "a\0" }), "command"),
        (terminals, json!({ "command": 7 }), "command"),
        (terminals, json!({ "rows": 0 }), "rows"),
        (terminals, json!({ "cols": 1_001 }), "cols"),
        (terminals, json!({ "cols": -1 }), "cols"),
        (terminals, json!({ "cwd": "here" }), "cwd"),
        (terminals, json!({ "cwd": "/nowhere" }), "cwd"),
        (terminals, json!({ "env": { "A=": "" } }), "env"),
        (terminals, json!({ "env": { "A": "\0" } }), "env.A"),
        (terminals, json!({ "command": "true", "env": { "PATH": "/nowhere" } }), "env.PATH"),
        (terminals, json!({ "size": 1 }), "size"),
        (&send, json!({}), "text"),
        (&send, json!({ "text": "a", "enter": "yes" }), "enter"),
        (&send, json!({ "text": "a", "wait": { "idleMs": 9 } }), "wait.idleMs"),
        (&send, json!({ "text": "a", "wait": { "idleMs": 3_600_001 } }), "wait.idleMs"),
        (&send, json!({ "text": "a", "wait": { "timeoutMs": 86_400_001 } }), "wait.timeoutMs"),
        (&send, json!({ "text": "a", "wait": { "timeoutMs": 0.5 } }), "wait.timeoutMs"),
        (&send, json!({ "text": "a", "wait": { "idle": 9 } }), "idle"),
        (&resize, json!({ "rows": 10 }), "cols"),
        (&resize, json!({ "rows": 0, "cols": 10 }), "rows"),
        (&resize, json!({ "rows": 1, "cols": 1, "x": 1 }), "x"),
    ] {
        let problem = gateway.control("POST", path, Some(body.clone())).problem(422);
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    assert_eq!(gateway.list("demo"), json!([]));
    assert_eq!(gateway.control("GET", terminals, None).json(), json!([terminal.view()]));
    let allowed = |path: &str| gateway.control("PUT", path, None).header("allow").unwrap().to_owned();
    assert_eq!(allowed(terminals), "GET, POST");
    assert_eq!(allowed(&format!("{terminals}/{}", terminal.id)), "GET, DELETE");
    assert_eq!((allowed(&send), allowed(&resize)), ("POST".to_owned(), "POST".to_owned()));
}

#[test]
fn a_terminal_belongs_to_its_session_alone() {
    let gateway = Gateway::start();
    let terminal = Terminal::open(&gateway, "demo", "sleep 1000");
    for (id, status) in [(terminal.id.as_str(), 403), ("term-99", 404), ("term-0", 404), ("bash-1", 404)] {
        let path = format!("/sessions/other/terminals/{id}");
        gateway.control("GET", &path, None).problem(status);
        gateway.control("DELETE", &path, None).problem(status);
        gateway.control("POST", &format!("{path}/send"), Some(json!({ "text": "" }))).problem(status);
        gateway.control("POST", &format!("{path}/resize"), Some(json!({ "rows": 1, "cols": 1 }))).problem(status);
    }
    assert_eq!(gateway.control("GET", "/sessions/other/terminals", None).json(), json!([]));
    assert_eq!(terminal.view()["status"], "open");
}
