//! The Unix socket of the control API.
//!
//! Promises:
//! - It is there for its owner only (mode 0600), and was never there for anybody else: it is made
//!   in a folder that nobody else can enter, and moved to its place.
//! - What a dead gateway left behind is replaced; a gateway that lives is not. A lock on a file
//!   beside the socket tells them apart, since the kernel gives it back however its holder ended.
//! - The socket file goes when the gateway ends.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt},
        net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
    task::{Context, Poll},
};

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};

use super::BindError;

/// A control socket in its place.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Held as long as the socket is ours.
    _lock: File,
}

impl ControlSocket {
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |source| BindError::Control { path: path.to_owned(), source };
        let in_use = || BindError::ControlInUse { path: path.to_owned() };
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(beside(".lock"))
            .map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(in_use());
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(BindError::ControlNotASocket { path: path.to_owned() });
            }
            // Not one of ours, which would hold the lock, but somebody answers.
            Ok(_) if StdUnixStream::connect(path).is_ok() => return Err(in_use()),
            Ok(_) => tracing::info!(socket = %path.display(), "replacing the socket of a dead gateway"),
        }
        let nursery = beside(".new");
        let listener = born_private(&nursery, path).map_err(failed);
        let _ = fs::remove_dir_all(&nursery);
        Ok(Self { listener: listener?, path: path.to_owned(), _lock: lock })
    }

    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.listener.poll_accept(cx).map_ok(|(socket, _)| socket)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn born_private(nursery: &Path, path: &Path) -> io::Result<UnixListener> {
    let _ = fs::remove_dir_all(nursery);
    DirBuilder::new().mode(0o700).create(nursery)?;
    let born = nursery.join("s");
    let listener = UnixListener::bind(&born)?;
    fs::set_permissions(&born, Permissions::from_mode(0o600))?;
    fs::rename(&born, path)?;
    Ok(listener)
}
