//! Server-Sent Events as bytes.
//!
//! Source: WHATWG HTML, "Server-sent events", §9.2.5 (parsing) and §9.2.6 (interpreting).
//! Promise: whatever the list holds, a frame is exactly one event whose data is the list's JSON:
//! line ends are LF only, there is no byte order mark, and the data is one line.
//! Never here: a socket, a clock, a registry.

use std::{
    io::{self, Write},
    ops::Range,
};

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

use crate::clock::UnixMillis;

/// The media type of an event stream (§9.2.2).
pub(crate) const MEDIA_TYPE: &str = "text/event-stream";

/// A list as JSON that stays one line for every reader.
///
/// §9.2.5 ends lines at CR, LF and CRLF only, and JSON escapes those; but some clients split text
/// at every Unicode line separator, so U+2028, U+2029 and U+0085 are escaped too.
pub(crate) fn json_line(value: &impl Serialize) -> Bytes {
    let mut json = Vec::with_capacity(256);
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, OneLine(CompactFormatter)));
    debug_assert!(written.is_ok(), "a list is plain data: {written:?}");
    json.into()
}

/// Appends a text as a JSON string, as [`json_line`] writes it.
pub(crate) fn push_string(json: &mut Vec<u8>, text: &str) {
    // Most text has none. A fold does not stop at the first, so that many bytes are looked at together.
    let escapes = |byte: u8| matches!(byte, ..b' ' | b'"' | b'\\' | b'\x7f'..);
    if text.bytes().fold(0, |any, byte| any | u8::from(escapes(byte))) == 0 {
        json.push(b'"');
        json.extend_from_slice(text.as_bytes());
        json.push(b'"');
    } else {
        json.extend_from_slice(&json_line(&text));
    }
}

struct OneLine(CompactFormatter);

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Most text is, and has none of them: it need not be looked at character by character.
        if fragment.is_ascii() {
            return self.0.write_string_fragment(writer, fragment);
        }
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')) {
            let (before, from) = rest.split_at(at);
            write!(writer, "{before}\\u{:04x}", u32::from(c))?;
            rest = from.get(c.len_utf8()..).unwrap_or_default();
        }
        self.0.write_string_fragment(writer, rest)
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        self.0.write_char_escape(writer, escape)
    }
}

/// What a frame's `id:` field says (§9.2.6: a reader sends the last one back when it reconnects).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventId<'a> {
    /// The server's clock when the frame was made.
    Stamp(UnixMillis),
    /// One that means something to the server alone.
    Opaque(&'a str),
    /// An empty id: the reader forgets the last one, and sends none when it reconnects.
    Reset,
}

/// What comes before an unnamed event's data, which is one line of JSON.
fn before_data(id: EventId<'_>) -> String {
    let mut stamp = itoa::Buffer::new();
    let id = match id {
        EventId::Stamp(UnixMillis(at)) => [" ", stamp.format(at)],
        EventId::Opaque(id) => [" ", id],
        EventId::Reset => ["", ""],
    };
    ["id:", id[0], id[1], "\ndata: "].concat()
}

/// What comes after it: the line's end, and the blank line that ends the event.
const AFTER_DATA: &[u8] = b"\n\n";

/// One unnamed event, ready for a socket: `data` is one line of JSON.
pub(crate) fn event(id: EventId<'_>, data: &[u8]) -> BytesMut {
    let before = before_data(id);
    let mut event = BytesMut::with_capacity(before.len() + data.len() + AFTER_DATA.len());
    event.extend_from_slice(before.as_bytes());
    event.extend_from_slice(data);
    event.extend_from_slice(AFTER_DATA);
    event
}

/// An unnamed event as one chunk, and where in it the event and its data stand.
#[derive(Debug, Clone)]
pub(crate) struct ChunkedEvent {
    pub(crate) chunk: Bytes,
    pub(crate) event: Range<usize>,
    pub(crate) data: Range<usize>,
}

impl ChunkedEvent {
    /// `write` appends the data, which is one line of JSON and `length` bytes long.
    pub(crate) fn new(id: EventId<'_>, length: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let before = before_data(id);
        let size = chunk_size(before.len() + length + AFTER_DATA.len());
        let event = size.len()..size.len() + before.len() + length + AFTER_DATA.len();
        let data = event.start + before.len()..event.end - AFTER_DATA.len();
        let mut chunk = Vec::with_capacity(event.end + LINE_END.len());
        chunk.extend_from_slice(size.as_bytes());
        chunk.extend_from_slice(before.as_bytes());
        write(&mut chunk);
        debug_assert_eq!(chunk.len(), data.end, "as long as was said");
        chunk.extend_from_slice(AFTER_DATA);
        chunk.extend_from_slice(LINE_END);
        Self { chunk: chunk.into(), event, data }
    }
}

/// A comment (§9.2.6: a line that starts with a colon is ignored), and the blank line after it.
pub(crate) fn comment(text: &str) -> String {
    debug_assert!(!text.contains(['\r', '\n']), "a comment is one line");
    format!(": {text}\n\n")
}

/// An id without an event (§9.2.6, dispatch: the last id is set first, and no data is no event).
pub(crate) fn position(id: &str) -> String {
    format!("id: {id}\n\n")
}

/// How long a reader waits before it connects again, in milliseconds.
pub(crate) fn retry(milliseconds: u64) -> String {
    format!("retry: {milliseconds}\n")
}

/// The shortest sign of life: an empty comment.
pub(crate) const BEAT: &str = ":\n\n";

/// A sign of life that `EventSource` shows to a script, which comments are not: a named event with
/// the server's clock. It bears no id, so it leaves the reader's last one as it is.
pub(crate) fn beat_event(now: UnixMillis) -> String {
    format!("event: heartbeat\ndata: {now}\n\n")
}

const LINE_END: &[u8] = b"\r\n";

/// What comes before a chunk's bytes.
fn chunk_size(length: usize) -> String {
    format!("{length:x}\r\n")
}

/// The same bytes as one chunk of a chunked body (RFC 9112 §7.1).
pub(crate) fn chunk(payload: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(payload.len() + 20);
    framed.extend_from_slice(chunk_size(payload.len()).as_bytes());
    framed.extend_from_slice(payload);
    framed.extend_from_slice(LINE_END);
    framed.freeze()
}

/// The chunk that ends a chunked body (RFC 9112 §7.1).
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn data(label: &str) -> String {
        String::from_utf8(json_line(&[label]).to_vec()).unwrap()
    }

    #[test]
    fn line_separators_of_every_sort_are_escaped() {
        assert_eq!(data("a\rdata: []\r\r"), r#"["a\rdata: []\r\r"]"#);
        assert_eq!(data("\n\r\n"), r#"["\n\r\n"]"#);
        assert_eq!(data("x\u{2028}y\u{2029}\u{85}z"), r#"["x\u2028y\u2029\u0085z"]"#);
        assert_eq!(data("构建 🦀 \u{feff}"), "[\"构建 🦀 \u{feff}\"]");
    }

    #[test]
    fn what_was_escaped_reads_back_as_it_was() {
        for label in ["\u{2028}", "a\u{85}", "\"\\\u{2029}\"", "\u{0}\u{1f}\u{7f}", ""] {
            let back: Vec<String> = serde_json::from_str(&data(label)).unwrap();
            assert_eq!(back, [label]);
        }
    }

    #[test]
    fn an_event_is_its_id_one_data_line_and_a_blank_line() {
        assert_eq!(&event(EventId::Stamp(UnixMillis(17)), b"[1]")[..], b"id: 17\ndata: [1]\n\n");
        assert_eq!(&event(EventId::Reset, b"[]")[..], b"id:\ndata: []\n\n");
    }

    #[test]
    fn a_chunked_event_is_the_event_in_a_chunk() {
        for (id, data) in [(EventId::Stamp(UnixMillis(17)), &b"[1]"[..]), (EventId::Reset, &[b'x'; 1_000])] {
            let chunked = ChunkedEvent::new(id, data.len(), |chunk| chunk.extend_from_slice(data));
            let event = event(id, data);
            assert_eq!(chunked.chunk, chunk(&event));
            assert_eq!(chunked.chunk[chunked.event], event);
            assert_eq!(&chunked.chunk[chunked.data], data);
        }
    }

    #[test]
    fn a_chunk_is_its_length_in_hex_the_bytes_and_line_ends() {
        assert_eq!(&chunk(b"0123456789abcdef0")[..], b"11\r\n0123456789abcdef0\r\n");
    }
}
