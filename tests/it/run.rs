//! `tasklight run`: a command as if nothing stood between, and its task.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Gateway, PATIENCE, eventually, in_foreground, sse::Stream, tasklight, tty::Terminal, wait};

/// `tasklight run` in the session demo of the gateway at that socket.
fn run(socket: &Path, words: &[&str]) -> Command {
    let mut command = in_foreground();
    command.arg("--control").arg(socket).args(["run", "--session", "demo", "--"]).args(words);
    command
}

fn sh(gateway: &Gateway, script: &str) -> Command {
    run(&gateway.socket(), &["sh", "-c", script])
}

/// Runs it without any terminal.
fn piped(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn stands(task: &Value) -> (&str, Option<&str>) {
    (task["status"].as_str().unwrap(), task["detail"].as_str())
}

/// Waits until the session's newest task is so.
fn newest(gateway: &Gateway, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || gateway.list("demo").as_array().unwrap().last().filter(|task| is_so(task)).cloned())
}

fn is_running(task: &Value) -> bool {
    task["status"] == "running"
}

fn output_of(gateway: &Gateway, id: &str) -> String {
    let read = gateway.control("GET", &format!("/sessions/demo/tasks/{id}/output"), None).json();
    read["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_command_in_a_terminal_has_a_terminal_its_keys_colours_and_exit_code() {
    let gateway = Gateway::start();
    let mut terminal = Terminal::with_size(
        sh(
            &gateway,
            r#"test -t 0 && test -t 1 && test -t 2 && echo "all are"; stty size; read -r x; printf '\033[31mred %s\033[m\n' "$x"; exit 3"#,
        ),
        33,
        77,
    );
    terminal.until("all are\r\n33 77\r\n");
    terminal.type_keys("keys\n");
    assert_eq!(terminal.end().code(), Some(3));
    terminal.until("\u{1b}[31mred keys\u{1b}[m\r\n");
    assert!(!terminal.written().contains("tasklight"), "nothing of ours: {:?}", terminal.written());
    assert!(terminal.is_as_a_shell_wants_it());
    let task = gateway.list("demo")[0].clone();
    assert_eq!(
        (&task["id"], &task["kind"], stands(&task)),
        (&json!("run-1"), &json!("run"), ("failed", Some("exit code: 3")))
    );
    assert!(task["label"].as_str().unwrap().starts_with("sh -c \"test -t 0"), "{task}");
    let read = output_of(&gateway, "run-1");
    assert!(read.starts_with("all are\r\n33 77\r\n") && read.ends_with("\u{1b}[31mred keys\u{1b}[m\r\n"), "{read:?}");
}

#[test]
fn the_command_sees_each_new_size_of_the_terminal() {
    let gateway = Gateway::start();
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let terminal = Terminal::run(run(&gateway.socket(), &["bash", "-c", script]));
    terminal.until("ready");
    terminal.resize(40, 132);
    terminal.until("40 132\r\n");
}

#[test]
fn ctrl_c_reaches_the_command_and_the_terminal_is_set_back() {
    let gateway = Gateway::start();
    let mut terminal =
        Terminal::run(sh(&gateway, "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"));
    terminal.until("ready");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end().code(), Some(5));
    terminal.until("caught");
    assert!(terminal.is_as_a_shell_wants_it());

    let mut terminal = Terminal::run(sh(&gateway, "echo ready; exec sleep 600"));
    terminal.until("ready");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end().code(), Some(130));
    assert_eq!(stands(&gateway.list("demo")[1]), ("failed", Some("signal: SIGINT")));
}

#[test]
fn keys_that_nobody_reads_do_not_hold_ctrl_c_up() {
    let gateway = Gateway::start();
    let mut terminal = Terminal::run(sh(&gateway, "stty raw isig; echo ready; exec sleep 600"));
    terminal.until("ready");
    for _ in 0..40 {
        terminal.type_keys(&"x".repeat(500));
    }
    eventually("Ctrl-C ends it", || {
        terminal.type_keys("\x03");
        std::thread::sleep(Duration::from_millis(50));
        gateway.list("demo")[0]["finishedAt"].is_u64().then_some(())
    });
    assert_eq!(terminal.end().code(), Some(130));
}

/// A shell at whose prompt `$RUN run` runs in the session demo.
fn shell(gateway: &Gateway) -> Terminal {
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "$ ").env("TERM", "dumb");
    shell.env("RUN", env!("CARGO_BIN_EXE_tasklight")).env("TASKLIGHT_SESSION", "demo");
    shell.env("TASKLIGHT_CONTROL", gateway.socket());
    Terminal::run(shell)
}

#[test]
fn ctrl_z_gives_the_shell_the_terminal_back_and_fg_goes_on() {
    let gateway = Gateway::start();
    for pipe in ["", " | cat"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("go-on");
        let program = folder.path().join("program");
        // One that starts no others: a shell that is stopped while it starts one may hang, here as
        // anywhere.
        let wait = "$| = 1; print \"going\\n\"; select(undef, undef, undef, 0.05) until -e $ARGV[0]; print \"end\\n\"";
        std::fs::write(&program, wait).unwrap();
        let mut terminal = shell(&gateway);
        terminal.type_keys(&format!("$RUN run -- perl {} {}{pipe}\n", program.display(), file.display()));
        terminal.until("going");
        terminal.type_keys("\x1a");
        terminal.until("Stopped");
        terminal.type_keys("stty -a | grep -o ' icanon'; echo shell is ba\"\"ck\n");
        terminal.until(" icanon\r\nshell is back");
        File::create(file).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(!terminal.written().contains("\nend"), "it goes on: {:?}", terminal.written());
        terminal.type_keys("fg\n");
        terminal.until("\nend");
        terminal.type_keys("echo code $?; exit\n");
        terminal.until("code 0");
        terminal.end();
    }
}

#[test]
fn a_command_in_a_pipeline_reads_the_terminal_when_it_wants_to() {
    let gateway = Gateway::start();
    let mut terminal = shell(&gateway);
    terminal.type_keys("$RUN run -- sh -c 'echo as\"\"king >&2; read -r x </dev/tty; echo got $x' | tr a-z A-Z\n");
    terminal.until("asking");
    terminal.type_keys("keys\n");
    terminal.until("GOT KEYS");
    terminal.type_keys("echo shell is ba\"\"ck; exit\n");
    terminal.until("shell is back");
    assert!(terminal.end().success());
}

#[test]
fn without_a_terminal_streams_stay_apart_and_stdin_is_our_own() {
    let gateway = Gateway::start();
    let mut command = sh(&gateway, "test -t 1 || test -t 2 || echo none is; cat; echo problem >&2; exit 7");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from stdin\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("none is\nfrom stdin\n", "problem\n"));
    assert_eq!(output.status.code(), Some(7));
    let read = output_of(&gateway, "run-1");
    assert_eq!((read.len(), read.contains("problem\n")), ("none is\nfrom stdin\nproblem\n".len(), true));
}

#[test]
fn output_to_one_place_keeps_its_order() {
    let gateway = Gateway::start();
    let file = tempfile::tempfile().unwrap();
    let script = "for i in $(seq 500); do echo out $i; echo err $i >&2; done";
    let mut command = sh(&gateway, script);
    command.stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap()).stdin(Stdio::null());
    assert!(command.status().unwrap().success());
    let expected = (1..=500).map(|i| format!("out {i}\nerr {i}\n")).collect::<Vec<_>>().concat();
    let mut written = String::new();
    let mut file: File = file;
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_string(&mut written).unwrap();
    assert_eq!(written, expected);
    assert_eq!(output_of(&gateway, "run-1"), expected);
}

#[test]
fn only_a_stream_that_is_a_terminal_becomes_one() {
    let gateway = Gateway::start();
    let script = r#"for i in 0 1 2; do test -t $i && echo "$i is" >&3 || echo "$i is not" >&3; done"#;
    let told = |redirect: &str, streams: &dyn Fn(pty_process::blocking::Command) -> pty_process::blocking::Command| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", &format!(r#""$RUN" run -- sh -c '{script}' 3>"$TOLD" {redirect}"#)]);
        command.env("RUN", env!("CARGO_BIN_EXE_tasklight")).env("TOLD", file.path());
        command.env("TASKLIGHT_CONTROL", gateway.socket()).env("TASKLIGHT_SESSION", "demo");
        assert!(Terminal::around(streams, command).end().success());
        std::fs::read_to_string(file.path()).unwrap()
    };
    let as_it_is = |command| command;
    assert_eq!(told("", &as_it_is), "0 is\n1 is\n2 is\n");
    assert_eq!(told("2>/dev/null", &as_it_is), "0 is\n1 is\n2 is not\n");
    assert_eq!(told(">/dev/null", &as_it_is), "0 is\n1 is not\n2 is\n");
    assert_eq!(told("</dev/null", &as_it_is), "0 is not\n1 is\n2 is\n");
    assert_eq!(told("</dev/null >/dev/null 2>&1", &as_it_is), "0 is not\n1 is not\n2 is not\n");
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    let gateway = Gateway::start();
    for (words, code, said) in [
        (&["true"][..], 0, ""),
        (&["sh", "-c", "exit 3"], 3, ""),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15, ""),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9, ""),
        (
            &["no-such-command"],
            127,
            "tasklight: no-such-command cannot be run: No such file or directory (os error 2)\n",
        ),
        (&["/etc/passwd"], 126, "tasklight: /etc/passwd cannot be run: Permission denied (os error 13)\n"),
    ] {
        let output = piped(run(&gateway.socket(), words));
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(code), said), "{words:?}");
    }
    let list = gateway.list("demo");
    let ends: Vec<_> = list.as_array().unwrap().iter().map(stands).collect();
    let failed = |detail| ("failed", Some(detail));
    assert_eq!(
        ends,
        [("completed", None), failed("exit code: 3"), failed("signal: SIGTERM"), failed("signal: SIGKILL")]
    );
}

#[test]
fn signals_reach_the_commands_group_and_its_end_is_awaited() {
    let gateway = Gateway::start();
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::INT, "INT")] {
        let script =
            format!("trap 'sleep 0.2; echo caught {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let mut command = sh(&gateway, &script);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut ready = [0; 6];
        out.read_exact(&mut ready).unwrap();
        rustix::process::kill_process(pid(&child), signal).unwrap();
        assert_eq!(wait(&mut child).code(), Some(9));
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("caught {name}\n"));
    }
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn a_kill_of_the_task_ends_the_commands_group_here() {
    let gateway = Gateway::start();
    let mark = "61.273";
    let deaf = format!("trap '' TERM; sleep {mark} & echo deaf; sleep {mark}; sleep {mark}");
    for in_terminal in [false, true] {
        let start = |script: &str| -> Box<dyn FnOnce() -> std::process::ExitStatus> {
            let command = sh(&gateway, script);
            if in_terminal {
                let mut terminal = Terminal::run(command);
                Box::new(move || terminal.end())
            } else {
                let mut command = command;
                let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
                Box::new(move || wait(&mut child))
            }
        };
        // One that ends when it is asked to, and one whose group does not.
        for (script, signal) in [("exec sleep 61.274", "SIGTERM"), (deaf.as_str(), "SIGKILL")] {
            let end = start(script);
            let task = newest(&gateway, "it shows", is_running);
            let path = format!("/sessions/demo/tasks/{}", task["id"].as_str().unwrap());
            if signal == "SIGKILL" {
                let read = gateway.control("GET", &format!("{path}/output?wait=30s"), None).json();
                assert_eq!(read["text"].as_str().unwrap().trim_end(), "deaf");
            }
            let mut stream = Stream::open(gateway.address, "demo");
            assert_eq!(gateway.control("POST", &format!("{path}/kill"), None).status, 202);
            let ended = gateway.ended("demo", task["id"].as_str().unwrap());
            assert_eq!(stands(&ended), ("killed", Some(format!("signal: {signal}").as_str())));
            let code = if signal == "SIGTERM" { 128 + 15 } else { 128 + 9 };
            assert_eq!(end().code(), Some(code));
            stream.until(|event| event.statuses().last().is_some_and(|(_, status)| status == "stopping"));
            eventually("nothing is left", || (!lives(mark)).then_some(()));
        }
    }
}

/// Whether a process sleeps for so long.
fn lives(seconds: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| line == format!("sleep\0{seconds}\0").as_bytes())
}

#[test]
fn without_a_gateway_the_command_runs_and_one_line_says_so() {
    let output = piped(run(Path::new("/nowhere/at/all.sock"), &["sh", "-c", "echo out; exit 4"]));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(4), "out\n"));
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("runs all the same: no gateway answers"), "{said}");
}

#[test]
fn over_the_limit_the_command_runs_and_shows_once_there_is_room() {
    let gateway = Gateway::with(&["--max-live-tasks", "1"]);
    gateway.run("demo", "sleep 60");
    let mut child = sh(&gateway, "cat").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 40];
    child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", None);
    newest(&gateway, "it shows", |task| task["id"] == "run-1");
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = format!("{}{}", text(&said), text(&output.stderr));
    assert!(
        said.starts_with("tasklight: the command does not show in session demo") && said.contains("limit"),
        "{said}"
    );
    assert!(said.ends_with("the command shows as run-1 in session demo\n"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(stands(&gateway.ended("demo", "run-1")), ("completed", None));
}

#[test]
fn a_gateway_that_is_killed_and_started_again_gets_the_task_and_its_output_again() {
    let mut gateway = Gateway::start();
    let script = "echo before; read -r x; echo after; exit 6";
    let mut child =
        sh(&gateway, script).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Then it knows of its task, and says that the gateway is gone.
    newest(&gateway, "it shows", is_running);
    eventually("output came", || (output_of(&gateway, "run-1") == "before\n").then_some(()));
    gateway.signal("KILL");
    gateway.wait();
    let mut said = [0; 10];
    child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    // Another task takes the number that ours had.
    let gateway = gateway.again();
    let other = json!({"kind": "run", "label": "another", "leaseMs": 86_400_000});
    let other = gateway.control("POST", "/sessions/demo/tasks", Some(other)).json();
    let ours = eventually("it shows again", || {
        let list = gateway.list("demo");
        list.as_array().unwrap().iter().find(|task| task["label"] != "another").cloned()
    });
    let id = ours["id"].as_str().unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let said = format!("{}{}", text(&said), text(&output.stderr));
    let lines = [
        "the gateway is gone; the command goes on",
        &format!("the gateway is there: the command shows as {id} in session demo"),
    ];
    assert_eq!(said, lines.map(|line| format!("tasklight: {line}\n")).concat());
    assert_eq!(stands(&gateway.ended("demo", id)), ("failed", Some("exit code: 6")));
    assert_eq!(output_of(&gateway, id), "before\nafter\n");
    let other = gateway.control("GET", &format!("/sessions/demo/tasks/{}", other["id"].as_str().unwrap()), None).json();
    assert_eq!(stands(&other), ("running", None), "the other's task is left alone");
}

#[test]
fn a_gateway_that_shuts_down_kills_nothing_here() {
    let mut gateway = Gateway::start();
    let mut child = sh(&gateway, "echo before; read -r x; exit 8")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    newest(&gateway, "it shows", is_running);
    eventually("output came", || (output_of(&gateway, "run-1") == "before\n").then_some(()));
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let mut said = [0; 10];
    child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(8));
    assert_eq!(text(&said).to_owned() + text(&output.stderr), "tasklight: the gateway is gone; the command goes on\n");
}

#[test]
fn a_gateway_that_hangs_slows_nothing_down_and_holds_the_exit_up_for_two_seconds_at_most() {
    let gateway = Gateway::start();
    let mut child = sh(&gateway, "read -r x; head -c 10485760 /dev/zero; exit 2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    newest(&gateway, "it shows", is_running);
    gateway.signal("STOP");
    let began = Instant::now();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 10 * 1024 * 1024);
    assert_eq!(wait(&mut child).code(), Some(2));
    let took = began.elapsed();
    gateway.signal("CONT");
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn the_tail_of_much_output_shows_and_what_is_missing_is_said() {
    let gateway = Gateway::start();
    let output = piped(sh(&gateway, "seq 400000; echo '🦀 the end'"));
    assert_eq!(output.stdout.len(), 2_688_895 + "🦀 the end\n".len());
    let read = output_of(&gateway, "run-1");
    assert!(read.ends_with("\n400000\n🦀 the end\n"), "{:?}", &read[read.len() - 40..]);
    assert!(read.contains("bytes of o"), "it says what is missing: {:?}", &read[..80]);
    assert!(read.len() <= 300 * 1024);
}

#[test]
fn a_process_that_is_left_behind_holds_nothing_up() {
    let gateway = Gateway::start();
    let began = Instant::now();
    let mut child = sh(&gateway, "sleep 25 & echo x").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    assert!(wait(&mut child).success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(stands(&gateway.list("demo")[0]), ("completed", None));
    assert_eq!(output_of(&gateway, "run-1"), "x\n");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_as_it_would_without_us() {
    let gateway = Gateway::start();
    let mut child = run(&gateway.socket(), &["yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(wait(&mut child).code(), Some(128 + 13));
    assert_eq!(stands(&gateway.list("demo")[0]), ("failed", Some("signal: SIGPIPE")));
}

#[test]
fn a_run_that_is_killed_loses_its_task_with_its_lease_and_a_live_one_keeps_it() {
    let gateway = Gateway::start();
    let mut silent = sh(&gateway, "read -r x").stdin(Stdio::piped()).spawn().unwrap();
    newest(&gateway, "it shows", is_running);
    let mut child = sh(&gateway, "exec sleep 61.275").stdin(Stdio::null()).spawn().unwrap();
    newest(&gateway, "it shows", |task| task["id"] == "run-2");
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = loop {
        let mut stream = Stream::open(gateway.address, "demo");
        let list = stream.list().list();
        if list[1]["finishedAt"].is_u64() {
            break list;
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    assert_eq!(stands(&ended[0]), ("running", None));
    assert_eq!(stands(&ended[1]), ("failed", Some("no word from its producer for 30 s")));
    drop(silent.stdin.take());
    assert_eq!(wait(&mut silent).code(), Some(1));
    assert_eq!(stands(&gateway.ended("demo", "run-1")), ("failed", Some("exit code: 1")));
}

#[test]
fn label_kind_and_session_are_chosen_or_come_from_here() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let mut command = tasklight();
    command.arg("--control").arg(gateway.socket()).current_dir(folder.path());
    command.args(["run", "--label", "tests", "--kind", "build", "true"]);
    assert!(piped(command).status.success());
    let list = gateway.list(folder.path().file_name().unwrap().to_str().unwrap());
    assert_eq!((&list[0]["id"], &list[0]["label"]), (&json!("build-1"), &json!("tests")));
    let mut command = tasklight();
    command.env("TASKLIGHT_CONTROL", gateway.socket()).env("TASKLIGHT_SESSION", "from-env");
    assert!(
        piped({
            command.args(["run", "echo", "a b"]);
            command
        })
        .status
        .success()
    );
    assert_eq!(gateway.list("from-env")[0]["label"], "echo 'a b'");
}
