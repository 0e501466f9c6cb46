//! One task's output: a tail of bounded size, with absolute offsets and the model's one cursor.
//!
//! Promise: what is kept is the newest part; what fell out before it was read is counted and said
//! where it is missing; no character is cut in two, at either end.
//! Never here: pipes, files, waiting.

use std::collections::VecDeque;

/// The log of one task's output.
#[derive(Debug)]
pub(crate) struct OutputLog {
    /// The kept tail. Its first byte has the absolute offset `start`.
    tail: VecDeque<u8>,
    start: u64,
    /// The absolute offset up to which the model has read.
    cursor: u64,
    limit: usize,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Bytes that fell out before they were read; they stood in front of `text`.
    pub(crate) dropped: u64,
    /// What came since the last read. Bytes that are not UTF-8 are shown as U+FFFD.
    pub(crate) text: String,
}

/// Whether more can come, which decides about half a character at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// Half a character at the end waits for its other half.
    Expected,
    /// The task has ended: what there is, is all.
    No,
}

impl OutputLog {
    /// An empty log that keeps at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { tail: VecDeque::new(), start: 0, cursor: 0, limit }
    }

    /// Whether something falls out when so many bytes are added.
    pub(crate) fn overflows(&self, bytes: usize) -> bool {
        self.tail.len() + bytes > self.limit
    }

    /// What is kept, oldest first, in two parts.
    pub(crate) fn kept(&self) -> [&[u8]; 2] {
        self.tail.as_slices().into()
    }

    /// Adds bytes at the end; the oldest fall out where the limit is passed.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let kept = bytes.get(bytes.len().saturating_sub(self.limit)..).unwrap_or_default();
        let skipped = bytes.len() - kept.len();
        // The tail may have gone with the head of a character whose rest comes now.
        let fell_out = self.start > 0 && self.tail.is_empty();
        let over = (self.tail.len() + kept.len()).saturating_sub(self.limit).min(self.tail.len());
        self.tail.drain(..over);
        self.start += (over + skipped) as u64;
        self.tail.extend(kept);
        if fell_out || over + skipped > 0 {
            self.start_at_a_character();
        }
    }

    /// Drops the rest of a character whose head fell out: at most three continuation bytes, so
    /// that a log which is not UTF-8 at all is not eaten.
    fn start_at_a_character(&mut self) {
        let torn = self.tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        self.tail.drain(..torn);
        self.start += torn as u64;
    }

    /// Whether a read would find something.
    pub(crate) fn has_unread(&self, more: More) -> bool {
        self.readable_end(more) > self.cursor
    }

    /// What came since the last read; moves the cursor behind it.
    pub(crate) fn read(&mut self, more: More) -> Unread {
        let end = self.readable_end(more);
        let from = self.cursor.max(self.start);
        let dropped = from - self.cursor;
        let skip = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        let take = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = self.tail.iter().skip(skip).take(take).copied().collect();
        self.cursor = end.max(from);
        Unread { dropped, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    /// The absolute offset behind the last whole character.
    fn readable_end(&self, more: More) -> u64 {
        let end = self.start + self.tail.len() as u64;
        match more {
            More::No => end,
            More::Expected => end - self.half_character() as u64,
        }
    }

    /// How many bytes at the end are the head of a character that is not whole yet
    /// (RFC 3629 §3: the first byte says how many follow, at most three).
    fn half_character(&self) -> usize {
        let tail = self.tail.iter().rev().take(3);
        for (continuations, byte) in tail.enumerate() {
            let wants = match byte {
                0xC2..=0xDF => 2,
                0xE0..=0xEF => 3,
                0xF0..=0xF4 => 4,
                byte if is_continuation(*byte) => continue,
                _ => return 0,
            };
            let has = continuations + 1;
            return if has < wants { has } else { 0 };
        }
        0
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(dropped: u64, text: &str) -> Unread {
        Unread { dropped, text: text.to_owned() }
    }

    #[test]
    fn a_read_gives_what_came_since_the_last_one() {
        let mut log = OutputLog::new(100);
        assert!(!log.has_unread(More::Expected));
        log.append(b"one\n");
        assert!(log.has_unread(More::Expected));
        assert_eq!(log.read(More::Expected), unread(0, "one\n"));
        assert_eq!(log.read(More::Expected), unread(0, ""));
        log.append(b"two\n");
        assert_eq!(log.read(More::No), unread(0, "two\n"));
    }

    #[test]
    fn what_fell_out_unread_is_counted_once() {
        let mut log = OutputLog::new(4);
        log.append(b"ab");
        assert_eq!(log.read(More::Expected), unread(0, "ab"));
        log.append(b"cdefgh");
        assert_eq!(log.read(More::Expected), unread(2, "efgh"));
        log.append(b"ij");
        assert_eq!(log.read(More::Expected), unread(0, "ij"));
    }

    #[test]
    fn one_append_over_the_limit_keeps_its_end() {
        let mut log = OutputLog::new(3);
        log.append(b"x");
        log.append(b"0123456789");
        assert_eq!(log.read(More::Expected), unread(8, "789"));
    }

    #[test]
    fn a_head_that_falls_out_takes_whole_characters_with_it() {
        let mut log = OutputLog::new(5);
        log.append("🦀ab".as_bytes());
        log.append(b"c");
        assert_eq!(log.read(More::Expected), unread(4, "abc"));
    }

    #[test]
    fn a_tail_shorter_than_a_character_has_whole_ones_or_none() {
        let mut log = OutputLog::new(1);
        for byte in "a€b".bytes() {
            log.append(&[byte]);
            assert!(!log.kept().concat().iter().any(|byte| is_continuation(*byte)));
        }
        assert_eq!(log.read(More::Expected), unread(4, "b"));
    }

    #[test]
    fn half_a_character_waits_for_its_other_half_until_the_end() {
        let crab = "🦀".as_bytes();
        for cut in 1..4 {
            let mut log = OutputLog::new(100);
            log.append(b"a");
            log.append(&crab[..cut]);
            assert_eq!(log.read(More::Expected), unread(0, "a"));
            assert!(!log.has_unread(More::Expected));
            log.append(&crab[cut..]);
            assert_eq!(log.read(More::Expected), unread(0, "🦀"));
            log.append(&crab[..cut]);
            assert!(log.has_unread(More::No));
            assert_eq!(log.read(More::No), unread(0, "\u{fffd}"));
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_and_never_stop_the_log() {
        let mut log = OutputLog::new(8);
        log.append(&[0x80; 20]);
        let read = log.read(More::Expected);
        assert_eq!(read.text.chars().filter(|c| *c == '\u{fffd}').count() as u64 + read.dropped, 20);
        log.append(&[0xFF, 0xC0, b'x']);
        assert_eq!(log.read(More::Expected), unread(0, "\u{fffd}\u{fffd}x"));
    }
}
