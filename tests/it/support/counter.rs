//! A list that changes as fast as it is asked to.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::Mutex,
    time::Instant,
};

use serde_json::{Value, json};

use super::{Gateway, PATIENCE};

/// A task whose detail is a number that grows, by one connection to the control API.
pub(crate) struct Counter {
    socket: UnixStream,
    path: String,
    pub(crate) at: u64,
    /// When each number was sent.
    pub(crate) sent: Mutex<Vec<Instant>>,
}

impl Counter {
    pub(crate) fn start(gateway: &Gateway) -> Self {
        let body = json!({"kind": "subagent", "label": "counts"});
        let answer = gateway.control("POST", "/sessions/demo/tasks", Some(body));
        let socket = UnixStream::connect(gateway.socket()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let path = answer.header("location").unwrap().to_owned();
        Self { socket, path, at: 0, sent: Mutex::new(Vec::new()) }
    }

    /// Changes it so often.
    pub(crate) fn count(&mut self, times: u64) {
        // As many at once as both sides can hold the requests and the answers of.
        for batch in (0..times).step_by(50) {
            self.pipeline(50.min(times - batch));
        }
    }

    /// Sends requests that follow each other without waiting for the answers.
    fn pipeline(&mut self, times: u64) {
        let mut requests = Vec::new();
        for _ in 0..times {
            let body = json!({"detail": self.at.to_string()}).to_string();
            let head = format!("PATCH {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n", self.path);
            requests.extend_from_slice(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
            self.at += 1;
        }
        self.sent.lock().unwrap().extend((0..times).map(|_| Instant::now()));
        self.socket.write_all(&requests).unwrap();
        let mut answers = 0;
        let mut bytes = Vec::new();
        while answers < times {
            let mut buffer = [0; 16 * 1024];
            let read = self.socket.read(&mut buffer).unwrap();
            assert_ne!(read, 0);
            bytes.extend_from_slice(&buffer[..read]);
            // An answer is over with the object in it, which has none inside.
            let end = bytes.iter().rposition(|byte| *byte == b'}').map_or(0, |at| at + 1);
            answers += bytes.drain(..end).filter(|byte| *byte == b'}').count() as u64;
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.at - 1
    }
}

/// The number in a list.
pub(crate) fn counted(list: &Value) -> Option<u64> {
    let task = list.as_array().unwrap().iter().find(|task| task["label"] == "counts")?;
    task["detail"].as_str()?.parse().ok()
}
