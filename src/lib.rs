//! See background work live in a web page.
//!
//! Agents and tools run long work in the background; people at a page cannot see that a build is
//! running, nor tell a finished task from a stuck one. This crate holds the registry of such tasks
//! and streams each session's list over Server-Sent Events.
//!
//! ```text
//! producers ──control API──▶ registry ──change feed──▶ hub ──SSE──▶ browsers, curl
//! (agents, shells)           (the truth)               (encodes once, fans out)
//! ```
//!
//! # A registry of your own
//!
//! ```
//! use tasklight::{
//!     NewTask, Kind, Label, Registry, Scope, SessionId, Status,
//!     clock::Clock,
//!     config::RegistryLimits,
//!     producer::shell::{ShellCommand, Shells},
//! };
//! use std::{collections::BTreeMap, time::Duration};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::new(Clock::system(), RegistryLimits::default());
//! let shells = Shells::new(Duration::from_secs(3));
//! let demo = Scope::Session(SessionId::new("demo")?);
//! let _watching = registry.on_tasks_changed(|owner| println!("the list of {owner:?} changed"));
//!
//! let command = ShellCommand { command: "echo built; exit 3".into(), cwd: None, env: BTreeMap::new() };
//! let task = NewTask { kind: Kind::bash(), label: Label::from_command(&command.command)? };
//! let task = registry.start(&demo, task, shells.bash(command))?;
//!
//! let ended = registry.wait(&demo, &task.id, Duration::from_secs(10)).await?;
//! assert_eq!(ended.status, Status::Failed);
//! assert_eq!(ended.detail.as_deref(), Some("exit code: 3"));
//! assert_eq!(registry.read(&demo, &task.id)?.text, "built\n");
//! # Ok(())
//! # }
//! ```
//!
//! # A whole gateway
//!
//! ```
//! use tasklight::{config::Settings, server::Server, shutdown::{self, Phase}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let socket = folder.path().join("tasklight.sock");
//! let server = Server::bind(Settings::new(([127, 0, 0, 1], 0).into(), socket))?;
//! println!("curl -N http://{}/sessions/demo/tasks", server.address());
//! let (trigger, shutdown) = shutdown::channel();
//! # trigger.enter(Phase::Draining);
//! server.run(&trigger, shutdown).await; // until somebody calls trigger.enter(Phase::Draining)
//! # Ok(())
//! # }
//! ```
//!
//! # The house
//!
//! A module imports only from lower floors (`scripts/layers` checks it):
//!
//! | floor | module | its one idea |
//! |---|---|---|
//! | 0 | `id` | names, parsed once, at the edge |
//! | 0 | [`clock`] | the one clock, which never goes back |
//! | 0 | [`config`] | settings and limits, with the reason for each default |
//! | 0 | [`shutdown`] | a one-way signal |
//! | 1 | `sse` | SSE frames as bytes |
//! | 1 | `task` | the record, its legal changes, the wire |
//! | 1 | `output` | one task's output log |
//! | 2 | `registry` | the truth, and who is told of it |
//! | 3 | [`producer`] | who makes tasks |
//! | 3 | [`hub`] | one slot for each watched session |
//! | 4 | `http::{problem, route, body}` | errors as answers, paths as values, bodies of bounded size |
//! | 5 | `http::{stream, handoff, observe, control}` | streams, and the two listeners' routes |
//! | 6 | [`server`] | listeners, connections, drain |
//!
//! # Invariants
//!
//! 1. No lock is held across `.await`, nor while a listener runs: commit, unlock, then notify.
//! 2. No queue is unbounded. A stream holds at most one unsent frame.
//! 3. Nothing below `http` knows a status code; nothing above `registry` writes a record.
//! 4. The browsers' side is handed a [`TaskObserver`]: it cannot read output, stop or start.
//! 5. Looking creates no owner and leaves nothing behind.
//! 6. Every live task has someone bound to settle it: a process, a terminal, or a handle whose drop settles.
//! 7. The clock is handed in; only `clock` reads the machine's.

pub mod clock;
pub mod config;
mod http;
pub mod hub;
mod id;
mod output;
pub mod producer;
mod registry;
pub mod server;
pub mod shutdown;
mod sse;
mod task;

pub use self::{
    id::{InvalidKind, InvalidSessionId, InvalidTaskId, InvalidTerminalId, Kind, Scope, SessionId, TaskId, TerminalId},
    registry::{
        AccessError, Disposal, DoneTask, Kill, KillError, LaunchError, Launched, ListenerGuard, NewTask, Owner,
        Producer, Reading, Registry, StartError, Stop, StopError, StopReason, TaskHandle, TaskObserver,
    },
    task::{End, InvalidLabel, Label, Outcome, Status, TaskView},
};

/// The paths of the control API, for clients.
pub mod paths {
    pub use crate::http::route::{owner_path, tasks_path, terminals_path};
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
