//! Text of the wire, for a terminal or a model to read.
//!
//! Promise: what is read is what is there. A character that would command a terminal, turn the
//! order of others or hide among them is shown by its number.

use std::{fmt::Write, time::Duration};

use unicode_width::UnicodeWidthChar;

/// On one line.
pub(super) fn one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        push(&mut shown, character);
    }
    shown
}

/// On the lines of a terminal, which gets colours (ECMA-48 §8.3.117, SGR) and nothing else to
/// obey. Where a program went back to write over its line, a new line begins.
pub(super) fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut colours = false;
    while let Some(character) = rest.chars().next() {
        let length = match character {
            '\u{1b}' if let Some(length) = colour(rest) => {
                shown.push_str(rest.get(..length).unwrap_or_default());
                colours = true;
                length
            }
            '\r' if rest.starts_with("\r\n") => 1,
            '\r' | '\n' => {
                shown.push('\n');
                1
            }
            '\t' => {
                shown.push('\t');
                1
            }
            other => {
                push(&mut shown, other);
                other.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    if colours {
        shown.push_str("\u{1b}[0m");
    }
    shown
}

/// How long the sequence of a colour is that stands in front.
fn colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
    parameters.get(end..)?.starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

fn push(shown: &mut String, character: char) {
    if is_hidden(character) {
        // Writing to a string does not fail.
        let _ = write!(shown, "{}", character.escape_default());
    } else {
        shown.push(character);
    }
}

/// Control characters, the controls of direction (UAX #9 §2), line and paragraph separators, and
/// tags, which nobody sees and a model reads.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// How many columns a text without control characters takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().filter_map(UnicodeWidthChar::width).sum()
}

/// As much as fits into so many columns; an ellipsis stands for the rest.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let mut kept = String::new();
    for character in text.chars() {
        match left.checked_sub(character.width().unwrap_or_default()) {
            Some(rest) => left = rest,
            None => break,
        }
        kept.push(character);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// `42s`, `3m 05s`, `2h 07m`, rounded down.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m {:02}s", seconds % 60),
        (hours, minutes) => format!("{hours}h {minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_and_rounded_down() {
        let shown = |millis| duration(Duration::from_millis(millis));
        assert_eq!(shown(999), "0s");
        assert_eq!(shown(42_999), "42s");
        assert_eq!(shown(185_000), "3m 05s");
        assert_eq!(shown(7_639_999), "2h 07m");
    }

    #[test]
    fn a_label_cannot_command_the_terminal_or_turn_its_order() {
        assert_eq!(one_line("a\u{1b}[31m\nb\u{9b}"), "a\\u{1b}[31m\\nb\\u{9b}");
        assert_eq!(one_line("x\u{202e}y\u{2066}z\u{e0041}é"), "x\\u{202e}y\\u{2066}z\\u{e0041}é");
    }

    #[test]
    fn output_on_a_terminal_has_its_colours_and_nothing_else_to_obey() {
        assert_eq!(lines("\u{1b}[1;31mred\u{1b}[m\tx\n"), "\u{1b}[1;31mred\u{1b}[m\tx\n\u{1b}[0m");
        assert_eq!(lines("\u{1b}[2J\u{1b}]0;title\u{7}"), "\\u{1b}[2J\\u{1b}]0;title\\u{7}");
        assert_eq!(lines("50%\r100%\r\ndone\u{8}"), "50%\n100%\ndone\\u{8}");
        assert_eq!(lines("\u{1b}[31"), "\\u{1b}[31");
    }

    #[test]
    fn a_text_is_cut_by_columns_and_never_in_a_character() {
        assert_eq!(cut("构建项目", 8), "构建项目");
        assert_eq!(cut("构建项目", 7), "构建项…");
        assert_eq!(cut("构建项目", 6), "构建…");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".to_owned(), String::new()));
    }
}
