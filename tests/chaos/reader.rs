//! A reader of streams that may break off anywhere: bytes go in, what they say comes out. That the
//! bytes stop is the network's matter; that they are wrong is a fault.

/// One dispatched event (WHATWG HTML §9.2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

/// What came of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The answer's status.
    Head(u16),
    Event(Event),
    /// The last chunk.
    End,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Head,
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    Nothing,
}

/// The state between two reads.
pub(crate) struct Reader {
    next: Next,
    bytes: Vec<u8>,
    line: Vec<u8>,
    name: String,
    id: String,
    data: Option<String>,
}

impl Reader {
    /// `last_id` is what the reader holds from an earlier connection.
    pub(crate) fn new(last_id: &str) -> Self {
        Self {
            next: Next::Head,
            bytes: Vec::new(),
            line: Vec::new(),
            name: String::new(),
            id: last_id.to_owned(),
            data: None,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Said>, String> {
        self.bytes.extend_from_slice(bytes);
        let mut said = Vec::new();
        loop {
            match self.next {
                Next::Head => {
                    let Some(head) = self.until(b"\r\n\r\n") else { return Ok(said) };
                    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                    let status = status.ok_or_else(|| format!("a head of {head:?}"))?;
                    said.push(Said::Head(status));
                    let streams = status == 200 && head.contains("transfer-encoding: chunked");
                    self.next = if streams { Next::ChunkSize } else { Next::Nothing };
                }
                Next::ChunkSize => {
                    let Some(size) = self.until(b"\r\n") else { return Ok(said) };
                    let size = std::str::from_utf8(&size).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
                    self.next = Next::Chunk(size.ok_or("a chunk without a size")?);
                }
                Next::Chunk(0) => {
                    said.push(Said::End);
                    self.next = Next::Nothing;
                }
                Next::Chunk(left) => {
                    if self.bytes.is_empty() {
                        return Ok(said);
                    }
                    let body: Vec<u8> = self.bytes.drain(..left.min(self.bytes.len())).collect();
                    self.next = if body.len() == left { Next::ChunkEnd } else { Next::Chunk(left - body.len()) };
                    self.body(&body, &mut said)?;
                }
                Next::ChunkEnd => {
                    let Some(nothing) = self.until(b"\r\n") else { return Ok(said) };
                    if !nothing.is_empty() {
                        return Err("a chunk that is longer than its size".into());
                    }
                    self.next = Next::ChunkSize;
                }
                Next::Nothing => return Ok(said),
            }
        }
    }

    /// What stands before this end, once it is there.
    fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let at = self.bytes.windows(end.len()).position(|window| window == end)?;
        let before = self.bytes.drain(..at + end.len()).take(at).collect();
        Some(before)
    }

    fn body(&mut self, body: &[u8], said: &mut Vec<Said>) -> Result<(), String> {
        for byte in body {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut self.line)).map_err(|error| error.to_string())?;
            if line.is_empty() {
                let name = std::mem::take(&mut self.name);
                if let Some(data) = self.data.take() {
                    let name = if name.is_empty() { "message".to_owned() } else { name };
                    said.push(Said::Event(Event { name, id: self.id.clone(), data }));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" | "retry" => {}
                "event" => value.clone_into(&mut self.name),
                "id" => value.clone_into(&mut self.id),
                "data" if self.data.is_none() => self.data = Some(value.to_owned()),
                "data" => return Err("two lines of data".into()),
                field => return Err(format!("a field named {field:?}")),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_says_the_same_however_it_is_split() {
        let stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            13\r\nretry: 1\n\nid: 7\ndat\r\n5\r\na: []\r\n2\r\n\n\n\r\n0\r\n\r\n";
        let event = Event { name: "message".into(), id: "7".into(), data: "[]".into() };
        let expected = [Said::Head(200), Said::Event(event), Said::End];
        for piece in 1..stream.len() {
            let mut reader = Reader::new("");
            let said: Vec<_> = stream.chunks(piece).flat_map(|piece| reader.feed(piece).unwrap()).collect();
            assert_eq!(said, expected, "pieces of {piece}");
        }
    }
}
