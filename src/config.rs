//! Settings and limits, each with the reason for its default.
//!
//! Never here: where a setting comes from (flags and variables are the program's, see `cli`).

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// What the registry allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryLimits {
    /// Tasks that one owner may have running or stopping at once; the unowned tasks together count
    /// as one owner. 10: a person can follow as many, and a loop that starts work by mistake is
    /// caught before it hurts the machine.
    pub max_live_tasks: usize,
    /// Settled tasks kept for each owner, the oldest going first. 100: more than a person scrolls
    /// through, and a list that stays in one packet train.
    pub max_settled_tasks: usize,
    /// Bytes of output kept for each task. 256 KiB: some thousand lines, which is more than a
    /// model reads at once.
    pub output_tail: usize,
}

impl Default for RegistryLimits {
    fn default() -> Self {
        Self { max_live_tasks: 10, max_settled_tasks: 100, output_tail: 256 * 1024 }
    }
}

/// What is allowed in terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminalLimits {
    /// Terminals that one session may have open at once, and how many of those that ended by
    /// themselves it can look back at. 4: a shell, a server, a debugger and one more; each holds
    /// processes for as long as the session lasts.
    pub max_open: usize,
}

impl Default for TerminalLimits {
    fn default() -> Self {
        Self { max_open: 4 }
    }
}

/// How the gateway serves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Where browsers connect. Loopback: what runs on a machine is nobody else's business.
    pub listen: SocketAddr,
    /// The Unix socket of the control API.
    pub control: PathBuf,
    /// A silent stream sends a sign of life after this long. 15 s: proxies cut idle connections
    /// after 30 to 60 s.
    pub heartbeat: Duration,
    /// How long a peer may take to send a request's head or body. 10 s: it is a few hundred
    /// bytes.
    pub request_timeout: Duration,
    /// A peer that takes nothing for this long is dropped, by the kernel (`TCP_USER_TIMEOUT`,
    /// tcp(7)). 30 s: twice the heartbeat, so that one that vanished is noticed at its second.
    pub peer_timeout: Duration,
    /// How long a shutdown may take in all. 10 s: what service managers and containers grant
    /// before they kill.
    pub drain: Duration,
    /// How long a process has between SIGTERM and SIGKILL. 3 s.
    pub grace: Duration,
    /// See [`RegistryLimits`].
    pub limits: RegistryLimits,
    /// See [`TerminalLimits`].
    pub terminals: TerminalLimits,
}

impl Settings {
    /// The defaults, with the control API at `control`.
    #[must_use]
    pub fn new(listen: SocketAddr, control: PathBuf) -> Self {
        Self {
            listen,
            control,
            heartbeat: Duration::from_secs(15),
            request_timeout: Duration::from_secs(10),
            peer_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            grace: Duration::from_secs(3),
            limits: RegistryLimits::default(),
            terminals: TerminalLimits::default(),
        }
    }
}
