//! Requests that no well-behaved client sends: each is refused or answered, and none is read as two.

use std::io::{Read, Write};

use crate::support::{
    Gateway, http,
    raw::{Outcome, answers, cases, exchange, swallowing, with_marker},
};

#[test]
fn a_request_that_can_be_read_in_two_ways_is_refused_or_is_the_last() {
    let gateway = Gateway::start();
    for case in cases().into_iter().chain([swallowing()]) {
        let (bytes, ended) = exchange(gateway.address, &with_marker(&case));
        let statuses = answers(&bytes);
        assert_eq!(ended, case.outcome != Outcome::Stream, "{}: {statuses:?}", case.name);
        match case.outcome {
            Outcome::Answered(status) => assert_eq!(statuses, [status, 200], "{}", case.name),
            Outcome::Last(status) => assert_eq!(statuses, [status], "{}", case.name),
            Outcome::Unread(status) => {
                assert!(statuses == [status] || statuses == [status, 200], "{}: {statuses:?}", case.name);
            }
            Outcome::Refused => {
                assert!(statuses.iter().all(|status| (400..=499).contains(status)), "{}: {statuses:?}", case.name);
                assert!(statuses.len() <= 1, "{}: {statuses:?}", case.name);
            }
            Outcome::Stream => assert_eq!(statuses, [200], "{}", case.name),
        }
    }
}

#[test]
fn nothing_behind_the_request_for_a_stream_is_answered() {
    for case in cases().iter().filter(|case| case.outcome == Outcome::Stream) {
        let gateway = Gateway::start();
        let mut socket = http::connect(gateway.address);
        socket.write_all(&with_marker(case)).unwrap();
        let mut seen = String::new();
        let mut until = |text: &str| {
            let mut byte = [0];
            while !seen.contains(text) {
                socket.read_exact(&mut byte).unwrap();
                seen.push(char::from(byte[0]));
            }
        };
        until(": session demo");
        // An answer to what stands behind would come before this event.
        gateway.run("demo", "sleep 600");
        until("bash-1");
        gateway.signal("TERM");
        until("\r\n0\r\n\r\n");
        assert_eq!(answers(seen.as_bytes()), [200], "{}", case.name);
    }
}
