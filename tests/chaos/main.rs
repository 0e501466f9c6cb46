//! Chaos: one run of everything that can happen to the real binary, as a seed chooses it, and a
//! model that every reader's copy of a list is held against (see [`mirror`]).
//!
//! Commands and external tasks start and end, are killed, lose their process or their producer;
//! sessions are disposed; readers come, stall, leave in every way and come back with and without
//! `Last-Event-ID`, straight or through nginx; the gateway and nginx are ended, asked and unasked,
//! and started again; the gateway's wall clock jumps by hours both ways. Now and then, and in the
//! end, all of this rests, and then
//!
//! - every task settles by itself: none stays live without somebody who works on it;
//! - every reader, staying where it is, comes to exactly the registry's list after each little change;
//! - in the end, the readers gone, nothing is left of them in the gateway, and no process of its
//!   children.
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
mod goal;
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
    client::Client,
    driver::{Driver, SESSIONS},
    goal::{Goal, Mode},
    mirror::{Ends, Mirror},
    random::Random,
    world::{Lives, Proxy},
};

const CLIENTS: u64 = 24;
/// Steps from one rest to the next.
const BETWEEN_RESTS: u32 = 200;

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
    let (ends, goal) = (Ends::default(), Goal::new(CLIENTS));
    let mut driver = Driver::new(Random::new(seed, 0), lives, proxy);

    let (run, readers) = thread::scope(|threads| {
        let readers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let at = usize::try_from(number).unwrap();
                let session = SESSIONS[at % SESSIONS.len()].to_owned();
                let client = Client {
                    mirror: Mirror::new(session, ends.clone()),
                    random: Random::new(seed, number + 1),
                    ways,
                    goal: &goal,
                    number: at,
                    connections: 0,
                };
                threads.spawn(move || client.run())
            })
            .collect();
        // A reader that found a fault is done early: then there is nothing to wait for.
        let faulty = || readers.iter().any(thread::ScopedJoinHandle::is_finished);
        let deadline = Instant::now() + time;
        let run = loop {
            for _ in 0..BETWEEN_RESTS {
                if Instant::now() < deadline && !faulty() {
                    driver.step();
                }
            }
            let rest = driver.rest(&goal, &faulty);
            if rest.is_err() || Instant::now() > deadline {
                break rest;
            }
        };
        goal.set(Mode::Leave);
        (run, readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>())
    });
    for fault in readers.iter().filter_map(|reader| reader.as_ref().err()) {
        println!("{fault}");
    }
    if let Err(fault) = run {
        panic!("seed {seed}: {fault}\n{}", driver.story());
    }
    assert!(readers.iter().all(Result::is_ok), "seed {seed}: see above\n{}", driver.story());
    let (connections, lists) =
        readers.iter().flatten().fold((0, 0), |(connections, lists), (c, l)| (connections + c, lists + l));
    driver.leaves_nothing(at_first);
    println!("{}; {CLIENTS} readers saw {lists} lists on {connections} connections", driver.summary());
}
