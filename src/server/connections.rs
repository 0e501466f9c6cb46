//! How many connections a listener has at once, and what one too many is told.
//!
//! Promises:
//! - A place is held for as long as its connection lasts.
//! - One too many is answered 503 with `Retry-After` at once, and closed; its request is not read. At
//!   most [`MAX_FAREWELLS`] are held for a moment, so that the answer arrives; one beyond is closed.
//! - A flood is one line in the log when it begins and one when it has been over for [`QUIET`].

use std::{
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::AsyncReadExt,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::yield_now,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::task::TaskTracker;

use crate::{
    http::{problem::Problem, socket::Socket, written_out},
    sync::lock,
};

/// How long one too many may take to read its answer. Closed at once, with a request unread, the
/// connection would be reset, and the answer lost (RFC 9112 §9.6).
const FAREWELL: Duration = Duration::from_secs(1);
/// How many are held so at once.
const MAX_FAREWELLS: usize = 64;
/// How many are accepted before those that were have their turn: what a flood has open at once is memory.
const BATCH: u64 = 16;
/// The pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long nothing must be wrong before it counts as over.
const QUIET: Duration = Duration::from_secs(5);

/// The places of one listener.
pub(super) struct Places {
    free: Arc<Semaphore>,
    farewells: Arc<Semaphore>,
    refusal: Bytes,
    full: Mutex<Trouble>,
    listener: &'static str,
    limit: usize,
}

impl Places {
    /// `listener` is for the log.
    pub(super) fn new(limit: NonZeroUsize, listener: &'static str) -> Self {
        let limit = limit.get().min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(limit)),
            farewells: Arc::new(Semaphore::new(MAX_FAREWELLS)),
            refusal: written_out(Problem::TooManyConnections),
            full: Mutex::default(),
            listener,
            limit,
        }
    }

    /// A place for a connection, until it is dropped. Without one, the connection is refused.
    pub(super) fn take<S: Socket>(&self, socket: S, refused: &TaskTracker) -> Option<(S, OwnedSemaphorePermit)> {
        let now = Instant::now();
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            if let Some(times) = self.trouble().is_over(now) {
                tracing::info!(listener = self.listener, refused = times, "there is room for connections again");
            }
            return Some((socket, place));
        }
        if self.trouble().happens(now) {
            let (listener, limit) = (self.listener, self.limit);
            tracing::warn!(listener, limit, "as many connections as may be; others are answered 503");
        }
        if let Ok(held) = Arc::clone(&self.farewells).try_acquire_owned() {
            let refusal = self.refusal.clone();
            refused.spawn(async move {
                let _held = held;
                let _ = timeout(FAREWELL, refuse(socket, &refusal)).await;
            });
        } else {
            // The kernel takes so little at once, or the peer is past help.
            let _ = socket.try_write(&self.refusal);
        }
        None
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, Trouble> {
        lock(&self.full)
    }
}

async fn refuse(mut socket: impl Socket, refusal: &[u8]) -> io::Result<()> {
    use tokio::io::AsyncWriteExt;
    socket.write_all(refusal).await?;
    socket.shutdown().await?;
    let mut unread = [0; 1024];
    while socket.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Accepts for ever. When accepting fails, it pauses: the lack that made it fail does not go by
/// asking again at once.
pub(super) async fn accept<S>(
    mut next: impl FnMut(&mut Context<'_>) -> Poll<io::Result<S>>,
    serve: impl Fn(S),
) -> std::convert::Infallible {
    let mut trouble = Trouble::default();
    let mut accepted_so_far: u64 = 0;
    loop {
        let next = std::future::poll_fn(&mut next);
        let accepted = match trouble.quiet_at() {
            Some(at) => timeout_at(at, next).await.ok(),
            None => Some(next.await),
        };
        if let Some(times) = trouble.is_over(Instant::now()) {
            tracing::info!(failed = times, "connections are accepted again");
        }
        match accepted {
            Some(Ok(socket)) => {
                serve(socket);
                accepted_so_far += 1;
                if accepted_so_far.is_multiple_of(BATCH) {
                    yield_now().await;
                }
            }
            // The peer left before it was accepted (accept(2)): its own matter.
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Some(Err(error)) => {
                if trouble.happens(Instant::now()) {
                    tracing::error!(%error, "cannot accept connections; they wait");
                }
                sleep(ACCEPT_PAUSE).await;
            }
            None => {}
        }
    }
}

/// Something that is wrong for a while, and is told of at its beginning and its end.
#[derive(Debug, Default)]
struct Trouble {
    last: Option<Instant>,
    times: u64,
}

impl Trouble {
    /// It is wrong again; says whether it has just begun.
    fn happens(&mut self, now: Instant) -> bool {
        self.times += 1;
        self.last.replace(now).is_none()
    }

    /// When it is over, unless it happens again.
    fn quiet_at(&self) -> Option<Instant> {
        self.last.map(|last| last + QUIET)
    }

    /// How often it happened, if it has just come to be over.
    fn is_over(&mut self, now: Instant) -> Option<u64> {
        if self.quiet_at()? > now {
            return None;
        }
        self.last = None;
        Some(std::mem::take(&mut self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lack_stops_no_listener_for_good_and_is_told_of_once() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.is_over(Instant::now()), None);
        assert!(trouble.happens(Instant::now()));
        for _ in 0..100 {
            sleep(QUIET / 2).await;
            assert_eq!(trouble.is_over(Instant::now()), None);
            assert!(!trouble.happens(Instant::now()));
        }
        sleep(QUIET).await;
        assert_eq!(trouble.is_over(Instant::now()), Some(101));
        assert_eq!(trouble.is_over(Instant::now()), None);
        assert!(trouble.happens(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn accepting_goes_on_after_a_failure_and_pauses_between() {
        let start = Instant::now();
        let mut asked = 0;
        let served = Mutex::new(Vec::new());
        let next = |_: &mut Context<'_>| {
            asked += 1;
            match asked {
                1..=300 => Poll::Ready(Err(io::Error::from_raw_os_error(24))),
                301 => Poll::Ready(Ok(7)),
                _ => Poll::Pending,
            }
        };
        let accepting = accept(next, |socket: i32| served.lock().unwrap().push(socket));
        let _ = timeout(Duration::from_mins(1), accepting).await;
        assert_eq!(*served.lock().unwrap(), [7]);
        assert!(start.elapsed() >= 300 * ACCEPT_PAUSE);
        // And not asked again and again meanwhile.
        assert!(asked < 310, "{asked}");
    }
}
