//! A session's live list, as its frames come (WHATWG HTML §9.2.6).
//!
//! Promise: a list is returned whole or not at all, and a stream that fell silent is an error. Never
//! here: who reconnects, and when.

use std::time::Duration;

use tasklight::{Scope, SessionId, TaskView, clock::UnixMillis, paths::tasks_path};
use tokio::time::{Instant, timeout_at};

use super::client::{Client, ClientError, Stream, parsed};

/// The longest silence of a stream that is alive: four of the usual signs of life.
const SILENCE: Duration = Duration::from_mins(1);

/// The longest line: some hundred tasks with the longest labels and details, twice over.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// An open stream of one session's list.
pub(super) struct Events {
    stream: Stream,
    parser: Parser,
    silent_at: Instant,
}

/// One list.
pub(super) struct List {
    pub(super) tasks: Vec<TaskView>,
    /// The same as it came: one line of JSON.
    pub(super) json: String,
    /// The server's time when it was sent; an empty list has none.
    pub(super) sent_at: Option<UnixMillis>,
}

impl Events {
    /// Opens the stream. The list comes at once, also when it is empty.
    pub(super) async fn open(client: &Client, session: &SessionId) -> Result<Self, ClientError> {
        let path = tasks_path(&Scope::Session(session.clone()));
        let stream = client.open().await?.resume(&path).await?;
        Ok(Self { stream, parser: Parser::default(), silent_at: Instant::now() + SILENCE })
    }

    /// The next list; none when the gateway ended the stream. Safe to drop.
    pub(super) async fn next(&mut self) -> Result<Option<List>, ClientError> {
        loop {
            if let Some(Message { id, data }) = self.parser.message() {
                return Ok(Some(List { tasks: parsed(&data)?, sent_at: id.parse().ok().map(UnixMillis), json: data }));
            }
            let next = timeout_at(self.silent_at, self.stream.next()).await.unwrap_or(Err(ClientError::Late));
            let Some(bytes) = next? else {
                return Ok(None);
            };
            self.silent_at = Instant::now() + SILENCE;
            self.parser.feed(&bytes)?;
        }
    }

    /// How long the gateway asks to wait before a reconnect, if it said.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.parser.retry
    }
}

/// Lines to messages. The gateway ends lines with LF alone.
#[derive(Default)]
struct Parser {
    /// What came after the last message that was taken.
    buffer: Vec<u8>,
    /// Up to here there is no line end in `buffer`.
    searched: usize,
    id: String,
    data: Option<String>,
    /// Events by another name than `message` are not lists.
    named: bool,
    retry: Option<Duration>,
}

struct Message {
    id: String,
    data: String,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > MAX_LINE {
            return Err(ClientError::Garbled(format!("a line is longer than {MAX_LINE} bytes")));
        }
        Ok(())
    }

    /// The next whole message.
    fn message(&mut self) -> Option<Message> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let mut line: Vec<u8> = self.buffer.drain(..=self.searched + length).collect();
            line.pop();
            self.searched = 0;
            if line.is_empty() {
                let named = std::mem::take(&mut self.named);
                if let Some(data) = self.data.take().filter(|_| !named) {
                    return Some(Message { id: self.id.clone(), data });
                }
            } else {
                self.field(&String::from_utf8_lossy(&line));
            }
        }
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => match &mut self.data {
                Some(data) => *data = format!("{data}\n{value}"),
                none => *none = Some(value.to_owned()),
            },
            "id" => value.clone_into(&mut self.id),
            "event" => self.named = !value.is_empty() && value != "message",
            "retry" => self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry),
            // A comment has no name.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole_however_they_are_cut() {
        let bytes = "retry: 2381\n: session demo\n\nid: 17\ndata: [\"ü\"]\n\n:\n\nevent: heartbeat\ndata: 9\n\nid:\ndata: []\n\n";
        for size in 1..bytes.len() {
            let mut parser = Parser::default();
            let mut messages = Vec::new();
            for piece in bytes.as_bytes().chunks(size) {
                parser.feed(piece).unwrap();
                messages.extend(std::iter::from_fn(|| parser.message()).map(|message| (message.id, message.data)));
            }
            let expected = [("17", "[\"ü\"]"), ("", "[]")].map(|(id, data)| (id.to_owned(), data.to_owned()));
            assert_eq!(messages, expected, "in pieces of {size}");
            assert_eq!(parser.retry, Some(Duration::from_millis(2381)));
        }
    }
}
