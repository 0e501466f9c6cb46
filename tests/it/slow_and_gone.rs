//! Readers that are slow, and peers that are gone: what they cost is bounded in time and memory,
//! and nobody else feels them. Each test prints its figures; what it asserts, a loaded machine keeps.
//!
//! Of what others have reported this answers rust-sdk#165 (abrupt disconnects leak), nchan#579 (a
//! vanished peer is never noticed), mercure#259 (thousands of `CLOSE_WAIT`), opencode#19423 (a
//! stalled reader grows memory without end), sse-eventbus#32 (one slow client delays all),
//! connect-rust#189 (silent connections are never closed), GoVisual#56 (an update between snapshot
//! and subscription is lost) and kern-ai#16 (two streams of one reader).

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use socket2::{Domain, SockRef, Socket, Type};

use crate::support::{
    Gateway, PATIENCE,
    counter::{Counter, counted},
    eventually, http,
    sse::Stream,
};

/// The longest that a change may take to whoever reads, on a machine with a lot else to do.
const DELIVERY: Duration = Duration::from_secs(5);

/// How long changes took to ten readers, while something else went on.
struct Deliveries(Vec<Duration>);

impl Deliveries {
    fn of(gateway: &Gateway, counter: &mut Counter, changes: u64) -> Self {
        let connected = std::sync::Barrier::new(11);
        let last = counter.at + changes - 1;
        let received = thread::scope(|threads| {
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    threads.spawn(|| {
                        let mut stream = Stream::open(gateway.address, "demo");
                        stream.list();
                        connected.wait();
                        let mut received = Vec::new();
                        stream.until(|event| {
                            let count = counted(&event.list()).unwrap_or_default();
                            received.push((count, Instant::now()));
                            count == last
                        });
                        received
                    })
                })
                .collect();
            connected.wait();
            for _ in 0..changes {
                counter.count(1);
                thread::sleep(Duration::from_millis(1));
            }
            readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
        });
        let sent = counter.sent.lock().unwrap();
        let late = |(count, at): (u64, Instant)| at.saturating_duration_since(sent[usize::try_from(count).unwrap()]);
        let mut all: Vec<_> = received.into_iter().map(late).collect();
        all.sort_unstable();
        Self(all)
    }

    fn p99(&self) -> Duration {
        self.0[self.0.len() * 99 / 100]
    }
}

/// A list of some 40 KiB, so that few of them fill what the kernel holds for a reader.
fn fill(gateway: &Gateway) {
    for n in 0..8 {
        let label = format!("{n}{}", "x".repeat(4_000));
        let body = json!({"kind": "build", "label": label});
        assert_eq!(gateway.control("POST", "/sessions/demo/tasks", Some(body)).status, 201);
    }
}

/// A stream that was asked for, by a peer that takes in little at a time.
fn small_reader(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&http::request("GET", "/sessions/demo/tasks", &[], "")).unwrap();
    socket
}

/// Waits until the gateway has closed what it need not have open.
fn returns_to(gateway: &Gateway, descriptors: usize) -> Duration {
    let started = Instant::now();
    eventually("the descriptors are as before", || (gateway.descriptors() <= descriptors).then_some(()));
    started.elapsed()
}

#[test]
fn a_hundred_stalled_readers_delay_nobody_and_are_dropped() {
    let gateway = Gateway::with(&["--peer-timeout", "3s"]);
    fill(&gateway);
    let mut counter = Counter::start(&gateway);
    let without = Deliveries::of(&gateway, &mut counter, 500);
    let (memory, descriptors) = (gateway.memory(), gateway.descriptors());
    let stalled: Vec<_> = (0..100).map(|_| small_reader(gateway.address)).collect();
    let stop = AtomicBool::new(false);
    let (with, grown) = thread::scope(|threads| {
        let most = threads.spawn(|| {
            let mut most = 0;
            while !stop.load(Ordering::Relaxed) {
                most = most.max(gateway.memory());
                thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let with = Deliveries::of(&gateway, &mut counter, 1_000);
        stop.store(true, Ordering::Relaxed);
        (with, most.join().unwrap().saturating_sub(memory))
    });
    let stop = AtomicBool::new(false);
    let dropped = thread::scope(|threads| {
        // What takes nothing is dropped when there is something to take.
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                counter.count(1);
                thread::sleep(Duration::from_millis(50));
            }
        });
        let dropped = returns_to(&gateway, descriptors);
        stop.store(true, Ordering::Relaxed);
        dropped
    });
    drop(stalled);
    println!(
        "p99 of deliveries: {:?}, with 100 stalled readers {:?}; memory grew by {grown} KiB; dropped {dropped:?} later",
        without.p99(),
        with.p99()
    );
    assert!(with.p99() < DELIVERY, "{:?}", with.p99());
    assert!(grown < 24 * 1024, "{grown} KiB more");
}

#[test]
fn a_reader_of_one_byte_a_second_is_dropped_and_delays_nobody() {
    let gateway = Gateway::with(&["--peer-timeout", "2s"]);
    fill(&gateway);
    let mut counter = Counter::start(&gateway);
    counter.count(1);
    let descriptors = gateway.descriptors();
    let readers: Vec<_> = (0..20).map(|_| small_reader(gateway.address)).collect();
    let stop = AtomicBool::new(false);
    let (with, dropped) = thread::scope(|threads| {
        let (readers, stop) = (&readers, &stop);
        threads.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for mut reader in readers {
                    // An end is what is waited for.
                    let _ = reader.read(&mut [0]);
                }
                thread::sleep(Duration::from_secs(1));
            }
        });
        let with = Deliveries::of(&gateway, &mut counter, 1_000);
        let dropped = returns_to(&gateway, descriptors);
        stop.store(true, Ordering::Relaxed);
        (with, dropped)
    });
    println!("p99 of deliveries beside 20 readers of one byte a second: {:?}; dropped {dropped:?} later", with.p99());
    assert!(with.p99() < DELIVERY, "{:?}", with.p99());
}

#[test]
fn a_reader_that_curl_holds_to_ten_bytes_a_second_costs_no_memory_over_100_000_changes() {
    let gateway = Gateway::with(&["--peer-timeout", "1h"]);
    fill(&gateway);
    let mut counter = Counter::start(&gateway);
    let mut curl = Command::new("curl")
        .args(["-sN", "--limit-rate", "10", &gateway.url("demo")])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    counter.count(2_000);
    let memory = gateway.memory();
    for _ in 0..100 {
        counter.count(1_000);
    }
    let grown = gateway.memory().saturating_sub(memory);
    println!("memory grew by {grown} KiB over 100,000 changes of a list of 32 KiB");
    curl.kill().unwrap();
    curl.wait().unwrap();
    assert!(grown < 8 * 1024, "{grown} KiB more");
}

/// A network namespace with a cable to this one; gone when dropped.
struct Island {
    name: String,
    here: SocketAddr,
}

impl Island {
    /// None, with the reason printed, for a user who may not have one.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make a network namespace");
            return None;
        }
        let number = std::process::id() % 16_000;
        let name = format!("tl{number}");
        // Of the block for benchmarks between networks (RFC 2544), four addresses for each.
        let (high, low) = (number / 64, number % 64 * 4);
        let (here, there) = (format!("198.18.{high}.{}", low + 1), format!("198.18.{high}.{}", low + 2));
        let island = Self { here: format!("{here}:0").parse().unwrap(), name: name.clone() };
        ip(&["netns", "add", &name]);
        ip(&["link", "add", &format!("{name}a"), "type", "veth", "peer", "name", &format!("{name}b"), "netns", &name]);
        ip(&["addr", "add", &format!("{here}/30"), "dev", &format!("{name}a")]);
        ip(&["link", "set", &format!("{name}a"), "up"]);
        ip(&["-n", &name, "addr", "add", &format!("{there}/30"), "dev", &format!("{name}b")]);
        ip(&["-n", &name, "link", "set", &format!("{name}b"), "up"]);
        Some(island)
    }

    fn cut(&self) {
        ip(&["-n", &self.name, "link", "set", &format!("{}b", self.name), "down"]);
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().unwrap();
    assert!(done.status.success(), "ip {arguments:?}: {done:?}");
}

#[test]
fn peers_that_vanish_without_a_word_are_noticed_by_the_heartbeat() {
    let Some(island) = Island::new() else { return };
    let gateway = Gateway::listening(island.here, &["--heartbeat", "500ms", "--peer-timeout", "2s"]);
    gateway.run("demo", "sleep 600");
    let descriptors = gateway.descriptors();
    let mut curls: Vec<_> = (0..20)
        .map(|_| {
            let mut curl = Command::new("ip");
            curl.args(["netns", "exec", &island.name, "curl", "-sN", &gateway.url("demo")]).stdout(Stdio::piped());
            let mut curl = curl.spawn().unwrap();
            // Its first byte shows that it is connected.
            curl.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            curl
        })
        .collect();
    island.cut();
    for curl in &mut curls {
        curl.kill().unwrap();
        curl.wait().unwrap();
    }
    println!("20 peers that vanished were dropped after {:?}", returns_to(&gateway, descriptors));
}

#[test]
fn a_peer_that_closes_its_half_is_closed() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 600");
    let descriptors = gateway.descriptors();
    let sockets: Vec<_> = (0..200)
        .map(|number| {
            let mut socket = http::connect(gateway.address);
            let request = http::request("GET", "/sessions/demo/tasks", &[], "");
            match number % 3 {
                // With the request, in the middle of it, and once the stream has begun.
                0 => socket.write_all(&request).unwrap(),
                1 => socket.write_all(&request[..20]).unwrap(),
                _ => {
                    socket.write_all(&request).unwrap();
                    socket.read_exact(&mut [0]).unwrap();
                }
            }
            socket.shutdown(Shutdown::Write).unwrap();
            socket
        })
        .collect();
    println!("200 half-closed connections were closed after {:?}", returns_to(&gateway, descriptors));
    for mut socket in sockets {
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn ten_thousand_connects_and_aborts_leave_nothing() {
    let gateway = Gateway::start();
    let mut counter = Counter::start(&gateway);
    counter.count(1);
    let abort = |rounds: u32| {
        thread::scope(|threads| {
            for depth in 0..4 {
                let address = gateway.address;
                threads.spawn(move || {
                    for _ in 0..rounds / 4 {
                        let mut socket = http::connect(address);
                        let request = http::request("GET", "/sessions/demo/tasks", &[], "");
                        // At once, in the request, behind it, and in the stream.
                        let sent = [0, 20, request.len(), request.len()][depth];
                        socket.write_all(&request[..sent]).unwrap();
                        if depth == 3 {
                            socket.read_exact(&mut [0]).unwrap();
                        }
                        SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                });
            }
        });
    };
    let descriptors = gateway.descriptors();
    // What is allocated once.
    abort(1_000);
    returns_to(&gateway, descriptors);
    let memory = gateway.memory();
    abort(10_000);
    returns_to(&gateway, descriptors);
    let grown = gateway.memory().saturating_sub(memory);
    println!("after 10,000 aborted connections: {grown} KiB more, {} descriptors", gateway.descriptors());
    assert!(grown < 4 * 1024, "{grown} KiB more");
    assert!(Deliveries::of(&gateway, &mut counter, 100).p99() < DELIVERY);
}

#[test]
fn a_thousand_connections_that_say_nothing_are_closed_and_delay_nobody() {
    crate::support::more_descriptors();
    let gateway = Gateway::with(&["--request-timeout", "2s"]);
    let mut counter = Counter::start(&gateway);
    counter.count(1);
    let descriptors = gateway.descriptors();
    let silent: Vec<_> = (0..1_000).map(|_| http::connect(gateway.address)).collect();
    let with = Deliveries::of(&gateway, &mut counter, 300);
    let closed = returns_to(&gateway, descriptors);
    println!("p99 of deliveries beside 1,000 silent connections: {:?}; closed {closed:?} later", with.p99());
    assert!(with.p99() < DELIVERY, "{:?}", with.p99());
    for mut socket in silent {
        let mut rest = Vec::new();
        if let Err(error) = socket.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn of_ten_thousand_connects_while_a_list_changes_each_ends_at_the_newest() {
    let gateway = Gateway::start();
    let mut counter = Counter::start(&gateway);
    counter.count(1);
    let mut in_its_baseline = 0;
    for _ in 0..100 {
        let connecting = AtomicU64::new(4);
        let streams = thread::scope(|threads| {
            let streams: Vec<_> = (0..4)
                .map(|_| {
                    threads.spawn(|| {
                        let streams: Vec<_> = (0..25).map(|_| Stream::open(gateway.address, "demo")).collect();
                        connecting.fetch_sub(1, Ordering::Release);
                        streams
                    })
                })
                .collect();
            while connecting.load(Ordering::Acquire) > 0 {
                counter.count(1);
            }
            streams.into_iter().flat_map(|streams| streams.join().unwrap()).collect::<Vec<_>>()
        });
        // Nothing changes any more: what was lost now would stay so.
        for mut stream in streams {
            let mut lists = 0;
            stream.until(|event| {
                lists += 1;
                counted(&event.list()) == Some(counter.last())
            });
            in_its_baseline += u32::from(lists == 1);
        }
    }
    println!("{} changes; {in_its_baseline} of 10,000 had the newest list at once", counter.at);
}

#[test]
fn a_reader_that_comes_back_twenty_times_is_one_subscriber() {
    let gateway = Gateway::start();
    let mut stream = Stream::open(gateway.address, "demo");
    for _ in 0..20 {
        drop(stream);
        stream = Stream::open(gateway.address, "demo");
    }
    gateway.metric_becomes("tasklight_streams{source=\"tasks\"}", 1);
    gateway.run("demo", "sleep 600");
    assert_eq!(stream.list().statuses().len(), 1);
    gateway.metric_becomes("tasklight_watched_sessions", 1);
}
