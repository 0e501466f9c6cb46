//! `curl -N`, the client that speaks every version of HTTP, as a reader of lists.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::support::wait;

/// An open stream. It fails, not hangs, when nothing comes.
pub(crate) struct Curl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Status line and headers, the names in lower case.
    pub(crate) head: String,
    pub(crate) comments: Vec<String>,
}

impl Curl {
    /// Opens a stream that may last `seconds`, and reads its head.
    pub(crate) fn open(url: &str, flags: &[&str], seconds: u64) -> Self {
        let mut child = Command::new("curl")
            .args(["-sSiN", "--max-time", &seconds.to_string(), url])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let head = lines.by_ref().map(Result::unwrap).take_while(|line| !line.is_empty());
        let head = head.map(|line| line.to_ascii_lowercase() + "\n").collect();
        Self { child, lines, head, comments: Vec::new() }
    }

    /// The next line; none at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let line = self.lines.next().map(Result::unwrap)?;
        if let Some(comment) = line.strip_prefix(':') {
            self.comments.push(comment.trim_start().to_owned());
        }
        Some(line)
    }

    /// Reads until a list fits, and returns it.
    pub(crate) fn until(&mut self, mut fits: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let line = self.line().expect("the stream goes on");
            if let Some(data) = line.strip_prefix("data: ") {
                let list = serde_json::from_str(data).unwrap();
                if fits(&list) {
                    return list;
                }
            }
        }
    }

    /// Reads to the end; the exit code says whether the stream ended or broke off.
    pub(crate) fn end(mut self) -> Option<i32> {
        while self.line().is_some() {}
        wait(&mut self.child).code()
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
