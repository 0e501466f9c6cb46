//! What driver and readers tell each other: whether readers roam or stay, and which lists they must
//! come to.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::Value;

/// Each session's list.
pub(crate) type Lists = HashMap<String, Vec<Value>>;

/// What readers do.
#[derive(Debug, Clone)]
pub(crate) enum Mode {
    /// They come and go.
    Roam,
    /// Each connects and stays, whatever changes.
    Stay,
    /// Nothing changes any more: each must come to these lists on the connection that it has. The
    /// number tells this time from others.
    Arrive(u64, Arc<Lists>),
    /// They leave for good.
    Leave,
}

/// Neither staying nor arrived.
const NOWHERE: u64 = u64::MAX;

pub(crate) struct Goal {
    mode: Mutex<Mode>,
    /// For each reader, the last time that it stayed or arrived.
    at: Vec<AtomicU64>,
}

impl Goal {
    pub(crate) fn new(readers: u64) -> Self {
        Self { mode: Mutex::new(Mode::Roam), at: (0..readers).map(|_| AtomicU64::new(NOWHERE)).collect() }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.lock().unwrap().clone()
    }

    pub(crate) fn set(&self, mode: Mode) {
        for at in &self.at {
            at.store(NOWHERE, Ordering::Release);
        }
        *self.mode.lock().unwrap() = mode;
    }

    pub(crate) fn arrived(&self, reader: usize, time: u64) {
        self.at[reader].store(time, Ordering::Release);
    }

    pub(crate) fn all_arrived(&self, time: u64) -> bool {
        self.at.iter().all(|at| at.load(Ordering::Acquire) == time)
    }
}
