//! Lists as events, read back by a parser of another project.

#![no_main]

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use futures_util::{Stream, stream};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use sse_stream::SseByteStream;
use tasklight::{TaskView, laws};

fuzz_target!(|list: (u64, Vec<(String, Option<String>, u64)>)| {
    let (at, tasks) = list;
    let tasks = tasks.into_iter().zip(1..).filter_map(|((label, detail, started), n)| {
        let mut task = json!({
            "id": format!("bash-{n}"), "kind": "bash", "label": label, "status": "running", "startedAt": started,
        });
        if let Some(detail) = detail {
            task["detail"] = json!(detail);
        }
        // A label that is none is no list's.
        serde_json::from_value(task).ok()
    });
    laws::frame(&tasks.collect::<Vec<TaskView>>(), at, parse);
});

fn parse(pieces: &[&[u8]]) -> Vec<laws::Found> {
    let pieces = pieces.iter().map(|piece| Ok::<_, std::io::Error>(*piece));
    let mut events = pin!(SseByteStream::new(stream::iter(pieces)));
    let mut found = Vec::new();
    while let Poll::Ready(Some(event)) = events.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
        let event = event.expect("the bytes are an event stream");
        found.push((event.id, event.event, event.data));
    }
    found
}
