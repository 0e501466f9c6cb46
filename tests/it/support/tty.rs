//! A program in a real terminal, with somebody at the keys who reads the screen.

use std::{
    io::{Read, Write},
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    thread,
};

use super::{eventually, wait};
use pty_process::{
    Size,
    blocking::{self, Pty},
};

/// A program in a terminal; killed when dropped.
pub(crate) struct Terminal {
    child: Child,
    pty: Arc<Pty>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// 24 lines of 80 characters.
    pub(crate) fn run(command: Command) -> Self {
        Self::with_size(command, 24, 80)
    }

    pub(crate) fn with_size(command: Command, rows: u16, columns: u16) -> Self {
        let (pty, pts) = blocking::open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let child = blocking::Command::from(command).spawn(pts).unwrap();
        Self::watch(child, pty)
    }

    /// A program that is given the terminal for some of its streams alone.
    pub(crate) fn around(command: impl FnOnce(blocking::Command) -> blocking::Command, program: Command) -> Self {
        let (pty, pts) = blocking::open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let child = command(blocking::Command::from(program)).spawn(pts).unwrap();
        Self::watch(child, pty)
    }

    fn watch(child: Child, pty: Pty) -> Self {
        let (pty, written) = (Arc::new(pty), Arc::new(Mutex::new(Vec::new())));
        let (reads, writes) = (Arc::clone(&pty), Arc::clone(&written));
        // Ends when nobody has the terminal open any more.
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = (&*reads).read(&mut some) {
                writes.lock().unwrap().extend_from_slice(&some[..read]);
            }
        });
        Self { child, pty, written }
    }

    pub(crate) fn type_keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// All that was written so far.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until this was written.
    pub(crate) fn until(&self, text: &str) {
        self.until_it(text, |written| written.contains(text));
    }

    pub(crate) fn until_it(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let deadline = std::time::Instant::now() + super::PATIENCE;
        while !is_so(&self.written()) {
            assert!(std::time::Instant::now() < deadline, "never {what:?} in {:?}", self.written());
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Whether lines are edited and keys shown, as a shell expects to find it.
    pub(crate) fn is_as_a_shell_wants_it(&self) -> bool {
        use rustix::termios::{LocalModes, OutputModes, tcgetattr};
        let settings = tcgetattr(&*self.pty).unwrap();
        settings.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
            && settings.output_modes.contains(OutputModes::OPOST)
    }

    /// Waits for the program's end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// What is on a screen of so many columns, line by line, without the empty ones at its end:
    /// of what a list drawn in place uses.
    pub(crate) fn screen(&self) -> Vec<String> {
        let (mut lines, mut row, mut line_start) = (vec![String::new()], 0_usize, true);
        let written = self.written();
        let mut rest = written.as_str();
        while let Some(character) = rest.chars().next() {
            let mut length = character.len_utf8();
            match character {
                '\n' => {
                    row += 1;
                    lines.resize(lines.len().max(row + 1), String::new());
                }
                '\r' => line_start = true,
                '\u{1b}' => {
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).expect("a whole sequence");
                    match &rest[1..=end] {
                        "[J" => {
                            assert!(line_start);
                            lines.truncate(row);
                            lines.push(String::new());
                        }
                        up if up.ends_with('A') => row -= up[1..up.len() - 1].parse::<usize>().unwrap(),
                        colour if colour.ends_with('m') => {}
                        other => panic!("{other:?}"),
                    }
                    length = end + 1;
                }
                other => {
                    if std::mem::take(&mut line_start) {
                        lines[row].clear();
                    }
                    lines[row].push(other);
                }
            }
            rest = &rest[length..];
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// Waits until the screen is so.
    pub(crate) fn shows(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        eventually(&format!("{what} in {:?}", self.screen()), || {
            let screen = self.screen();
            is_so(&screen).then_some(screen)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
