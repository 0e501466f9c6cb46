//! The signals that reach `run`, which are the command's.

use std::{future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::{child::Place, processes};

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// For the command.
    Signal(Signal),
    /// Something became of the command.
    Child,
    /// This job goes on after a stop.
    Continued,
    /// The terminal has another size.
    Resized,
}

/// Where signals arrive. What was ignored when we started stays ignored, and the command inherits
/// it: so `nohup` works.
pub(super) struct Signals(Vec<(Event, unix::Signal)>);

impl Signals {
    pub(super) fn listen(place: Place) -> io::Result<Self> {
        let mut events = vec![
            (Event::Child, SignalKind::child()),
            (Event::Continued, SignalKind::from_raw(Signal::CONT.as_raw())),
            (Event::Resized, SignalKind::window_change()),
        ];
        let mut passed = vec![Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
        if place == Place::Job {
            // Ctrl-Z stops us alone, as the command has a group of its own.
            passed.push(Signal::TSTP);
        }
        passed.retain(|signal| !processes::is_ignored(*signal));
        events.extend(passed.iter().map(|signal| (Event::Signal(*signal), SignalKind::from_raw(signal.as_raw()))));
        let listening = events.into_iter().map(|(event, kind)| Ok((event, unix::signal(kind)?)));
        listening.collect::<io::Result<_>>().map(Self)
    }

    /// The next signal. Safe to drop.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|context| {
            let mut arrived = self.0.iter_mut().map(|(event, signal)| signal.poll_recv(context).map(|_| *event));
            arrived.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}
