//! What is connected and what was sent, in numbers: gauges that fall again by themselves.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The counts of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    browsers: AtomicU64,
    control: AtomicU64,
    tasks: AtomicU64,
    mux: AtomicU64,
    overview: AtomicU64,
    notices: AtomicU64,
    sent: AtomicU64,
}

/// What can be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// A connection to the browsers' listener.
    Browsers,
    /// A connection to the control listener.
    Control,
    /// A stream of one session's list.
    Tasks,
    /// A stream of several sessions' lists.
    Mux,
    /// A stream of all sessions' lists.
    Overview,
    /// A stream of notices.
    Notices,
}

/// Counts one thing as open while it lives.
#[derive(Debug)]
pub(crate) struct Counted {
    traffic: Arc<Traffic>,
    what: Open,
}

impl Traffic {
    pub(crate) fn count(self: &Arc<Self>, what: Open) -> Counted {
        self.gauge(what).fetch_add(1, Ordering::Relaxed);
        Counted { traffic: Arc::clone(self), what }
    }

    /// How many are open now.
    pub(crate) fn open(&self, what: Open) -> u64 {
        self.gauge(what).load(Ordering::Relaxed)
    }

    /// How many frames were given to the kernel, signs of life aside.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn gauge(&self, what: Open) -> &AtomicU64 {
        match what {
            Open::Browsers => &self.browsers,
            Open::Control => &self.control,
            Open::Tasks => &self.tasks,
            Open::Mux => &self.mux,
            Open::Overview => &self.overview,
            Open::Notices => &self.notices,
        }
    }
}

impl Counted {
    /// Counts one frame.
    pub(crate) fn sent(&self) {
        self.traffic.sent.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.traffic.gauge(self.what).fetch_sub(1, Ordering::Relaxed);
    }
}
