//! An accepted stream after it left hyper: one small task that writes frames to a socket.
//!
//! Promises:
//! - The head and what the source says at once (a list's baseline) are one write.
//! - A change of a list is one write of bytes that all subscribers share. At most one frame is
//!   unsent; while it is, nothing is asked of the source, which skips what becomes old meanwhile.
//! - A planned end comes after all that the source had to say by then, within [`FAREWELL`].
//! - Chunks for HTTP/1.1, with a last chunk at a planned end; the same bytes to end of file for
//!   HTTP/1.0, which knows no chunks (RFC 9112 §6.1).
//! - A peer that closes its end, or cannot be written to, ends the task. The source learns whether
//!   the peer left in peace, with every byte taken: a peer that closes with bytes unread resets the
//!   connection, over TCP (RFC 9293 §3.6.1) and over a Unix socket.
//!
//! A stream of one session's list goes to [`super::fanout`] instead, unless its body is hyper's to write
//! (see [`super::stream_body`]).
//!
//! Never here: a timer or a buffer for each stream. A peer that vanished is noticed by the kernel
//! (`TCP_USER_TIMEOUT`, see `server`).

use std::{io, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use hyper::HeaderMap;
use tokio::{
    io::{AsyncWriteExt, Interest},
    time::timeout,
};

use super::{
    admission::Admitted,
    socket::Socket,
    source::{Said, Source, TaskList},
    wire::{Framing, Wire},
};
use crate::{
    shutdown::{Phase, Shutdown},
    sse,
    traffic::{Counted, Traffic},
};

/// How long the last bytes of a planned end may take. A peer that reads takes milliseconds.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

/// Everything that a stream needs to begin.
pub(crate) struct StreamPlan {
    pub(crate) source: Source,
    pub(crate) wire: Wire,
    /// The answer's headers: [`super::wire::headers`], and what else its reader is told.
    pub(crate) headers: HeaderMap,
    /// What is held of the limits for as long as the stream lasts.
    pub(crate) admitted: Option<Box<Admitted>>,
}

/// How a stream ends that does not break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By the gateway.
    Planned,
    /// By the peer, who closed its end.
    PeerLeft,
}

/// A stream that has begun: its first bytes are unsent.
pub(crate) struct Stream<S = Source> {
    pub(super) source: S,
    pub(super) wire: Wire,
    /// The one frame, or its rest, that the kernel has not taken yet.
    pub(super) unsent: Bytes,
    pub(super) counted: Counted,
    pub(super) admitted: Option<Box<Admitted>>,
}

/// A stream, by who is to write it.
pub(crate) enum Begun {
    /// One session's list, of which there are many: all are written by one.
    List(Stream<TaskList>),
    /// Any other writes itself.
    Other(Stream),
}

impl Stream {
    /// Begins a stream on a socket.
    pub(crate) fn begin(plan: StreamPlan, traffic: &Arc<Traffic>) -> Begun {
        let mut unsent = plan.wire.framing.head(&plan.headers, plan.source.now());
        let Self { source, wire, unsent: opening, counted, admitted } = Self::without_head(plan, traffic);
        unsent.extend_from_slice(&opening);
        let unsent = unsent.freeze();
        match source {
            Source::Tasks(source) => Begun::List(Stream { source, wire, unsent, counted, admitted }),
            source @ (Source::Mux(_) | Source::Overview(_) | Source::Notices(_)) => {
                Begun::Other(Self { source, wire, unsent, counted, admitted })
            }
        }
    }

    /// For whoever sends head and chunks himself.
    pub(super) fn bare(mut plan: StreamPlan, traffic: &Arc<Traffic>) -> Self {
        plan.wire.framing = Framing::ToEndOfFile;
        Self::without_head(plan, traffic)
    }

    fn without_head(plan: StreamPlan, traffic: &Arc<Traffic>) -> Self {
        let StreamPlan { mut source, wire, headers: _, admitted } = plan;
        let counted = traffic.count(source.kind());
        // Before the source is read, so that what is encoded later has a later stamp.
        let now = source.now();
        let mut payload = BytesMut::from(sse::retry(fastrand::u64(1_000..=3_000)).as_bytes());
        payload.extend_from_slice(&source.opening(now));
        Self { source, wire, unsent: wire.framing.frame(&payload), counted, admitted }
    }

    /// Writes until the peer leaves or `shutdown` ends it.
    pub(crate) async fn run(mut self, mut socket: impl Socket, mut shutdown: Shutdown) {
        match self.write_until_ended(&socket, &mut shutdown).await {
            Ok(End::Planned) => {
                // Whether or not it comes through: this is the end.
                let _ = timeout(FAREWELL, self.write_farewell(&mut socket)).await;
            }
            Ok(End::PeerLeft) if self.unsent.is_empty() => self.source.delivered(),
            Ok(End::PeerLeft) => {}
            Err(error) => tracing::debug!(%error, "a stream broke"),
        }
    }

    /// What is to be sent next, and the stream behind it; none at a planned end.
    pub(super) async fn next(mut self, shutdown: &mut Shutdown) -> Option<(Bytes, Self)> {
        if self.unsent.is_empty() {
            let said = tokio::select! {
                biased;
                () = shutdown.reached(Phase::Ending) => self.source.rest()?,
                said = self.source.next() => said,
            };
            self.unsent = self.bytes_of(said)?;
        }
        Some((std::mem::take(&mut self.unsent), self))
    }

    async fn write_until_ended(&mut self, socket: &impl Socket, shutdown: &mut Shutdown) -> io::Result<End> {
        loop {
            self.write_unsent(socket)?;
            let interest =
                if self.unsent.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            tokio::select! {
                biased;
                () = shutdown.reached(Phase::Ending) => return Ok(End::Planned),
                ready = socket.ready(interest) => if ready?.is_readable() && has_left(socket)? {
                    return Ok(End::PeerLeft);
                },
                said = self.source.next(), if self.unsent.is_empty() => match self.bytes_of(said) {
                    Some(bytes) => self.unsent = bytes,
                    None => return Ok(End::Planned),
                },
            }
        }
    }

    fn write_unsent(&mut self, socket: &impl Socket) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match socket.try_write(&self.unsent) {
                Ok(written) => self.unsent.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.unsent.is_empty() {
            // A part of a frame keeps all of it in memory.
            self.unsent = Bytes::new();
        }
        Ok(())
    }

    /// What goes over the wire; none at the source's end.
    fn bytes_of(&self, said: Said) -> Option<Bytes> {
        let frame = match said {
            Said::List(frame) => self.wire.list(&frame),
            Said::Event(event) => self.wire.framing.frame(&event),
            Said::Beat(now) => return Some(self.wire.beat(now)),
            Said::End => return None,
        };
        self.counted.sent();
        Some(frame)
    }

    /// Writes what is left to say, and the end: the end of the children is told before that of the
    /// stream, though both came at once.
    async fn write_farewell(&mut self, socket: &mut impl Socket) -> io::Result<()> {
        socket.write_all(&std::mem::take(&mut self.unsent)).await?;
        while let Some(bytes) = self.source.rest().and_then(|said| self.bytes_of(said)) {
            socket.write_all(&bytes).await?;
        }
        socket.write_all(self.wire.framing.end()).await?;
        socket.shutdown().await
    }
}

/// Nothing that a client sends on a stream means anything; its end does.
fn has_left(socket: &impl Socket) -> io::Result<bool> {
    let mut buffer = [0; 512];
    match socket.try_read(&mut buffer) {
        Ok(read) => Ok(read == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
