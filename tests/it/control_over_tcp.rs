//! The control API over TCP: a token opens it, and nothing else does.

use std::{
    fs::{self, Permissions},
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Output,
    time::{Duration, Instant},
};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Gateway, http, sse::Stream, tasklight, terminal::Terminal};

const TOKEN: &str = "a-token-of-a-test-0123456789";
const WRONG: &str = "a-token-of-a-test-0123456780";

/// A token's file, in a folder of its own.
fn token_file(token: &str, mode: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, format!("{token}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (folder, path)
}

/// A gateway with the control API on a Unix socket and over TCP.
fn gateway() -> Gateway {
    Gateway::with_variables(&["--control", "127.0.0.1:0"], &[("TASKLIGHT_CONTROL_TOKEN", TOKEN)])
}

/// One request over TCP, with more headers.
fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> http::Answer {
    http::over_tcp(gateway.control_address(), &http::request(method, path, headers, body))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The program, told where the gateway is.
fn cli(control: &str, token_file: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = tasklight();
    command.args(["--control", control]);
    if let Some(file) = token_file {
        command.arg("--control-token-file").arg(file);
    }
    command.args(arguments).output().unwrap()
}

#[test]
fn a_token_opens_it_and_both_ways_lead_to_the_same_registry() {
    let (_folder, file) = token_file(TOKEN, 0o600);
    let file = file.to_str().unwrap();
    let gateway = Gateway::with(&["--control", "localhost:0", "--control-token-file", file]);
    assert_eq!(gateway.control.len(), 2);
    assert_eq!(gateway.control[0], format!("unix:{}", gateway.socket().display()));
    let over_tcp = &gateway.control[1];
    assert!(over_tcp.starts_with("localhost:") && !over_tcp.ends_with(":0"), "{over_tcp}");

    let started = cli(over_tcp, Some(file.as_ref()), &["start", "--session", "demo", "echo hello"]);
    assert_eq!(String::from_utf8_lossy(&started.stdout), "bash-1\n", "{}", stderr(&started));
    let read = cli(over_tcp, Some(file.as_ref()), &["output", "--session", "demo", "bash-1", "--wait", "30s"]);
    assert!(String::from_utf8_lossy(&read.stdout).starts_with("hello\n"), "{read:?}");
    assert_eq!(gateway.list("demo")[0]["id"], "bash-1");

    // The variable may name several places: the other commands ask at the first.
    let mut list = tasklight();
    list.env("TASKLIGHT_CONTROL", format!("{over_tcp},unix:/nowhere/s")).env("TASKLIGHT_CONTROL_TOKEN", TOKEN);
    let list = list.args(["list", "--session", "demo"]).output().unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).starts_with("bash-1"), "{list:?}");
}

#[test]
fn serve_refuses_to_begin_without_a_good_token() {
    let serve = |file: Option<&Path>, token: Option<&str>| {
        let mut command = tasklight();
        command.args(["serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]);
        if let Some(file) = file {
            command.arg("--control-token-file").arg(file);
        }
        if let Some(token) = token {
            command.env("TASKLIGHT_CONTROL_TOKEN", token);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        stderr(&output)
    };
    let refused = serve(None, None);
    assert!(refused.contains("127.0.0.1:0 needs a token") && refused.contains("--control-token-file"), "{refused}");
    assert!(serve(None, Some("")).contains("needs a token"));
    let refused = serve(None, Some("fifteen-bytes-x"));
    assert!(refused.contains("15 bytes") && refused.contains("TASKLIGHT_CONTROL_TOKEN"), "{refused}");
    assert!(!refused.contains("fifteen-bytes-x"), "{refused}");
    let (_folder, open) = token_file(TOKEN, 0o644);
    let refused = serve(Some(&open), None);
    assert!(refused.contains("chmod 600") && !refused.contains(TOKEN), "{refused}");
    let (_folder, short) = token_file("short", 0o600);
    assert!(serve(Some(&short), Some(TOKEN)).contains("5 bytes"), "the file counts, not the variable");
    assert!(serve(Some("/nowhere/token".as_ref()), None).contains("/nowhere/token"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = tasklight();
    command.args(["serve", "--listen", "127.0.0.1:0", "--control", &address]).env("TASKLIGHT_CONTROL_TOKEN", TOKEN);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains(&address) && said.contains("--control"), "{said}");
}

#[test]
fn a_wrong_or_missing_token_is_401_on_every_path_and_costs_a_delay() {
    let gateway = gateway();
    let start = Instant::now();
    for path in ["/healthz", "/nowhere"] {
        let answer = ask(&gateway, "GET", path, &[], "");
        answer.problem(401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    for wrong in [bearer(WRONG), bearer(&TOKEN[1..]), "Basic YTpi".to_owned(), TOKEN.to_owned()] {
        let answer = ask(&gateway, "GET", "/tasks", &[("authorization", &wrong)], "");
        let problem = answer.problem(401);
        assert!(problem["title"].as_str().unwrap().contains("Bearer TOKEN"), "{problem}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    }
    assert!(start.elapsed() >= Duration::from_secs(6), "{:?}", start.elapsed());
    let body = json!({ "command": "true" }).to_string();
    ask(&gateway, "POST", "/tasks", &[("content-type", "application/json")], &body).problem(401);
    assert_eq!(gateway.list("demo"), json!([]), "nothing ran");
    let right = ask(&gateway, "GET", "/healthz", &[("authorization", &bearer(TOKEN))], "");
    assert_eq!(right.status, 200);
    assert_eq!(gateway.control("GET", "/healthz", None).status, 200, "the Unix socket asks for none");
}

#[test]
fn a_stream_needs_the_token_too_and_tells_what_one_over_the_unix_socket_tells() {
    let gateway = gateway();
    let authorization = bearer(TOKEN);
    for path in ["/sessions/demo/tasks", "/sessions/demo/done", "/mux"] {
        let headers = [("accept", "text/event-stream"), ("authorization", &authorization)];
        http::over_tcp(gateway.control_address(), &http::request("GET", path, &headers[..1], "")).problem(401);
        let over_tcp = Stream::send(gateway.control_address(), &http::request("GET", path, &headers, ""));
        let mut streams = vec![over_tcp];
        // An end is told to one reader alone.
        if !path.ends_with("done") {
            streams.push(gateway.stream(path, &headers[..1]));
        }
        let task = gateway.run("demo", "exit 3")["id"].to_string();
        for stream in &mut streams {
            stream.until(|event| event.data.contains(&task) && event.data.contains("exit code: 3"));
        }
    }
}

#[test]
fn a_flood_of_wrong_tokens_does_not_shut_the_right_one_out() {
    let gateway = gateway();
    let request = http::request("GET", "/tasks", &[("authorization", &bearer(WRONG))], "");
    let flood: Vec<_> = (0..150)
        .map(|_| {
            let mut socket = http::connect(gateway.control_address());
            socket.write_all(&request).unwrap();
            socket
        })
        .collect();
    let right = ask(&gateway, "GET", "/tasks", &[("authorization", &bearer(TOKEN))], "");
    assert_eq!(right.status, 200);
    for mut socket in flood {
        http::read_to_end(&mut socket).problem(401);
    }
}

#[test]
fn what_a_page_sent_is_refused_on_both_ways_whatever_it_bears() {
    let gateway = gateway();
    let page = [("origin", "http://localhost:8080"), ("authorization", &bearer(TOKEN))];
    for method in ["GET", "POST", "OPTIONS"] {
        let answer = ask(&gateway, method, "/tasks", &page, "");
        answer.problem(403);
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let over_unix = http::over_unix(&gateway.socket(), &http::request("GET", "/tasks", &[("origin", "null")], ""));
    over_unix.problem(403);
}

#[test]
fn the_token_is_neither_logged_nor_handed_down() {
    let variables = [("TASKLIGHT_CONTROL_TOKEN", TOKEN), ("TASKLIGHT_LOG", "trace")];
    let gateway = Gateway::with_variables(&["--control", "127.0.0.1:0"], &variables);
    for token in [WRONG, TOKEN] {
        ask(&gateway, "GET", "/tasks", &[("authorization", &bearer(token))], "");
    }
    let task = gateway.run("demo", "env; echo done");
    let path = format!("/sessions/demo/tasks/{}/output?wait=30s", task["id"].as_str().unwrap());
    gateway.ended("demo", task["id"].as_str().unwrap());
    let output = gateway.control("GET", &path, None).json()["text"].as_str().unwrap().to_owned();
    assert!(output.contains("PATH=") && output.ends_with("done\n"), "{output}");
    assert!(!output.contains(TOKEN) && !output.contains("TASKLIGHT_CONTROL_TOKEN"), "{output}");
    let terminal = Terminal::open(&gateway, "demo", "read -r; env; echo done");
    let typed = terminal.send(json!({ "text": "" })).text;
    assert!(typed.contains("PATH=") && typed.ends_with("done\r\n"), "{typed}");
    assert!(!typed.contains(TOKEN) && !typed.contains("TASKLIGHT_CONTROL_TOKEN"), "{typed}");
    let log = gateway.log();
    assert!(log.contains("no valid control token peer=127.0.0.1:"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains(WRONG), "{log}");
}

#[test]
fn the_program_says_what_its_token_lacks() {
    let gateway = gateway();
    let address = &gateway.control[1];
    let without = cli(address, None, &["list", "--session", "demo"]);
    assert_eq!(without.status.code(), Some(1));
    assert!(stderr(&without).contains("--control-token-file"), "{without:?}");
    let (_folder, wrong) = token_file(WRONG, 0o600);
    let refused = cli(address, Some(&wrong), &["list", "--session", "demo"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("the token is not the gateway's"), "{refused:?}");
    let (_folder, right) = token_file(TOKEN, 0o600);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let unreachable = cli(&nobody, Some(&right), &["list", "--session", "demo"]);
    assert_eq!(unreachable.status.code(), Some(3), "{unreachable:?}");
    assert!(stderr(&unreachable).contains(&nobody), "{unreachable:?}");
    let over_unix = cli(&gateway.control[0], Some("/nowhere".as_ref()), &["list", "--session", "demo"]);
    assert!(over_unix.status.success(), "the Unix socket needs no token: {over_unix:?}");
    let nonsense = cli("8080", Some(&right), &["list"]);
    assert_eq!(nonsense.status.code(), Some(2));
    assert!(stderr(&nonsense).contains("HOST:PORT"), "{nonsense:?}");
}

#[test]
fn off_the_loopback_the_log_warns_of_plain_text() {
    let variables = [("TASKLIGHT_CONTROL_TOKEN", TOKEN)];
    let gateway = Gateway::with_variables(&["--control", "0.0.0.0:0"], &variables);
    assert!(gateway.log().contains("WARN") && gateway.log().contains("plain text"), "{}", gateway.log());
    assert!(!self::gateway().log().contains("plain text"));
}
