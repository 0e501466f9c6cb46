//! What the shipped configuration of nginx keeps out, and what it lets through as it is.
//!
//! Answers the kind of report in EventSource/eventsource#14 (204 ends a page's reconnects for good:
//! overload is 503 with `Retry-After`).

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
};

use crate::{
    ends::stream_from,
    proxies::{Proxy, Way},
    support::{
        Gateway, eventually,
        http::{Answer, connect, over_tcp, request},
    },
};

fn ask(proxy: &Proxy, method: &str, path: &str) -> Answer {
    over_tcp(proxy.address, &request(method, path, &[("accept", "application/json")], ""))
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn one_address_too_greedy_is_told_to_come_back_and_the_others_go_on() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 600");
    let proxy = Proxy::start(Way::Shipped, gateway.address);
    let (greedy, other) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 1, 1));
    let mut streams: Vec<_> = (0..100).map(|_| stream_from(greedy, proxy.address)).collect();
    for stream in &mut streams {
        stream.list();
    }
    let refused = ask(&proxy, "GET", "/sessions/demo/tasks");
    refused.problem(503);
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(stream_from(other, proxy.address).list().list()[0]["status"], "running");

    streams.pop();
    eventually("there is room again", || (ask(&proxy, "GET", "/sessions/demo/tasks").status == 200).then_some(()));
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn nothing_of_the_control_api_is_reached_through_nginx() {
    let gateway = Gateway::start();
    let task = gateway.run("demo", "sleep 600");
    let proxy = Proxy::start(Way::Shipped, gateway.address);
    for (method, path) in [
        ("GET", "/sessions/demo/tasks/bash-1"),
        ("GET", "/sessions/demo/tasks/bash-1/output"),
        ("POST", "/sessions/demo/tasks/bash-1/kill"),
        ("PATCH", "/sessions/demo/tasks/bash-1"),
        ("DELETE", "/sessions/demo"),
        ("GET", "/sessions/demo/done"),
        ("POST", "/sessions/demo/tasks"),
        ("POST", "/tasks"),
        ("GET", "/tasks"),
        ("GET", "/metrics"),
        ("GET", "/readyz"),
    ] {
        let status = ask(&proxy, method, path).status;
        assert!(status == 404 || status == 405, "{method} {path}: {status}");
    }
    assert_eq!(ask(&proxy, "GET", "/sessions/demo/tasks").json(), serde_json::json!([task]));
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn a_session_of_any_name_is_reached_through_nginx() {
    let gateway = Gateway::start();
    let proxy = Proxy::start(Way::Shipped, gateway.address);
    for name in ["a%20b", "%E6%9E%84%E5%BB%BA", "100%25", "%2561", "a%3Fb%23c", "%2e%2e", "a;b=c&d"] {
        let path = format!("/sessions/{name}/tasks");
        let body = r#"{"command":"true"}"#;
        let start = request("POST", &path, &[("content-type", "application/json")], body);
        let start = crate::support::http::over_unix(&gateway.socket(), &start);
        assert_eq!(start.status, 201, "{start:?}");
        assert_eq!(ask(&proxy, "GET", &path).json().as_array().unwrap().len(), 1, "{name}");
    }
    ask(&proxy, "GET", "/sessions/a%2Fb/tasks").problem(400);
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn the_gateway_is_told_who_asked_for_what_and_nothing_that_was_made_up() {
    let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(Way::Shipped, gateway.local_addr().unwrap());
    let mut client = connect(proxy.address);
    client.write_all(&request("GET", "/x", &[("x-forwarded-for", "192.0.2.1"), ("x-mine", "kept")], "")).unwrap();
    let (mut forwarded, mut head, mut byte) = (gateway.accept().unwrap().0, String::new(), [0]);
    while !head.ends_with("\r\n\r\n") {
        forwarded.read_exact(&mut byte).unwrap();
        head.push(char::from(byte[0]));
    }
    assert!(head.starts_with("GET /x HTTP/1.1\r\n"), "{head}");
    for line in
        ["Host: localhost\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n", "x-mine: kept\r\n"]
    {
        assert!(head.contains(line), "{line:?} in {head}");
    }
    for absent in ["192.0.2.1", "onnection:"] {
        assert!(!head.contains(absent), "{absent:?} in {head}");
    }
}
