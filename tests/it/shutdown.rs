//! A shutdown, as those see it who watch.

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
