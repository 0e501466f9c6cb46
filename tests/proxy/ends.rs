//! Ends: pages leave, nginx dies, the gateway is replaced behind it.
//!
//! Answers the kinds of report in dunglas/mercure#259 (thousands of connections in `CLOSE_WAIT`),
//! modelcontextprotocol/rust-sdk#165 (abrupt disconnects leak), antiwork/gumroad#7468 (a cut looks
//! like an end),
//! outsourc-e/hermes-workspace#71 (ghosts after a reconnect) and Yaffle/EventSource#88 (an answer
//! of 5xx ends an `EventSource` for good, so a replacement behind nginx must give none).

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::{
    curl::Curl,
    proxies::{Proxy, Way},
    support::{
        Gateway, PATIENCE, eventually,
        http::{over_tcp, request},
        sse::Stream,
    },
};

/// A connection from an address of one's own choice in the loopback network.
pub(crate) fn connect_from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Opens a stream of the session `demo` from that address.
pub(crate) fn stream_from(source: Ipv4Addr, to: SocketAddr) -> Stream {
    use std::io::Write;
    let mut socket = connect_from(source, to);
    socket.write_all(&request("GET", "/sessions/demo/tasks", &[], "")).unwrap();
    Stream::read_from(socket)
}

/// The states of the gateway's ends of its TCP connections, as proc(5) writes them.
fn connections_of(gateway: &Gateway) -> Vec<String> {
    let SocketAddr::V4(address) = gateway.address else { panic!("tests listen on IPv4") };
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    // 0A is the listener's.
    let rows = rows.filter(|row| row[1] == local && row[3] != "0A");
    rows.map(|row| row[3].to_owned()).collect()
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn nginx_killed_under_a_thousand_streams_leaves_no_socket() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 600");
    let before = gateway.descriptors();
    let mut proxy = Proxy::start(Way::Shipped, gateway.address);
    // From twenty addresses: the shipped configuration limits the streams of one.
    let from = |n| stream_from(Ipv4Addr::new(127, 0, 1, n), proxy.address);
    let mut streams: Vec<_> = (0..50).flat_map(|_| (1..=20).map(from)).collect();
    for stream in &mut streams {
        assert!(stream.head.starts_with("HTTP/1.1 200"), "{}", stream.head);
        assert_eq!(stream.list().statuses(), [("bash-1".to_owned(), "running".to_owned())]);
    }
    assert!(gateway.descriptors() >= 1_000);

    proxy.kill();
    eventually("all descriptors are back", || (gateway.descriptors() <= before).then_some(()));
    // What the kernel keeps for a while after a connection is closed on our side is TIME_WAIT (06).
    eventually("all connections are gone", || connections_of(&gateway).iter().all(|state| state == "06").then_some(()));

    let proxy = Proxy::start(Way::Shipped, gateway.address);
    assert_eq!(stream_from(Ipv4Addr::LOCALHOST, proxy.address).list().list().as_array().unwrap().len(), 1);
}

#[test]
#[ignore = "needs nginx, HAProxy and Caddy: scripts/test-proxy"]
fn a_page_that_leaves_is_noticed_behind_each_proxy() {
    for way in Way::ALL {
        // HAProxy keeps the gateway's side open until a sign of life finds nobody to take it.
        let gateway = Gateway::with(&["--heartbeat", "1s"]);
        let proxy = Proxy::start(way, gateway.address);
        let before = gateway.descriptors();
        let mut pages: Vec<_> = (0..20).map(|_| Curl::open(&proxy.url("demo"), way.curl_flags(), 60)).collect();
        for page in &mut pages {
            assert!(page.line().unwrap().starts_with("retry: "), "{way:?}");
        }
        assert!(gateway.descriptors() >= before + 20, "{way:?}");
        drop(pages);
        eventually(&format!("all descriptors are back: {way:?}"), || (gateway.descriptors() <= before).then_some(()));
    }
}

#[test]
#[ignore = "needs nginx and HAProxy: scripts/test-proxy"]
fn a_killed_gateway_is_a_break_and_not_an_end() {
    // Over HTTP/1.0, which a bare `proxy_pass` speaks, the two look the same; Caddy makes them so.
    for way in [Way::Shipped, Way::ShippedHttp2, Way::HaProxy] {
        let gateway = Gateway::start();
        let proxy = Proxy::start(way, gateway.address);
        let mut stream = Curl::open(&proxy.url("demo"), way.curl_flags(), 60);
        assert!(stream.line().unwrap().starts_with("retry: "), "{way:?}");
        gateway.signal("KILL");
        let code = stream.end();
        // 18: a body without its end; 92: an HTTP/2 stream that was reset; 56: a connection that was.
        assert!(matches!(code, Some(18 | 56 | 92)), "{way:?}: {code:?}");
    }
}

/// A page: it comes back after `retry:` with the last id it saw, as the standard says (§9.2.3),
/// and gives up for good at an answer that is not 200.
struct Page {
    at: SocketAddr,
    stream: Stream,
    list: Value,
    last_id: String,
}

impl Page {
    fn open(at: SocketAddr) -> Self {
        let stream = Stream::open(at, "demo");
        Self { at, stream, list: json!([]), last_id: String::new() }
    }

    /// Follows the stream, and the streams after it, until a list fits; returns when the last
    /// reconnect was.
    fn follow_until(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Instant> {
        let mut came_back = None;
        while !fits(&self.list) {
            match self.stream.next() {
                Some(event) if event.name == "message" => {
                    self.list = event.list();
                    self.last_id = event.id;
                }
                Some(_) => {}
                None => {
                    thread::sleep(Duration::from_millis(self.stream.retry.unwrap()));
                    came_back = Some(Instant::now());
                    let resume = [("last-event-id", self.last_id.as_str())];
                    self.stream = Stream::with(self.at, "demo", &resume[..usize::from(!self.last_id.is_empty())]);
                    assert!(self.stream.head.starts_with("HTTP/1.1 200"), "{}", self.stream.head);
                }
            }
        }
        came_back
    }
}

fn labels(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|task| task["label"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn every_page_comes_back_by_itself_when_the_gateway_is_replaced_behind_nginx() {
    let old = Gateway::start();
    old.run("demo", "sleep 600 # old");
    let proxy = Proxy::start(Way::Shipped, old.address);
    let mut pages: Vec<_> = (0..60).map(|_| Page::open(proxy.address)).collect();
    for page in &mut pages {
        page.follow_until(|list| labels(list) == ["sleep 600 # old"]);
    }

    // As the shipped configuration says: the new one first, then a reload, then the old one ends.
    let new = Gateway::start();
    new.run("demo", "sleep 600 # new");
    proxy.point_to(new.address);
    let json = request("GET", "/sessions/demo/tasks", &[("accept", "application/json")], "");
    let answered_by_new = || labels(&over_tcp(proxy.address, &json).json()) == ["sleep 600 # new"];
    eventually("only the new one is asked", || (0..20).all(|_| answered_by_new()).then_some(()));
    old.signal("TERM");

    let came_back: Vec<_> = thread::scope(|scope| {
        let follow = |page: &mut Page| page.follow_until(|list| labels(list) == ["sleep 600 # new"]);
        let threads: Vec<_> = pages.iter_mut().map(|page| scope.spawn(move || follow(page))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().expect("it had to reconnect")).collect()
    });
    let spread = *came_back.iter().max().unwrap() - *came_back.iter().min().unwrap();
    assert!(spread >= Duration::from_secs(1), "they came back within {spread:?}");

    new.run("demo", "true # newest");
    for page in &mut pages {
        page.follow_until(|list| list[1]["label"] == "true # newest" && list[1]["status"] == "completed");
        assert_eq!(page.list, new.list("demo"));
    }
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn a_page_that_held_rows_of_the_old_gateway_is_told_that_the_new_one_has_none() {
    let old = Gateway::start();
    old.run("demo", "sleep 600");
    let proxy = Proxy::start(Way::Shipped, old.address);
    let mut page = Page::open(proxy.address);
    page.follow_until(|list| !labels(list).is_empty());
    let new = Gateway::start();
    proxy.point_to(new.address);
    let json = request("GET", "/sessions/demo/tasks", &[("accept", "application/json")], "");
    let answered_by_new = || over_tcp(proxy.address, &json).json() == json!([]);
    eventually("only the new one is asked", || (0..20).all(|_| answered_by_new()).then_some(()));
    old.signal("TERM");
    page.follow_until(|list| labels(list).is_empty());
    assert_eq!(page.last_id, "", "an empty list resets the id");
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn while_the_gateway_is_away_nginx_says_when_to_come_back() {
    let mut gateway = Gateway::start();
    let proxy = Proxy::start(Way::Shipped, gateway.address);
    gateway.signal("TERM");
    gateway.wait();
    for _ in 0..3 {
        let answer = over_tcp(proxy.address, &request("GET", "/sessions/demo/tasks", &[], ""));
        answer.problem(503);
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    // Failures of one gateway are not held against the next.
    let gateway = Gateway::start();
    proxy.point_to(gateway.address);
    eventually("the next gateway is asked", || {
        let answer = over_tcp(proxy.address, &request("GET", "/nothing", &[], ""));
        (answer.status == 404).then_some(())
    });
}
