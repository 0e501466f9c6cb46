//! The command line, as a newcomer or a script meets it.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Gateway, tasklight, tty::Terminal};

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn start_prints_the_id_and_the_rest_follows_from_it() {
    let gateway = Gateway::start();
    let cli = |arguments: &[&str]| gateway.cli(arguments);
    assert_eq!(out(&cli(&["start", "--session", "demo", "echo $((40+2)); exit 3"])), "bash-1\n");
    gateway.ended("demo", "bash-1");
    assert_eq!(
        out(&cli(&["output", "--session", "demo", "bash-1", "--wait", "30s"])),
        "42\n[bash-1 failed, exit code: 3]\n"
    );
    assert_eq!(
        out(&cli(&["output", "--session", "demo", "bash-1"])),
        "[no new output]\n[bash-1 failed, exit code: 3]\n"
    );
    let list = out(&cli(&["list", "--session", "demo"]));
    assert_eq!(list, "bash-1  failed  0s  echo $((40+2)); exit 3  (exit code: 3)\n");
    assert_eq!(out(&cli(&["start", "--session", "demo", "--", "sleep", "60"])), "bash-2\n");
    assert_eq!(out(&cli(&["kill", "--session", "demo", "bash-2", "--reason", "enough"])), "bash-2 stopping\n");
    gateway.ended("demo", "bash-2");
    let again = out(&cli(&["kill", "--session", "demo", "bash-2"]));
    assert_eq!(again, "bash-2 already finished: killed, signal: SIGTERM\n");
    assert_eq!(out(&cli(&["dispose", "--session", "demo"])), "demo disposed\n");
    assert_eq!(out(&cli(&["list", "--session", "demo"])), "no tasks in session demo\n");
    assert_eq!(out(&cli(&["list", "--unowned"])), "no unowned tasks\n");
    assert_eq!(out(&cli(&["list", "--session", "demo", "--json"])), "[]\n");
}

#[test]
fn what_a_task_says_is_shown_and_not_obeyed() {
    let gateway = Gateway::start();
    let hostile = "a\u{1b}[2J\u{202e}b\nbash-9  completed";
    let task = json!({"kind": "build", "label": hostile});
    gateway.control("POST", "/sessions/demo/tasks", Some(task));
    gateway.control("PATCH", "/sessions/demo/tasks/build-1", Some(json!({"detail": "x\ny"})));
    let list = out(&gateway.cli(&["list", "--session", "demo"]));
    assert!(list.ends_with("s  a\\u{1b}[2J\\u{202e}b\\nbash-9  completed  (x\\ny)\n"), "{list}");
    assert_eq!(list.lines().count(), 1);
    let said = "\u{1b}[31mred\u{1b}[m \u{1b}]0;title\u{7}10%\r20%\r\n";
    let append = || gateway.append("/sessions/demo/tasks/build-1", said);
    append();
    let raw = out(&gateway.cli(&["output", "--session", "demo", "build-1"]));
    assert_eq!(raw, format!("{said}[build-1 running, x\\ny]\n"), "a pipe gets it as it is");
    append();
    let mut command = tasklight();
    command.arg("--control").arg(gateway.socket()).args(["output", "--session", "demo", "build-1"]);
    let mut terminal = Terminal::run(command);
    assert!(terminal.end().success());
    terminal.until("\u{1b}[31mred\u{1b}[m \\u{1b}]0;title\\u{7}10%\r\n20%\r\n\u{1b}[0m[build-1 running, x\\ny]\r\n");
}

#[test]
fn json_is_what_the_control_api_answers() {
    let gateway = Gateway::start();
    let cli = |arguments: &[&str]| -> Value { serde_json::from_str(&out(&gateway.cli(arguments))).unwrap() };
    let started = cli(&["start", "--session", "demo", "--json", "--label", "build", "echo built; sleep 60"]);
    assert_eq!((&started["id"], &started["label"]), (&json!("bash-1"), &json!("build")));
    assert_eq!(cli(&["list", "--session", "demo", "--json"]), gateway.list("demo"));
    let output = cli(&["output", "--session", "demo", "--json", "--wait", "30s", "bash-1"]);
    assert_eq!((&output["text"], &output["task"]["status"]), (&json!("built\n"), &json!("running")));
    assert_eq!(cli(&["kill", "--session", "demo", "--json", "bash-1"])["id"], "bash-1");
}

#[test]
fn a_command_runs_where_it_was_started_with_its_words_and_variables() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let mut command = tasklight();
    command.current_dir(folder.path()).arg("--control").arg(gateway.socket());
    command.args([
        "start",
        "--env",
        "A=b c",
        "--",
        "bash",
        "-c",
        "printf '%s|' \"$PWD\" \"$A\" \"$@\"",
        "-",
        "x y",
        "'",
    ]);
    assert_eq!(out(&command.output().unwrap()), "bash-1\n");
    // Without --session the folder's name is the session.
    let session = folder.path().file_name().unwrap().to_str().unwrap();
    gateway.ended(session, "bash-1");
    let read = gateway.control("GET", &format!("/sessions/{session}/tasks/bash-1/output"), None).json();
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(read["text"], format!("{}|b c|x y|'|", here.display()));
}

#[test]
fn settings_come_from_variables_too_and_unowned_tasks_need_no_session() {
    let gateway = Gateway::start();
    let run = |arguments: &[&str]| {
        let mut command = tasklight();
        command.env("TASKLIGHT_CONTROL", format!("unix:{}", gateway.socket().display()));
        out(&command.env("TASKLIGHT_SESSION", "from-env").args(arguments).output().unwrap())
    };
    run(&["start", "sleep 60"]);
    assert_eq!(gateway.list("from-env")[0]["id"], "bash-1");
    run(&["start", "--unowned", "sleep 60"]);
    assert_eq!(gateway.control("GET", "/tasks", None).json()[0]["id"], "bash-2");
    assert_eq!(run(&["list"]).lines().count(), 2);
}

#[test]
fn what_went_wrong_is_said_and_told_apart_by_exit_code() {
    let gateway = Gateway::start();
    let fails = |arguments: &[&str], code: i32| {
        let output = gateway.cli(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(fails(&["kill", "--session", "demo", "bash-9"], 1), "tasklight: unknown task bash-9\n");
    let message = fails(&["start", "--session", "demo", "--cwd", "/not/there", "true"], 1);
    assert_eq!(message, "tasklight: cwd: /not/there cannot be entered: No such file or directory (os error 2)\n");
    assert!(fails(&["start", "--session", "a/b", "true"], 2).contains("no '/'"));
    assert!(fails(&["output", "--session", "demo", "7"], 2).contains("bash-1"));
    assert!(fails(&["start", "--env", "novalue", "true"], 2).contains("NAME=VALUE"));
    assert!(fails(&["frobnicate"], 2).contains("--help"));
    let nobody = tasklight().args(["--control", "unix:/nowhere/at/all.sock", "list"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(3));
    let message = String::from_utf8(nobody.stderr).unwrap();
    assert!(message.contains("tasklight serve"), "{message}");
}

#[test]
fn an_address_in_use_is_said_with_what_to_do() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let mut command = tasklight();
    command.args(["serve", "--listen", &gateway.address.to_string(), "--control"]).arg(folder.path().join("s"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot listen on 127.0.0.1") && message.contains("--listen"), "{message}");
    assert!(!folder.path().join("s").exists(), "what it had taken is given back");
}

#[test]
fn help_shows_a_newcomer_the_way() {
    let help = |arguments: &[&str]| out(&tasklight().args(arguments).output().unwrap());
    let all = help(&["--help"]);
    for word in [
        "serve",
        "start",
        "run",
        "watch",
        "list",
        "output",
        "kill",
        "dispose",
        "curl -N",
        "Exit codes",
        "TASKLIGHT_CONTROL",
    ] {
        assert!(all.contains(word), "{word} in {all}");
    }
    for command in ["serve", "start", "run", "watch", "list", "output", "kill", "dispose"] {
        assert!(help(&[command, "--help"]).contains("Usage: tasklight"), "{command}");
    }
    assert!(help(&["serve", "--help"]).contains("TASKLIGHT_LISTEN"));
    assert_eq!(help(&["--version"]), concat!("tasklight ", env!("CARGO_PKG_VERSION"), "\n"));
}
