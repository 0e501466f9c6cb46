//! The folder of one gateway's files: made, locked, and removed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{FlockOperation, OFlags, flock};
use tokio::runtime::Handle;

use super::{Shared, Spills};

/// What a gateway's own folder is called, before its process id.
const PREFIX: &str = "gateway-";

/// The folder of this gateway's files, locked. When dropped, it goes with all that is in it.
#[derive(Debug)]
pub struct SpillFolder {
    shared: Arc<Shared>,
    /// Held as long as the folder is ours.
    _lock: File,
}

/// Why there is no folder for output files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// Something else is there.
    #[error("it is not a folder")]
    NotAFolder,
    /// Somebody else owns it.
    #[error("it belongs to another user")]
    Foreign,
    /// Others can enter it.
    #[error("it has mode {mode:03o}, and outputs are nobody else's business; chmod 700 it")]
    Open {
        /// Its mode.
        mode: u32,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl SpillFolder {
    /// Makes this gateway's folder in `parent`, which is made if it is absent, and removes those of
    /// dead gateways. A file may have `limit` bytes. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`SpillError`].
    pub fn open(parent: &Path, limit: u64) -> Result<Self, SpillError> {
        let parent = std::path::absolute(parent)?;
        match DirBuilder::new().mode(0o700).create(&parent) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            Ok(()) | Err(_) => private(&parent)?,
        }
        // Held until ours is locked: another gateway that starts now would take it for a dead one's.
        let turn = open_folder(&parent)?;
        flock(&turn, FlockOperation::LockExclusive).map_err(io::Error::from)?;
        remove_dead(&parent)?;
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let (path, lock) = (0..)
            .map(|n| if n == 0 { path.clone() } else { path.with_extension(n.to_string()) })
            .find_map(|path| match DirBuilder::new().mode(0o700).create(&path) {
                // One more gateway in this process.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                Err(error) => Some(Err(error)),
                Ok(()) => Some(locked(&path).map(|lock| (path, lock))),
            })
            .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
        let shared = Shared { path, limit, runtime: Handle::current(), closed: AtomicBool::new(false) };
        Ok(Self { shared: Arc::new(shared), _lock: lock })
    }

    /// Where the registry gets files for its tasks. It does not keep the folder.
    #[must_use]
    pub fn spills(&self) -> Spills {
        Spills(Arc::clone(&self.shared))
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        // Twice, should a file have been born meanwhile.
        if fs::remove_dir_all(&self.shared.path).or_else(|_| fs::remove_dir_all(&self.shared.path)).is_err() {
            tracing::warn!("output files are left; the next gateway removes them");
        }
    }
}

fn private(folder: &Path) -> Result<(), SpillError> {
    let found = fs::symlink_metadata(folder)?;
    let mode = found.mode() & 0o777;
    if !found.is_dir() {
        Err(SpillError::NotAFolder)
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        Err(SpillError::Foreign)
    } else if mode & 0o077 != 0 {
        Err(SpillError::Open { mode })
    } else {
        Ok(())
    }
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn locked(folder: &Path) -> io::Result<File> {
    let lock = open_folder(folder)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

fn remove_dead(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Locked: its gateway lives.
        let Some(_dead) = is_ours.then(|| locked(&entry.path()).ok()).flatten() else { continue };
        tracing::info!(folder = %entry.path().display(), "removing the output files of a dead gateway");
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(folder = %entry.path().display(), %error, "cannot remove it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_folder_that_others_can_enter_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(SpillFolder::open(&open, 1), Err(SpillError::Open { mode: 0o750 })));
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(matches!(SpillFolder::open(&link, 1), Err(SpillError::NotAFolder)));
        assert!(matches!(SpillFolder::open(&place.path().join("a/b"), 1), Err(SpillError::System(_))));
    }

    #[tokio::test]
    async fn what_a_dead_gateway_left_goes_and_what_lives_stays() {
        let place = tempfile::tempdir().unwrap();
        let parent = place.path().join("spill");
        let alive = SpillFolder::open(&parent, 1).unwrap();
        let dead = parent.join("gateway-1");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("bash-1.log"), "x").unwrap();
        fs::write(parent.join("notes"), "not ours").unwrap();
        let other = SpillFolder::open(&parent, 1).unwrap();
        assert_ne!(other.shared.path, alive.shared.path);
        assert!(alive.shared.path.is_dir() && other.shared.path.is_dir());
        assert!(!dead.exists() && parent.join("notes").exists());
    }
}
