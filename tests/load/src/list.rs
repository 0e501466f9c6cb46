//! The list that every server publishes: five tasks in 1 KiB, the last of which tells its number.

/// What stands before the number; nowhere else in a list or around it.
pub(crate) const MARK: &[u8] = b"\"step ";
/// Digits of the number.
pub(crate) const DIGITS: usize = 8;
/// Tasks in a list.
pub(crate) const TASKS: usize = 5;

/// The kind of all tasks.
pub(crate) const KIND: &str = "build";

/// What a task is called: as long as a command line is, so that five tasks make 1 KiB.
pub(crate) fn label(task: usize) -> String {
    format!(
        "cargo test --package service-{task} --all-features --test integration -- --nocapture retries_after_the_peer_resets"
    )
}

/// A session's list as JSON, with number 0.
pub(crate) fn json() -> String {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let detail = if task == TASKS - 1 { format!(r#","detail":"step {:0DIGITS$}""#, 0) } else { String::new() };
            let label = label(task);
            format!(
                r#"{{"id":"{KIND}-{task:04}","kind":"{KIND}","label":"{label}","status":"running"{detail},"startedAt":1764531014123}}"#
            )
        })
        .collect();
    format!("[{}]", tasks.join(","))
}

/// A request whose body has the mark, as it is or escaped, and where the number stands in it.
pub(crate) struct Numbered {
    bytes: Vec<u8>,
    digits: usize,
}

impl Numbered {
    /// # Panics
    /// When the request has no number.
    pub(crate) fn new(request: Vec<u8>) -> Self {
        let mark = &MARK[1..];
        let digits = memchr::memmem::find(&request, mark).expect("a request to publish has a number") + mark.len();
        Self { bytes: request, digits }
    }

    pub(crate) fn with(&mut self, mut number: u32) -> &[u8] {
        for digit in self.bytes[self.digits..self.digits + DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
        }
        &self.bytes
    }
}

/// The number that stands behind a mark; none where a chunk ends within it, as some servers cut.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_kibibyte_of_json_with_one_mark() {
        let list = json();
        assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&list).unwrap().len(), TASKS);
        assert!((1_000..1_060).contains(&list.len()), "{}", list.len());
        assert_eq!(memchr::memmem::find_iter(list.as_bytes(), MARK).count(), 1);
        let mut numbered = Numbered::new(list.into_bytes());
        let at = numbered.digits;
        assert_eq!(number(&numbered.with(1_234)[at..at + DIGITS]), Some(1_234));
        assert_eq!(number(b"001\r\n41f"), None);
    }
}
