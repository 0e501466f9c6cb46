//! The names of things: sessions, kinds of task, tasks.
//!
//! Promise: a value of these types is valid. Each is parsed once, where it enters, and the parser
//! is the only way in. Never here: percent-decoding (that belongs to the URL, see `http::route`).

mod terminal;

use std::{fmt, num::NonZeroU64, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};

pub use self::terminal::{InvalidTerminalId, TerminalId};

/// A session: the owner of tasks, and the name under which people watch them.
///
/// 1 to [`SessionId::MAX_BYTES`] bytes of UTF-8, without control characters and without `/`, so
/// that it always fits one segment of a path. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// The longest session id, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 128;

    /// Takes a decoded name.
    ///
    /// # Errors
    /// When it is empty, too long, or has a character that is not allowed.
    pub fn new(name: &str) -> Result<Self, InvalidSessionId> {
        if name.is_empty() {
            return Err(InvalidSessionId::Empty);
        }
        if name.len() > Self::MAX_BYTES {
            return Err(InvalidSessionId::TooLong { bytes: name.len() });
        }
        match name.chars().find(|c| c.is_control() || *c == '/') {
            Some(character) => Err(InvalidSessionId::Forbidden { character }),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is not a [`SessionId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSessionId {
    /// No character at all.
    #[error("a session id has at least one character")]
    Empty,
    /// Over [`SessionId::MAX_BYTES`].
    #[error("a session id has at most {max} bytes, this one has {bytes}", max = SessionId::MAX_BYTES)]
    TooLong {
        /// How long it was, in bytes.
        bytes: usize,
    },
    /// A control character or `/`.
    #[error("a session id has no control character and no '/', this one has {character:?}")]
    Forbidden {
        /// The first such character.
        character: char,
    },
    /// Bytes that are not UTF-8, found while decoding a path.
    #[error("a session id is UTF-8, this one has other bytes")]
    NotUtf8,
}

/// What sort of work a task is: `bash`, `pty`, `subagent`, …: an open set.
///
/// `[a-z][a-z0-9-]{0,31}`. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Kind(Arc<str>);

impl Kind {
    /// The longest kind, in bytes.
    pub const MAX_BYTES: usize = 32;

    /// Takes a kind's name.
    ///
    /// # Errors
    /// When it is not `[a-z][a-z0-9-]{0,31}`.
    pub fn new(name: &str) -> Result<Self, InvalidKind> {
        let mut bytes = name.bytes();
        let valid = name.len() <= Self::MAX_BYTES
            && bytes.next().is_some_and(|b| b.is_ascii_lowercase())
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if valid { Ok(Self(name.into())) } else { Err(InvalidKind) }
    }

    /// The kind of a command run by `bash -c`.
    #[must_use]
    pub fn bash() -> Self {
        Self("bash".into())
    }

    /// The kind of a text that is sent to a terminal.
    #[must_use]
    pub fn pty() -> Self {
        Self("pty".into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is not a [`Kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a kind is a lower-case letter, then up to 31 lower-case letters, digits or '-'")]
pub struct InvalidKind;

/// A task's name: `<kind>-<n>`, n counting per kind from 1, never used twice in one process.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct TaskId {
    kind: Kind,
    number: NonZeroU64,
}

impl TaskId {
    pub(crate) fn new(kind: Kind, number: NonZeroU64) -> Self {
        Self { kind, number }
    }

    /// The kind in front of the number.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The number behind the kind.
    pub(crate) fn number(&self) -> NonZeroU64 {
        self.number
    }
}

impl FromStr for TaskId {
    type Err = InvalidTaskId;

    /// Reads `<kind>-<n>` in its one spelling: no sign, no leading zero.
    fn from_str(text: &str) -> Result<Self, InvalidTaskId> {
        let (kind, digits) = text.rsplit_once('-').ok_or(InvalidTaskId)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.starts_with('0') {
            return Err(InvalidTaskId);
        }
        Ok(Self {
            kind: Kind::new(kind).map_err(|_| InvalidTaskId)?,
            number: digits.parse().map_err(|_| InvalidTaskId)?,
        })
    }
}

/// Why a text is not a [`TaskId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task id is a kind, '-' and a number from 1, such as bash-1")]
pub struct InvalidTaskId;

/// Whose list: a session's own, or that of the tasks without an owner, which every session sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A session and its tasks.
    Session(SessionId),
    /// The tasks that belong to no session.
    Unowned,
}

impl Scope {
    /// The session, if it is one.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session) => Some(session),
            Self::Unowned => None,
        }
    }

    /// Whether `caller` may see what is in here: its own, and what nobody owns.
    pub(crate) fn is_seen_by(&self, caller: &Self) -> bool {
        *self == Self::Unowned || self == caller
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.session().map_or("(unowned)", SessionId::as_str))
    }
}

impl TaskId {
    /// `<kind>-<n>`.
    fn text(&self) -> String {
        [self.kind.as_str(), "-", itoa::Buffer::new().format(self.number.get())].concat()
    }
}

/// Text in and out for the two names that are nothing but checked text.
macro_rules! text {
    ($name:ident, $error:ident) => {
        impl FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }
    };
}
text!(SessionId, InvalidSessionId);
text!(Kind, InvalidKind);

/// What `serde` and `{:?}` need, the same for all three.
macro_rules! as_text {
    ($($name:ident, $text:ident, $error:ident;)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.$text().as_ref())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl TryFrom<String> for $name {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.$text().as_ref())
            }
        }
    )*};
}
as_text! {
    SessionId, as_str, InvalidSessionId;
    Kind, as_str, InvalidKind;
    TaskId, text, InvalidTaskId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_holds_any_text_but_control_characters_and_slashes() {
        for good in ["a", "demo", "构建", "a b", "..", "%2F", &"x".repeat(128)] {
            assert_eq!(SessionId::new(good).unwrap().as_str(), good);
        }
        assert_eq!(SessionId::new(""), Err(InvalidSessionId::Empty));
        assert_eq!(SessionId::new(&"x".repeat(129)), Err(InvalidSessionId::TooLong { bytes: 129 }));
        for (bad, character) in [("a/b", '/'), ("a\n", '\n'), ("\u{85}", '\u{85}'), ("\0", '\0')] {
            assert_eq!(SessionId::new(bad), Err(InvalidSessionId::Forbidden { character }));
        }
    }

    #[test]
    fn a_kind_is_short_lower_case_and_starts_with_a_letter() {
        for good in ["a", "bash", "a-1", &"k".repeat(32)] {
            assert!(Kind::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "-a", "Bash", "a_b", "é", &"k".repeat(33)] {
            assert_eq!(Kind::new(bad), Err(InvalidKind), "{bad}");
        }
    }

    #[test]
    fn a_task_id_has_one_spelling() {
        for good in ["bash-1", "sub-agent-42", "a-18446744073709551615"] {
            assert_eq!(good.parse::<TaskId>().unwrap().to_string(), good);
        }
        for bad in ["bash", "bash-", "bash-0", "bash-01", "bash-+1", "Bash-1", "-1", "a-18446744073709551616"] {
            assert_eq!(bad.parse::<TaskId>(), Err(InvalidTaskId), "{bad}");
        }
    }
}
