//! Settings and limits, each with the reason for its default.
//!
//! Never here: where a setting comes from (flags and variables are the program's, see `cli`).

mod origin;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

pub use self::origin::{AllowedOrigin, InvalidOrigin, Origin};
use crate::{
    address::{ControlAddress, HostName},
    token::SecretToken,
};

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

/// How the gateway serves. Write what differs, and `..Settings::default()` for the rest.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where browsers connect; port 0 takes a free one. 127.0.0.1:8080: what runs on a machine is
    /// nobody else's business.
    pub listen: SocketAddr,
    /// Names by which the gateway may be called over TCP, beside loopback names and IP addresses.
    /// None: a page whose name somebody points at this machine is not served.
    pub hosts: Vec<HostName>,
    /// Whose pages may read lists and streams, beside the gateway's own. None: a page that somebody
    /// happens to visit must not see what runs here.
    pub allow_origins: Vec<AllowedOrigin>,
    /// Where producers and agents connect. Nowhere: who embeds a gateway has the registry.
    pub control: Vec<ControlAddress>,
    /// The token that the control API asks for over TCP, and always where it is mounted as a
    /// service. None: without one it is not served over TCP.
    pub token: Option<SecretToken>,
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
    /// Where a folder of this gateway's own is made for what falls out of the outputs' tails; none
    /// lets it go. Off: outputs hold secrets, and a disk is filled only by somebody who asked.
    pub spill_dir: Option<PathBuf>,
    /// Bytes of output written to disk for each task. 64 MiB: the log of a large build, and with the
    /// tasks that an owner keeps not more than a disk can bear.
    pub spill_limit: u64,
    /// See [`RegistryLimits`].
    pub limits: RegistryLimits,
    /// See [`TerminalLimits`].
    pub terminals: TerminalLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            hosts: Vec::new(),
            allow_origins: Vec::new(),
            control: Vec::new(),
            token: None,
            heartbeat: Duration::from_secs(15),
            request_timeout: Duration::from_secs(10),
            peer_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            grace: Duration::from_secs(3),
            spill_dir: None,
            spill_limit: 64 * 1024 * 1024,
            limits: RegistryLimits::default(),
            terminals: TerminalLimits::default(),
        }
    }
}
