//! Events come through each proxy as they happen, and a planned end is clean.
//!
//! Answers the kinds of report in nginx/nginx#1505 (the proxy buffers), antiwork/gumroad#7468
//! (HTTP/1.0 to the gateway), tower-rs/tower-http#419 (compression delays events),
//! electric-sql/electric#3733 (an end that looks like a break), danielgtaylor/huma#1037 (no headers
//! before the first event), kemalcr/kemal#798 (`HEAD` starts a stream) and brimdata/super#3965
//! (`Accept` refused).
//!
//! That an event was not held back is shown by order: what happens next is made to happen only after
//! the event was read, and nothing else is sent that could have pushed it out.

use std::process::Command;

use serde_json::json;

use crate::{
    curl::Curl,
    proxies::{Proxy, Way},
    support::Gateway,
};

/// Long enough that no sign of life pushes an event out.
const NO_HEARTBEAT: &[&str] = &["--heartbeat", "10m"];

fn each_event_arrives_before_the_next_change(way: Way) -> String {
    let gateway = Gateway::with(NO_HEARTBEAT);
    let proxy = Proxy::start(way, gateway.address);
    let mut stream = Curl::open(&proxy.url("demo"), way.curl_flags(), 60);
    assert!(stream.head.contains("content-type: text/event-stream\n"), "{}", stream.head);
    assert!(stream.line().unwrap().starts_with("retry: "));
    assert_eq!(stream.line().unwrap(), ": session demo");

    gateway.run("demo", "sleep 600");
    assert_eq!(stream.until(|_| true)[0]["status"], "running");
    assert_eq!(gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", Some(json!({}))).status, 202);
    stream.until(|list| list[0]["status"] == "killed");
    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    assert_eq!(stream.until(|_| true), json!([]));

    for accept in ["accept:", "accept: text/event-stream"] {
        let flags = [way.curl_flags(), &["-H", accept]].concat();
        let mut other = Curl::open(&proxy.url("demo"), &flags, 60);
        assert!(other.line().unwrap().starts_with("retry: "), "{accept}");
    }
    let head = ["-sS", "--head", "--max-time", "30", &proxy.url("demo")];
    let head = Command::new("curl").args(head).args(way.curl_flags()).output().unwrap();
    assert!(head.status.success(), "a HEAD ends: {head:?}");
    assert!(String::from_utf8_lossy(&head.stdout).to_ascii_lowercase().contains("text/event-stream"));

    gateway.run("demo", "sleep 600");
    stream.until(|list| list[0]["status"] == "running");
    gateway.signal("TERM");
    stream.until(|list| list[0]["status"] == "killed");
    let head = stream.head.clone();
    assert_eq!(stream.end(), Some(0), "a planned end is no break");
    head
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn live_through_the_shipped_configuration_of_nginx() {
    let head = each_event_arrives_before_the_next_change(Way::Shipped);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(!head.contains("content-encoding"), "{head}");
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn live_over_http_2_with_the_tls_lines_of_the_shipped_configuration() {
    let head = each_event_arrives_before_the_next_change(Way::ShippedHttp2);
    assert!(head.starts_with("http/2 200"), "{head}");
    assert!(!head.contains("content-encoding"), "{head}");
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn live_through_a_bare_proxy_pass() {
    each_event_arrives_before_the_next_change(Way::Bare);
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn live_through_nginx_that_compresses_event_streams() {
    let head = each_event_arrives_before_the_next_change(Way::Gzip);
    assert!(head.contains("content-encoding: gzip"), "nginx compresses here: {head}");
}

#[test]
#[ignore = "needs HAProxy: scripts/test-proxy"]
fn live_through_haproxy() {
    each_event_arrives_before_the_next_change(Way::HaProxy);
}

#[test]
#[ignore = "needs Caddy: scripts/test-proxy"]
fn live_through_caddy() {
    each_event_arrives_before_the_next_change(Way::Caddy);
}
