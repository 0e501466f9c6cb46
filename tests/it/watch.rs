//! `tasklight watch`: the live list, in a terminal and in a pipe.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Gateway, tasklight, tty::Terminal, wait};

fn watch(gateway: &Gateway, flags: &[&str]) -> Command {
    let mut command = tasklight();
    command.env("NO_COLOR", "1").arg("--control").arg(gateway.socket());
    command.args(["watch", "--session", "demo"]).args(flags);
    command
}

fn lines(command: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
}

fn register(gateway: &Gateway, label: &str) -> String {
    let task = json!({"kind": "build", "label": label});
    let task = gateway.control("POST", "/sessions/demo/tasks", Some(task)).json();
    format!("/sessions/demo/tasks/{}", task["id"].as_str().unwrap())
}

#[test]
fn the_list_is_drawn_in_place_live_first_and_ticks() {
    let gateway = Gateway::start();
    let mut terminal = Terminal::run(watch(&gateway, &[]));
    terminal.shows("an empty list", |screen| screen == ["demo: no tasks"]);
    let first = register(&gateway, "first");
    register(&gateway, "second");
    gateway.control("PATCH", &first, Some(json!({"status": "failed", "detail": "exit code: 2"})));
    let is_so = |screen: &[String]| {
        screen.len() == 3
            && screen[0] == "demo: 1 running, 1 ended"
            && screen[1].starts_with("build-2  running  ")
            && screen[1].ends_with("s  second")
            && screen[2].starts_with("build-1  failed   ")
            && screen[2].ends_with("s  first  (exit code: 2)")
    };
    terminal.shows("both tasks", is_so);
    terminal.shows("a tick", |screen| screen[1].contains(" 2s  second"));
    terminal.type_keys("\x03");
    assert!(terminal.end().success());
    assert!(terminal.is_as_a_shell_wants_it());
    assert_eq!(terminal.screen().last().map(String::as_str), Some("^C"), "the cursor was below the list");
}

#[test]
fn a_narrow_terminal_cuts_labels_by_columns_and_a_new_size_draws_again() {
    let gateway = Gateway::start();
    register(&gateway, "运行所有的测试并生成覆盖率报告文件");
    register(&gateway, "a\u{202e}b\u{1b}[2J");
    let terminal = Terminal::with_size(watch(&gateway, &[]), 10, 40);
    let screen = terminal.shows("two tasks", |screen| screen.len() == 3);
    assert!(screen[1].starts_with("build-1  running  ") && screen[1].ends_with("s  运行所有的测试并…"), "{screen:?}");
    assert!(screen[2].ends_with("s  a\\u{202e}b\\u{1b}[…"), "{screen:?}");
    terminal.resize(10, 100);
    terminal.shows("all of it", |screen| screen.last().is_some_and(|line| line.ends_with("a\\u{202e}b\\u{1b}[2J")));
    terminal.resize(3, 100);
    terminal.shows("what fits", |screen| screen.last().is_some_and(|line| line == "… and 2 more"));
}

#[test]
fn colours_are_there_unless_they_are_switched_off() {
    let gateway = Gateway::start();
    register(&gateway, "first");
    let mut command = watch(&gateway, &[]);
    command.env_remove("NO_COLOR");
    Terminal::run(command).until("\u{1b}[36mrunning\u{1b}[39m");
    let terminal = Terminal::run(watch(&gateway, &[]));
    terminal.until("running");
    assert!(!terminal.written().contains("\u{1b}[3"), "{:?}", terminal.written());
}

#[test]
fn in_a_pipe_each_change_is_a_line_and_it_outlives_the_gateway() {
    let mut gateway = Gateway::start();
    let (mut child, mut out) = lines(&mut watch(&gateway, &[]));
    let mut line = || out.next().unwrap().unwrap();
    let path = register(&gateway, "first");
    assert_eq!(line(), "build-1 running: first");
    gateway.control("PATCH", &path, Some(json!({"detail": "step 1"})));
    assert_eq!(line(), "build-1 running, step 1: first");
    gateway.control("PATCH", &path, Some(json!({"status": "completed"})));
    assert!(line().starts_with("build-1 completed after "));
    gateway.signal("KILL");
    gateway.wait();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    assert!(first.starts_with("tasklight: ") && first.contains("; trying again in "), "{first}");
    let gateway = gateway.again();
    assert_eq!(line(), "build-1 gone");
    register(&gateway, "after");
    assert_eq!(line(), "build-1 running: after");
    interrupt(&child);
    assert!(wait(&mut child).success());
}

#[test]
fn in_a_terminal_it_says_that_the_gateway_is_gone_and_comes_back() {
    let mut gateway = Gateway::start();
    register(&gateway, "first");
    let terminal = Terminal::with_size(watch(&gateway, &[]), 24, 200);
    terminal.shows("the task", |screen| screen.len() == 2);
    gateway.signal("KILL");
    gateway.wait();
    terminal.shows("trouble, and the rows still", |screen| screen.len() == 2 && screen[0].contains("trying again in"));
    let gateway = gateway.again();
    register(&gateway, "after");
    terminal.shows("the new list", |screen| screen.len() == 2 && screen[1].ends_with("after"));
}

#[test]
fn as_json_each_list_is_a_line() {
    let gateway = Gateway::start();
    let (mut child, mut out) = lines(&mut watch(&gateway, &["--json"]));
    let mut list = || -> Value { serde_json::from_str(&out.next().unwrap().unwrap()).unwrap() };
    assert_eq!(list(), json!([]));
    register(&gateway, "first");
    assert_eq!(list()[0]["id"], "build-1");
    interrupt(&child);
    assert!(wait(&mut child).success());
}
