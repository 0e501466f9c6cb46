//! Whole outputs, in files: what no longer fits in memory is still to be read.
//!
//! Promises:
//! - The files are there for their owner only: mode 0600, in a folder of mode 0700 that is refused
//!   if anybody else could enter it.
//! - A task whose output fits its tail in memory has no file. The file begins with the first byte
//!   that would be lost, and then has everything from the start, up to a limit.
//! - A disk that is full, broken or slow costs the file, never the task: that is logged once for
//!   each file, and whoever is given the path is told that the file is incomplete.
//! - Files are written off the async workers. A task has at most 256 KiB waiting for the
//!   disk, and what it adds at once.
//! - A file goes with its task's record, and all of them with the gateway. Each gateway has a folder
//!   of its own below the one it was given, and locks it; what a dead gateway left is removed by the
//!   next, since the kernel gives a lock back however its holder ended.
//!
//! Never here: which part of an output is in memory, and what a reader has read.

mod folder;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    mem,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, time::timeout};

pub use self::folder::{SpillError, SpillFolder};
use crate::{id::TaskId, sync::lock};

/// Bytes of a task that may wait for the disk before its source is held back. 256 KiB: as much as
/// the tail in memory, so that a disk that hangs no more than doubles what a task costs.
const ROOM: usize = 256 * 1024;
/// How long a source is held back for the disk, and a reader for the file, before the file is given
/// up. 5 s: a machine that is merely busy writes within it, and a task can bear the one pause.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where tasks get their files. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Spills(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Bytes that a file may have.
    limit: u64,
    /// Where files are written, apart from its async workers.
    runtime: Handle,
    /// Set when the folder goes: nothing is written any more, and nobody is told.
    closed: AtomicBool,
}

impl Spills {
    /// A place for one task's output; no file yet.
    pub(crate) fn file(&self) -> Arc<Spill> {
        let progress = Progress {
            path: None,
            accepted: 0,
            pending: Vec::new(),
            writing: false,
            extent: Extent::Whole,
            gone: false,
        };
        Arc::new(Spill { shared: Arc::clone(&self.0), progress: Mutex::new(progress), written: watch::Sender::new(0) })
    }
}

/// A task's file, as a reader is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spilled {
    /// Where it is, from the root.
    pub path: PathBuf,
    /// How much of the output it has.
    pub extent: Extent,
}

/// How much of an output a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// So many bytes of its beginning: it reached the limit of a file.
    Beginning(u64),
    /// An unknown part: writing failed.
    Incomplete,
}

/// One task's file.
pub(crate) struct Spill {
    shared: Arc<Shared>,
    progress: Mutex<Progress>,
    /// How many of the accepted bytes need not be waited for any more.
    written: watch::Sender<u64>,
}

struct Progress {
    /// Set with the first byte.
    path: Option<PathBuf>,
    /// Bytes that were to be written, in all.
    accepted: u64,
    /// Those that nobody writes yet.
    pending: Vec<u8>,
    /// Somebody writes, and will look at `pending` when done.
    writing: bool,
    extent: Extent,
    /// The record is gone, and the file is to go.
    gone: bool,
}

impl Spill {
    /// Whether anything was appended.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().path.is_some()
    }

    /// Adds to the file, soon.
    pub(crate) fn append(self: &Arc<Self>, id: &TaskId, bytes: &[u8]) {
        let mut progress = self.lock();
        if progress.gone || progress.extent != Extent::Whole {
            return;
        }
        let room = usize::try_from(self.shared.limit - progress.accepted).unwrap_or(usize::MAX);
        let kept = bytes.get(..room).unwrap_or(bytes);
        if kept.len() < bytes.len() {
            progress.extent = Extent::Beginning(self.shared.limit);
        }
        progress.path.get_or_insert_with(|| self.shared.path.join(format!("{id}.log")));
        progress.accepted += kept.len() as u64;
        progress.pending.extend_from_slice(kept);
        if !mem::replace(&mut progress.writing, true) {
            let spill = Arc::clone(self);
            self.shared.runtime.spawn_blocking(move || spill.write());
        }
    }

    /// Where the file is, if there is one.
    pub(crate) fn spilled(&self) -> Option<Spilled> {
        let progress = self.lock();
        Some(Spilled { path: progress.path.clone()?, extent: progress.extent })
    }

    /// Returns once little enough waits for the disk.
    pub(crate) async fn room(&self) {
        self.written_but(ROOM as u64).await;
    }

    /// Returns once all that was appended before is in the file.
    pub(crate) async fn flushed(&self) {
        self.written_but(0).await;
    }

    /// Waits until at most `behind` bytes of those accepted by now are not written. If that takes
    /// too long, the file is given up: so every file is waited for in vain once at most.
    async fn written_but(&self, behind: u64) {
        let accepted = self.lock().accepted;
        let enough = |written: &u64| accepted.saturating_sub(*written) <= behind;
        if enough(&self.written.borrow()) {
            return;
        }
        if timeout(PATIENCE, self.written.subscribe().wait_for(enough)).await.is_err() {
            self.give_up("the disk is too slow");
        }
    }

    /// Removes the file, now or when whoever writes it is done.
    pub(crate) fn discard(self: &Arc<Self>) {
        let mut progress = self.lock();
        progress.gone = true;
        progress.pending = Vec::new();
        self.written.send_replace(progress.accepted);
        let is_there = progress.path.is_some() && !self.shared.closed.load(Ordering::Relaxed);
        if is_there && !mem::replace(&mut progress.writing, true) {
            let spill = Arc::clone(self);
            self.shared.runtime.spawn_blocking(move || spill.write());
        }
    }

    /// Writes, off the async workers, until nothing is left to write.
    fn write(&self) {
        loop {
            let mut progress = self.lock();
            let Some(path) = progress.path.clone() else { return };
            if progress.gone {
                drop(progress);
                // It was never made, or the folder is gone with it.
                let _ = fs::remove_file(path);
                return;
            }
            if progress.pending.is_empty() {
                progress.writing = false;
                return;
            }
            let batch = mem::take(&mut progress.pending);
            drop(progress);
            let written = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
            match written.and_then(|mut file| file.write_all(&batch)) {
                Ok(()) => self.written.send_modify(|written| *written += batch.len() as u64),
                Err(error) => self.give_up(&error.to_string()),
            }
        }
    }

    fn give_up(&self, why: &str) {
        let mut progress = self.lock();
        let first = !progress.gone && progress.extent != Extent::Incomplete;
        progress.extent = Extent::Incomplete;
        progress.pending = Vec::new();
        // Nobody is to wait for it.
        self.written.send_replace(progress.accepted);
        let path = progress.path.clone();
        drop(progress);
        if first && !self.shared.closed.load(Ordering::Relaxed) {
            let file = path.unwrap_or_default();
            tracing::warn!(file = %file.display(), why, "an output file is incomplete; its task goes on");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::MetadataExt, path::Path};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn id() -> TaskId {
        "bash-1".parse().unwrap()
    }

    #[tokio::test]
    async fn a_file_has_all_that_was_appended_and_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = SpillFolder::open(&place.path().join("spill"), 1_000_000).unwrap();
        let spill = folder.spills().file();
        assert_eq!(spill.spilled(), None);
        for _ in 0..100 {
            spill.append(&id(), &[0xFF; 1_000]);
            spill.room().await;
        }
        spill.flushed().await;
        let Spilled { path, extent } = spill.spilled().unwrap();
        assert_eq!((extent, fs::read(&path).unwrap()), (Extent::Whole, vec![0xFF; 100_000]));
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&place.path().join("spill")), 0o700);
        drop(folder);
        assert_eq!(fs::read_dir(place.path().join("spill")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_file_ends_at_the_limit_and_says_so() {
        let place = tempfile::tempdir().unwrap();
        let folder = SpillFolder::open(&place.path().join("spill"), 5).unwrap();
        let spill = folder.spills().file();
        spill.append(&id(), b"12345");
        assert_eq!(spill.spilled().unwrap().extent, Extent::Whole);
        spill.append(&id(), b"67");
        spill.append(&id(), b"89");
        spill.flushed().await;
        let Spilled { path, extent } = spill.spilled().unwrap();
        assert_eq!((extent, fs::read(path).unwrap()), (Extent::Beginning(5), b"12345".to_vec()));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_holds_nobody_up() {
        let place = tempfile::tempdir().unwrap();
        let folder = SpillFolder::open(&place.path().join("spill"), 1_000_000).unwrap();
        let spill = folder.spills().file();
        fs::remove_dir_all(&spill.shared.path).unwrap();
        spill.append(&id(), &vec![0; 2 * ROOM]);
        spill.room().await;
        spill.flushed().await;
        assert_eq!(spill.spilled().unwrap().extent, Extent::Incomplete);
    }
}
