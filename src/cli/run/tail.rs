//! The end of the command's output, for the gateway.
//!
//! Promise: an append never waits for the network; what is kept is bounded, and what fell out
//! before it was sent is said where it is missing.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Bytes kept, as many as the gateway keeps by default.
const KEPT: usize = 256 * 1024;

/// Bytes sent at once: bytes that are not text grow to three each, and an append takes 256 KiB.
const AT_ONCE: usize = 64 * 1024;

/// Shared by the threads that relay output and the task that reports it.
#[derive(Default)]
pub(super) struct Tail {
    log: Mutex<Log>,
    grown: Notify,
}

#[derive(Default)]
struct Log {
    bytes: VecDeque<u8>,
    /// The absolute offset of the first byte that is kept.
    start: u64,
    /// The absolute offset up to which the gateway has it.
    sent: u64,
}

/// Some output that the gateway does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) text: String,
    /// The absolute offset behind it.
    end: u64,
}

/// Whether half a character at the end waits for its other half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    Expected,
    No,
}

impl Tail {
    pub(super) fn append(&self, bytes: &[u8]) {
        self.log().append(bytes);
        self.grown.notify_one();
    }

    /// Returns after an append. Safe to drop.
    pub(super) async fn grown(&self) {
        self.grown.notified().await;
    }

    /// The next that is to be sent, if there is something.
    pub(super) fn next(&self, more: More) -> Option<Batch> {
        self.log().next(more)
    }

    /// The gateway has it.
    pub(super) fn sent(&self, batch: &Batch) {
        self.log().sent = batch.end;
    }

    /// A new task has none of it.
    pub(super) fn send_again(&self) {
        self.log().sent = 0;
        self.grown.notify_one();
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..over);
        self.start += over as u64;
    }

    fn next(&self, more: More) -> Option<Batch> {
        let from = self.sent.max(self.start);
        let skip = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        let mut bytes: Vec<u8> = self.bytes.iter().skip(skip).take(AT_ONCE).copied().collect();
        let is_last = skip + bytes.len() >= self.bytes.len();
        if !is_last || more == More::Expected {
            bytes.truncate(bytes.len() - half_character(&bytes));
        }
        if bytes.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = match from - self.sent {
            0 => text.into_owned(),
            dropped => format!("[{dropped} bytes of output are missing here]\n{text}"),
        };
        Some(Batch { text, end: from + bytes.len() as u64 })
    }
}

/// How many bytes at the end are the head of a character whose rest is still to come.
fn half_character(bytes: &[u8]) -> usize {
    let end = bytes.utf8_chunks().last().map(|chunk| chunk.invalid()).unwrap_or_default();
    // One that is incomplete, and not wrong, has no length as an error.
    let is_head = std::str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
    if is_head { end.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(tail: &Tail, more: More) -> Option<String> {
        let batch = tail.next(more)?;
        tail.sent(&batch);
        Some(batch.text)
    }

    #[test]
    fn what_was_sent_is_not_sent_again_but_to_a_new_task() {
        let tail = Tail::default();
        assert_eq!(next(&tail, More::Expected), None);
        tail.append(b"one ");
        assert_eq!(tail.next(More::Expected), tail.next(More::Expected), "until it was sent");
        assert_eq!(next(&tail, More::Expected).unwrap(), "one ");
        tail.append(b"two");
        assert_eq!(next(&tail, More::Expected).unwrap(), "two");
        assert_eq!(next(&tail, More::Expected), None);
        tail.send_again();
        assert_eq!(next(&tail, More::Expected).unwrap(), "one two");
    }

    #[test]
    fn half_a_character_waits_for_its_other_half_until_the_end() {
        let tail = Tail::default();
        tail.append(b"a\xf0\x9f");
        assert_eq!(next(&tail, More::Expected).unwrap(), "a");
        assert_eq!(next(&tail, More::Expected), None);
        tail.append(b"\xa6\x80\xff");
        assert_eq!(next(&tail, More::Expected).unwrap(), "🦀\u{fffd}");
        tail.append(b"\xe2\x80");
        assert_eq!(next(&tail, More::No).unwrap(), "\u{fffd}");
    }

    #[test]
    fn what_fell_out_is_counted_and_each_batch_fits_an_append() {
        let tail = Tail::default();
        tail.append(b"first");
        for _ in 0..KEPT / 1024 {
            tail.append(&[0xff; 1024]);
        }
        let first = next(&tail, More::Expected).unwrap();
        assert!(first.starts_with("[5 bytes of output are missing here]\n"), "{}", &first[..50]);
        assert!(first.len() <= 256 * 1024);
        let rest: usize = std::iter::from_fn(|| next(&tail, More::Expected)).map(|text| text.len() / 3).sum();
        assert_eq!(rest, KEPT - AT_ONCE);
    }
}
