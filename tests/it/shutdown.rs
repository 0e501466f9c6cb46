//! A shutdown, as those see it who watch.

use serde_json::json;

use crate::support::{Gateway, sse::Stream};

#[test]
fn every_stream_shows_how_each_child_ended_before_it_ends_itself() {
    for _ in 0..5 {
        let gateway = Gateway::start();
        gateway.run("demo", "sleep 600");
        let mut streams: Vec<_> = (0..50).map(|_| Stream::open(gateway.address, "demo")).collect();
        gateway.signal("TERM");
        for stream in &mut streams {
            let mut last = None;
            while let Some(event) = stream.next() {
                last = Some(event);
            }
            assert_eq!(last.unwrap().statuses(), [("bash-1".to_owned(), "killed".to_owned())]);
        }
    }
}

#[test]
fn a_stream_of_many_sessions_shows_it_too_whoever_reads_it() {
    for _ in 0..5 {
        let gateway = Gateway::start();
        gateway.run("demo", "sleep 600");
        let browsers = "GET /mux?session=a&session=demo HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut streams: Vec<_> = (0..10)
            .flat_map(|_| [Stream::send(gateway.address, browsers.as_bytes()), gateway.stream("/mux", &[])])
            .collect();
        gateway.signal("TERM");
        for stream in &mut streams {
            let mut last = None;
            while let Some(event) = stream.next() {
                let frame = event.list();
                last = frame.get("tasks").or_else(|| frame.pointer("/sessions/demo")).cloned().or(last);
            }
            let last = last.unwrap();
            assert_eq!((&last[0]["id"], &last[0]["status"]), (&json!("bash-1"), &json!("killed")));
        }
    }
}
