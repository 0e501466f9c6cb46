//! Chaos: one run of everything that can happen to the real binary, as a seed chooses it, and a
//! model that every reader's copy of a list is held against (see [`mirror`]).
//!
//! Commands and external tasks start and end, are killed, lose their process or their producer;
//! sessions are disposed; readers come, stall, leave in every way and come back with and without
//! `Last-Event-ID`, straight or through nginx; the gateway and nginx are ended, asked and unasked,
//! and started again; the gateway's wall clock jumps by hours both ways. In the end nothing is done
//! any more, and then
//!
//! - every task settles by itself: none stays live without somebody who works on it;
//! - every reader comes to exactly the registry's list;
//! - the readers gone, nothing is left of them in the gateway, and no process of its children.
//!
//! The steps are the seed's; how they fall in between each other is the machine's. `CHAOS_SEED`
//! repeats a run's steps, `CHAOS_SECONDS` makes it longer: `scripts/soak SECONDS [SEED]`. Without
//! nginx or libfaketime on the machine it runs without proxy or clock steps, and says so.
//!
//! Of what others have reported it answers hermes-workspace#71 (ghosts after a reconnect),
//! claudewatch#43 (a slow client is frozen for ever), claude-code#59456 (stopped tasks come back as
//! running), claude-code#66955 (stuck rows over restarts), kestra#6331 (running long after the
//! worker died) and woodpecker#6825 (durations below zero).

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::format_push_string,
    clippy::print_stdout,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and says its figures"
)]

mod client;
mod control;
mod driver;
mod mirror;
mod producers;
mod random;
mod reader;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../it/support/mod.rs"]
mod support;
mod world;

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    client::{Client, Finish},
    driver::{Driver, SESSIONS},
    mirror::{Ends, Mirror},
    random::Random,
    world::{Lives, Proxy},
};

const CLIENTS: u64 = 24;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| value.parse().unwrap())
}

#[test]
fn whatever_happens_every_mirror_ends_at_the_registrys_list_and_none_goes_back() {
    let seed = variable("CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let time = Duration::from_secs(variable("CHAOS_SECONDS").unwrap_or(10));
    println!("seed {seed}, {} s; to repeat: scripts/soak {} {seed}", time.as_secs(), time.as_secs());
    let address = world::address();
    let before_it = world::address();
    let lives = Lives::begin(address);
    let at_first = lives.now().descriptors();
    let proxy = Proxy::begin(before_it, address);
    let ways: &[_] = if proxy.is_some() { &[address, address, before_it] } else { &[address] };
    let (ends, finish) = (Ends::default(), Finish::new());
    let mut driver = Driver::new(Random::new(seed, 0), lives, proxy);

    let (readers, story) = thread::scope(|threads| {
        let readers: Vec<_> = (1..=CLIENTS)
            .map(|number| {
                let session = SESSIONS[usize::try_from(number).unwrap() % SESSIONS.len()].to_owned();
                let client = Client {
                    mirror: Mirror::new(session, ends.clone()),
                    random: Random::new(seed, number),
                    ways,
                    finish: &finish,
                    connections: 0,
                };
                threads.spawn(move || client.run())
            })
            .collect();
        let deadline = Instant::now() + time;
        // A reader that found a fault is done early: then there is nothing to wait for.
        while Instant::now() < deadline && !readers.iter().any(thread::ScopedJoinHandle::is_finished) {
            driver.step();
        }
        let lists = driver.settle();
        let story = if lists.is_ok() { String::new() } else { driver.story() };
        // Also when something is wrong: the readers end by it.
        finish.set(lists.clone().unwrap_or_default()).unwrap();
        let readers: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        (lists.map(|_| readers), story)
    });
    let readers = readers.unwrap_or_else(|fault| panic!("seed {seed}: {fault}\n{story}"));
    let faults: Vec<_> = readers.iter().filter_map(|reader| reader.as_ref().err()).collect();
    for fault in &faults {
        println!("{fault}");
    }
    assert!(faults.is_empty(), "seed {seed}: {} readers found a fault, see above\n{}", faults.len(), driver.story());
    let (connections, lists) =
        readers.iter().flatten().fold((0, 0), |(connections, lists), (c, l)| (connections + c, lists + l));
    driver.leaves_nothing(at_first);
    println!("{}; {CLIENTS} readers saw {lists} lists on {connections} connections", driver.summary());
}
