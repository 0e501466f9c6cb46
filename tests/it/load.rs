//! Many subscribers, many changes, peers that stall and peers that vanish.
//!
//! Answers the kind of report in anthropics/claude-code#59456 (a stale list overwrites a newer one).
//! Others have reported opencode#19423 (a stalled reader grows memory without end), claudewatch#43 (a
//! slow client is frozen for ever) and rust-sdk#165 (abrupt disconnects leak).

use std::{
    process::{Command, Stdio},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use crate::support::{Gateway, eventually, http, sse::Stream};

const SESSIONS: usize = 20;

/// A small random sequence that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// 2,000 random starts, kills, ends, disposals and unowned tasks.
fn turmoil(gateway: &Gateway, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..2_000 {
        let session = format!("/sessions/s{}", random.below(SESSIONS as u64));
        match random.below(20) {
            0 => assert_eq!(gateway.control("DELETE", &session, None).status, 204),
            1 => {
                let command = format!("sleep 0.0{}", random.below(9));
                gateway.control("POST", "/tasks", Some(json!({ "command": command })));
            }
            2..6 => {
                let list = gateway.control("GET", &format!("{session}/tasks"), None).json();
                let list = list.as_array().unwrap();
                if let Some(task) = list.get(usize::try_from(random.below(12)).unwrap()) {
                    let id = task["id"].as_str().unwrap();
                    gateway.control("POST", &format!("{session}/tasks/{id}/kill"), None);
                }
            }
            command => {
                let command = ["true", "exit 3", "sleep 60", "sleep 0.05"][usize::try_from(command % 4).unwrap()];
                let answer = gateway.control("POST", &format!("{session}/tasks"), Some(json!({ "command": command })));
                assert!(matches!(answer.status, 201 | 429), "{answer:?}");
            }
        }
    }
    // What is left ends, so that the lists come to rest.
    for session in 0..SESSIONS {
        for task in gateway.list(&format!("s{session}")).as_array().unwrap() {
            let path = format!("/sessions/s{session}/tasks/{}/kill", task["id"].as_str().unwrap());
            gateway.control("POST", &path, None);
        }
    }
    for session in 0..SESSIONS {
        eventually("all have ended", || {
            let list = gateway.list(&format!("s{session}"));
            list.as_array().unwrap().iter().all(|task| task["finishedAt"].is_u64()).then_some(())
        });
    }
    // The last word of every session: what a reader waits for.
    for session in 0..SESSIONS {
        gateway.control(
            "POST",
            &format!("/sessions/s{session}/tasks"),
            Some(json!({"command": "true", "label": "last"})),
        );
    }
}

fn is_last(list: &Value) -> bool {
    let list = list.as_array().unwrap();
    list.iter().any(|task| task["label"] == "last") && list.iter().all(|task| task["finishedAt"].is_u64())
}

#[test]
fn every_subscriber_ends_at_the_registrys_list_and_a_stalled_one_costs_nothing() {
    let gateway = Gateway::with(&["--peer-timeout", "1h"]);
    // Warm up what is allocated once.
    for session in 0..SESSIONS {
        gateway.run(&format!("s{session}"), "true");
    }
    let connected = Barrier::new(201);
    thread::scope(|threads| {
        let readers: Vec<_> = (0..200)
            .map(|reader| {
                let (gateway, connected) = (&gateway, &connected);
                threads.spawn(move || {
                    let session = reader % SESSIONS;
                    let mut stream = Stream::open(gateway.address, &format!("s{session}"));
                    connected.wait();
                    let last = stream.until(|event| is_last(&event.list()));
                    (session, last.list())
                })
            })
            .collect();
        let mut stalled = Stream::open(gateway.address, "s0");
        connected.wait();
        stalled.list();
        let memory = gateway.memory();
        turmoil(&gateway, 20);
        for reader in readers {
            let (session, last) = reader.join().unwrap();
            assert_eq!(last, gateway.list(&format!("s{session}")));
        }
        // 2,000 changes of lists of up to 100 tasks went by: some 20 MB that were not kept.
        let grown = gateway.memory().saturating_sub(memory);
        assert!(grown < 8 * 1024, "{grown} KiB more");
        let mut skipped_to = 0;
        stalled.until(|event| {
            skipped_to += 1;
            is_last(&event.list())
        });
        println!("the stalled reader came to the newest list after {skipped_to} lists; memory grew by {grown} KiB");
    });
}

#[test]
fn a_reader_that_stalls_over_many_large_changes_skips_to_the_newest_list_and_memory_stays_flat() {
    let gateway = Gateway::with(&["--peer-timeout", "1h"]);
    // A list of some 40 KiB, so that few of them fill what the kernel holds.
    for n in 0..10 {
        let label = format!("{n}{}", "x".repeat(4_000));
        gateway.control("POST", "/sessions/demo/tasks", Some(json!({"command": "sleep 600", "label": label})));
    }
    let mut stalled = Stream::open(gateway.address, "demo");
    stalled.list();
    let stop = AtomicBool::new(false);
    let changes = thread::scope(|threads| {
        // Unowned tasks change this list without crowding it.
        let changer = threads.spawn(|| {
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                gateway.control("POST", "/tasks", Some(json!({"command": "true"})));
                changes += 2;
            }
            changes
        });
        thread::sleep(std::time::Duration::from_secs(2));
        let memory = gateway.memory();
        thread::sleep(std::time::Duration::from_secs(4));
        let grown = gateway.memory().saturating_sub(memory);
        stop.store(true, Ordering::Relaxed);
        assert!(grown < 4 * 1024, "{grown} KiB more");
        changer.join().unwrap()
    });
    eventually("all have ended", || {
        let list = gateway.control("GET", "/tasks", None).json();
        list.as_array().unwrap().iter().all(|task| task["finishedAt"].is_u64()).then_some(())
    });
    let newest = gateway.list("demo");
    let mut lists = 0;
    stalled.until(|event| {
        lists += 1;
        event.list() == newest
    });
    assert!(lists < changes, "{lists} lists for {changes} changes");
    println!("{changes} changes went by; the reader saw {lists} lists");
}

#[test]
fn a_client_killed_2_000_times_leaves_no_descriptor() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 600");
    let before = gateway.descriptors();
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..500 {
                    let mut curl = Command::new("curl");
                    let curl = curl.args(["-sN", &gateway.url("demo")]).stdout(Stdio::piped());
                    let mut curl = curl.spawn().unwrap();
                    // Its first byte shows that it is connected.
                    let mut byte = [0];
                    std::io::Read::read_exact(curl.stdout.as_mut().unwrap(), &mut byte).unwrap();
                    curl.kill().unwrap();
                    curl.wait().unwrap();
                }
            });
        }
    });
    eventually("the descriptors are as before", || (gateway.descriptors() <= before).then_some(()));
}

#[test]
fn watching_10_000_random_sessions_leaves_nothing() {
    let gateway = Gateway::start();
    let before = (gateway.descriptors(), gateway.memory());
    let mut random = Random(7);
    for _ in 0..100 {
        let streams: Vec<_> = (0..100)
            .map(|_| {
                let session = format!("r{}-{}", random.below(1 << 31), random.below(1 << 31));
                let mut socket = http::connect(gateway.address);
                let request = http::request("GET", &format!("/sessions/{session}/tasks"), &[], "");
                std::io::Write::write_all(&mut socket, &request).unwrap();
                Stream::read_from(socket)
            })
            .collect();
        drop(streams);
    }
    eventually("the descriptors are as before", || (gateway.descriptors() <= before.0).then_some(()));
    let grown = gateway.memory().saturating_sub(before.1);
    assert!(grown < 4 * 1024, "{grown} KiB more");
}
