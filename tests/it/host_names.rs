//! By which names a gateway answers. A page whose name was pointed at this machine (DNS rebinding:
//! bytebase/dbhub#304) reads nothing.

use std::net::SocketAddr;

use crate::support::{Gateway, http};

const TOKEN: &str = "a-token-of-a-test-0123456789";

/// One request whose every header but the token is as given.
fn ask(address: SocketAddr, request_line: &str, hosts: &[&str]) -> http::Answer {
    let mut head = format!("{request_line}\r\naccept: application/json\r\nconnection: close\r\n");
    for host in hosts {
        head.push_str(&format!("host: {host}\r\n"));
    }
    http::over_tcp(address, format!("{head}authorization: Bearer {TOKEN}\r\n\r\n").as_bytes())
}

fn gateway(flags: &[&str], variables: &[(&str, &str)]) -> Gateway {
    let flags = [&["--control", "127.0.0.1:0"], flags].concat();
    Gateway::with_variables(&flags, &[&[("TASKLIGHT_CONTROL_TOKEN", TOKEN)], variables].concat())
}

#[test]
fn a_name_that_is_not_the_gateways_is_421_on_both_listeners() {
    let gateway = gateway(&[], &[]);
    for address in [gateway.address, gateway.control_address()] {
        let get = "GET /sessions/demo/tasks HTTP/1.1";
        for evil in ["evil.test", "evil.test:80", "localhost.evil.test", "127.0.0.1.evil.test"] {
            let problem = ask(address, get, &[evil]).problem(421);
            let name = evil.split(':').next().unwrap();
            assert!(problem["detail"].as_str().unwrap().contains(&format!("--host {name}")), "{problem}");
        }
        let own = [&address.to_string(), "127.0.0.1", "localhost", "demo.localhost:1", "[::1]:80", "192.0.2.1"];
        for own in own {
            assert_eq!(ask(address, get, &[own]).status, 200, "{own}");
        }
        ask(address, "GET http://evil.test/sessions/demo/tasks HTTP/1.1", &["localhost"]).problem(421);
    }
    // Nor does it get the stream.
    let stream = "GET /sessions/demo/tasks HTTP/1.1\r\nhost: evil.test\r\nconnection: close\r\n\r\n";
    http::over_tcp(gateway.address, stream.as_bytes()).problem(421);
}

#[test]
fn a_request_has_exactly_one_host_but_in_http_1_0() {
    let gateway = gateway(&[], &[]);
    for address in [gateway.address, gateway.control_address()] {
        ask(address, "GET /sessions/demo/tasks HTTP/1.1", &[]).problem(400);
        ask(address, "GET /sessions/demo/tasks HTTP/1.1", &["localhost", "localhost"]).problem(400);
        ask(address, "GET /sessions/demo/tasks HTTP/1.1", &["localhost/x"]).problem(400);
        assert_eq!(ask(address, "GET /sessions/demo/tasks HTTP/1.0", &[]).status, 200);
        ask(address, "GET /sessions/demo/tasks HTTP/1.0", &["evil.test"]).problem(421);
    }
}

#[test]
fn names_are_given_by_flag_and_by_variable() {
    let get = "GET /sessions/demo/tasks HTTP/1.1";
    let by_flag = gateway(&["--host", "Tasks.Example.org", "--host", "my_upstream"], &[]);
    let by_variable = gateway(&[], &[("TASKLIGHT_HOST", "tasks.example.org,my_upstream")]);
    for gateway in [by_flag, by_variable] {
        for address in [gateway.address, gateway.control_address()] {
            assert_eq!(ask(address, get, &["tasks.example.org:443"]).status, 200);
            assert_eq!(ask(address, get, &["my_upstream"]).status, 200);
            ask(address, get, &["example.org"]).problem(421);
        }
    }
}

#[test]
fn the_unix_socket_takes_any_name_since_no_page_reaches_it() {
    let gateway = Gateway::start();
    let request = b"GET /healthz HTTP/1.1\r\nhost: anything\r\nconnection: close\r\n\r\n";
    assert_eq!(http::over_unix(&gateway.socket(), request).status, 200);
}
