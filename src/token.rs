//! The secret that opens the control API over TCP.
//!
//! Promises:
//! - It is never shown: not by `Debug`, not in an error, not in a log.
//! - It is compared in constant time.
//! - It is not handed down: commands that the gateway runs do not find it in their environment.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use subtle::ConstantTimeEq;

/// A bearer token (RFC 6750 §2.1), of [`SecretToken::MIN_BYTES`] to [`SecretToken::MAX_BYTES`]
/// bytes. Cloning is cheap.
#[derive(Clone)]
pub struct SecretToken(Arc<str>);

/// Why a text is not a [`SecretToken`]. The text is never in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// Under [`SecretToken::MIN_BYTES`].
    #[error(
        "the control token has {bytes} bytes, and at least {min} are needed; make one with `openssl rand -hex 32`",
        min = SecretToken::MIN_BYTES
    )]
    TooShort {
        /// How long it was, in bytes.
        bytes: usize,
    },
    /// Over [`SecretToken::MAX_BYTES`].
    #[error("the control token has at most {max} bytes", max = SecretToken::MAX_BYTES)]
    TooLong,
    /// Something else than RFC 6750 §2.1 allows.
    #[error("the control token has letters, digits and -._~+/ only, and maybe '=' at its end")]
    Forbidden,
}

/// Why a file has no [`SecretToken`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the control token in {}: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Everybody on this machine can read or change it.
    #[error("others can read or change the control token in {0}; make it private: chmod 600 {0}", path.display())]
    Exposed {
        /// Which file.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error("the control token in {} belongs to another user", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
    /// What is in it is no token.
    #[error("{problem} (in {})", path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: InvalidToken,
    },
}

impl SecretToken {
    /// The variable by which the `tasklight` program can be given the token.
    pub const VARIABLE: &str = "TASKLIGHT_CONTROL_TOKEN";
    /// The shortest token, in bytes: with fewer, guessing begins to make sense.
    pub const MIN_BYTES: usize = 16;
    /// The longest token, in bytes: it is sent with each request.
    pub const MAX_BYTES: usize = 1_024;

    /// Takes a token.
    ///
    /// # Errors
    /// When it is too short, too long, or cannot stand in a header.
    pub fn new(text: &str) -> Result<Self, InvalidToken> {
        if text.len() < Self::MIN_BYTES {
            return Err(InvalidToken::TooShort { bytes: text.len() });
        }
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidToken::TooLong);
        }
        let body = text.trim_end_matches('=');
        if body.is_empty() || !body.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b)) {
            return Err(InvalidToken::Forbidden);
        }
        Ok(Self(text.into()))
    }

    /// Takes the token that is all of a file, but for white space at its end.
    ///
    /// # Errors
    /// When the file cannot be read, belongs to neither this user nor root, can be read or changed
    /// by every user or changed by its group, or holds no token.
    pub fn from_file(path: &Path) -> Result<Self, TokenFileError> {
        let unreadable = |source| TokenFileError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        // Of the file that is open, whatever its name leads to by now.
        let found = file.metadata().map_err(unreadable)?;
        if found.mode() & 0o026 != 0 {
            return Err(TokenFileError::Exposed { path: path.to_owned() });
        }
        if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
            return Err(TokenFileError::Foreign { path: path.to_owned() });
        }
        let invalid = |problem| TokenFileError::Invalid { path: path.to_owned(), problem };
        let mut bytes = Vec::new();
        file.take(2 * Self::MAX_BYTES as u64).read_to_end(&mut bytes).map_err(unreadable)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| invalid(InvalidToken::Forbidden))?;
        Self::new(text.trim_end()).map_err(invalid)
    }

    /// Whether this is the token. Takes as long for a wrong one that has the right length as for
    /// the right one. The length is not hidden: of a random token it says nothing.
    pub(crate) fn is(&self, offered: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(offered).into()
    }

    /// The value of the `Authorization` header that bears this token (RFC 6750 §2.1).
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_long_enough_and_fits_a_header() {
        for good in [TOKEN, "abcDEF-._~+/0123==", &"x".repeat(1_024)] {
            assert!(SecretToken::new(good).is_ok());
        }
        let problem = |text: &str| SecretToken::new(text).unwrap_err();
        assert_eq!(problem("0123456789abcde"), InvalidToken::TooShort { bytes: 15 });
        assert_eq!(problem(&"x".repeat(1_025)), InvalidToken::TooLong);
        for bad in
            ["0123456789 abcdef", "0123456789=abcdef", "================", "0123456789abcdé", "0123456789\nabcdef"]
        {
            assert_eq!(problem(bad), InvalidToken::Forbidden, "{bad}");
        }
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = SecretToken::new(TOKEN).unwrap();
        assert!(token.is(TOKEN.as_bytes()));
        for wrong in ["", "0123456789abcdeg", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        assert!(!format!("{:?}", SecretToken::new(TOKEN)).contains("0123"));
    }

    #[test]
    fn a_token_file_is_private_and_holds_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |content: &[u8], mode| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            SecretToken::from_file(&path)
        };
        assert!(read(b"0123456789abcdef\n", 0o600).unwrap().is(TOKEN.as_bytes()));
        assert!(read(b"0123456789abcdef", 0o440).is_ok());
        for exposed in [0o604, 0o602, 0o620, 0o644, 0o666] {
            let error = read(b"0123456789abcdef\n", exposed).unwrap_err();
            assert!(matches!(error, TokenFileError::Exposed { .. }), "{exposed:o}: {error}");
            assert!(error.to_string().contains("chmod 600"));
        }
        let error = read(b"short\n", 0o600).unwrap_err();
        assert!(matches!(&error, TokenFileError::Invalid { problem: InvalidToken::TooShort { bytes: 5 }, .. }));
        assert!(matches!(read(b"\xff", 0o600).unwrap_err(), TokenFileError::Invalid { .. }));
        assert!(matches!(read(&[b'x'; 9_000], 0o600).unwrap_err(), TokenFileError::Invalid { .. }));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(SecretToken::from_file(&path).unwrap_err(), TokenFileError::Unreadable { .. }));
    }
}
