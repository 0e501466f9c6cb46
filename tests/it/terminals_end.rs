//! The end of terminals: nothing stays behind, whatever ended them.

use std::thread;

use serde_json::{Value, json};

use crate::support::{
    Gateway, eventually,
    terminal::{BASH, Terminal},
};

/// A terminal in which a job runs in the foreground, one in the background, and one that ignores
/// SIGHUP; and the task of the send that started them.
fn busy<'a>(gateway: &'a Gateway, session: &'a str, mark: &str) -> (Terminal<'a>, Value) {
    let terminal = Terminal::open(gateway, session, BASH);
    let line = format!("sleep {mark}1 & nohup sleep {mark}2 >/dev/null & sleep {mark}3");
    let task = terminal.start(json!({ "text": line }));
    eventually("all three run", || {
        let all = ["1", "2", "3"].iter().all(|job| !gateway.children(&format!("sleep {mark}{job}")).is_empty());
        all.then_some(())
    });
    (terminal, task)
}

#[test]
fn a_closed_terminal_leaves_no_process() {
    let (gateway, mark) = (Gateway::start(), "917");
    let (terminal, task) = busy(&gateway, "demo", mark);
    assert_eq!(terminal.ask("DELETE", "", None).status, 204);
    assert_eq!(gateway.children(&format!("sleep {mark}")), [""; 0]);
    assert_eq!(terminal.ended(&task).end(), ("killed", "session exited: signal: SIGHUP"));
    terminal.ask("GET", "", None).problem(404);
}

#[test]
fn what_ignores_every_request_is_killed_after_the_grace() {
    let (gateway, mark) = (Gateway::with(&["--grace", "200ms"]), "927");
    let terminal =
        Terminal::open(&gateway, "demo", &format!("trap '' HUP TERM INT; echo ready; while :; do sleep {mark}; done"));
    terminal.hear("ready");
    let task = terminal.start(json!({ "text": "" }));
    assert_eq!(terminal.ask("DELETE", "", None).status, 204);
    assert_eq!(gateway.children(mark), [""; 0]);
    assert_eq!(terminal.ended(&task).end(), ("killed", "session exited: signal: SIGKILL"));
}

#[test]
fn what_a_process_left_in_its_terminal_ends_with_it() {
    let (gateway, mark) = (Gateway::with(&["--grace", "200ms"]), "937");
    let terminal = Terminal::open(&gateway, "demo", BASH);
    let line = format!("(trap '' HUP TERM; sleep {mark}) & exit");
    let sent = terminal.send(json!({ "text": line }));
    assert_eq!(sent.end(), ("completed", "session exited: exit code: 0"));
    eventually("the rest is gone", || gateway.children(&format!("sleep {mark}")).is_empty().then_some(()));
    assert_eq!(terminal.view()["status"], "closed");
}

#[test]
fn a_disposed_session_has_no_terminal_any_more() {
    let (gateway, mark) = (Gateway::start(), "947");
    let (_live, _) = busy(&gateway, "demo", mark);
    let quiet = Terminal::open(&gateway, "demo", &format!("sleep {mark}4"));
    let ended = Terminal::open(&gateway, "demo", "exit 1");
    eventually("it closes", || (ended.view()["status"] == "closed").then_some(()));
    let other = Terminal::open(&gateway, "other", "sleep 1000");

    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    assert_eq!(gateway.children(&format!("sleep {mark}")), [""; 0]);
    assert_eq!(gateway.control("GET", "/sessions/demo/terminals", None).json(), json!([]));
    quiet.ask("GET", "", None).problem(404);
    assert_eq!(gateway.list("demo"), json!([]));
    assert_eq!(other.view()["status"], "open");
    Terminal::open(&gateway, "demo", "true");
}

#[test]
fn a_terminal_that_is_opened_while_its_session_is_disposed_does_not_outlive_it() {
    let (gateway, mark) = (Gateway::start(), "957");
    let body = json!({ "command": format!("sleep {mark}") });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let opened = gateway.control("POST", "/sessions/demo/terminals", Some(body.clone()));
                    assert!(matches!(opened.status, 201 | 409 | 429), "{opened:?}");
                }
            });
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
                }
            });
        }
    });
    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    assert_eq!(gateway.control("GET", "/sessions/demo/terminals", None).json(), json!([]));
    assert_eq!(gateway.children(&format!("sleep {mark}")), [""; 0]);
}

#[test]
fn a_shutdown_ends_all_that_runs_in_terminals() {
    let (mut gateway, mark) = (Gateway::start(), "967");
    busy(&gateway, "demo", mark);
    Terminal::open(&gateway, "other", &format!("sleep {mark}4"));
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert_eq!(gateway.children(&format!("sleep {mark}")), [""; 0]);
    let log = gateway.log();
    assert!(log.contains("session exited: signal: SIGHUP (gateway shut down)"), "{log}");
    assert!(!log.contains(&format!("sleep {mark}")), "no command is logged: {log}");
}

#[test]
fn a_session_has_so_many_open_terminals_and_looks_back_at_as_many() {
    let gateway = Gateway::with(&["--max-terminals", "2"]);
    let open = |command: &str| gateway.control("POST", "/sessions/demo/terminals", Some(json!({ "command": command })));
    let ids = || {
        let list = gateway.control("GET", "/sessions/demo/terminals", None).json();
        list.as_array().unwrap().iter().map(|terminal| terminal["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    open("sleep 1000");
    let second = Terminal::open(&gateway, "demo", "sleep 1000");
    let problem = open("sleep 1000").problem(429);
    assert!(problem["detail"].as_str().unwrap().contains("demo has 2 open terminals"), "{problem}");
    Terminal::open(&gateway, "other", "sleep 1000");
    assert_eq!(second.ask("DELETE", "", None).status, 204);

    for id in 4..8 {
        let terminal = Terminal::open(&gateway, "demo", "true");
        assert_eq!(terminal.id, format!("term-{id}"), "a refused one uses up no id");
        eventually("it closes", || (terminal.view()["status"] == "closed").then_some(()));
    }
    eventually("the oldest of the closed ones go", || (ids() == ["term-1", "term-6", "term-7"]).then_some(()));
}

#[test]
fn terminals_leave_no_descriptor_behind() {
    let gateway = Gateway::start();
    let once = || {
        let terminal = Terminal::open(&gateway, "demo", "sleep 1000");
        terminal.send(json!({ "text": "a", "wait": { "idleMs": 10 } }));
        assert_eq!(terminal.ask("DELETE", "", None).status, 204);
    };
    once();
    let before = gateway.descriptors();
    for _ in 0..30 {
        once();
    }
    eventually("as many descriptors are open as before", || (gateway.descriptors() <= before).then_some(()));
}
