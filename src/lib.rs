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
//! The crate is the `tasklight` program and the library that it is made of. To embed the library
//! alone, turn the feature `cli` off.
//!
//! # A gateway in your own program
//!
//! A [`Registry`] holds the tasks. Whoever makes a task is a [`Producer`]: work of this process is
//! one ([`producer::in_process`]), a shell command is one ([`producer::shell`]). [`Tasklight`] shows
//! the registry to browsers.
//!
//! ```
//! use tasklight::{
//!     Kind, Label, NewTask, Registry, Scope, SessionId, Status, Tasklight, config::Settings, producer::in_process,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::default();
//! let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
//! let gateway = Tasklight::builder().settings(settings).registry(registry.clone()).serve()?;
//! println!("curl -N http://{}/sessions/demo/tasks", gateway.address());
//!
//! let demo = Scope::Session(SessionId::new("demo")?);
//! let task = NewTask { kind: Kind::new("subagent")?, label: Label::new("review the change")? };
//! let work = in_process::future(async |work| tokio::select! {
//!     () = std::future::ready(()) => Ok(()), // the review
//!     reason = work.stopping() => Err(reason.to_string()),
//! });
//! let task = registry.start(&demo, task, work)?;
//! let ended = registry.wait(&demo, &task.id, std::time::Duration::from_secs(10)).await?;
//! assert_eq!(ended.status, Status::Completed);
//!
//! gateway.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! With [`Settings::control`](config::Settings::control) it has the control API too, by which other
//! processes start and report tasks.
//!
//! # In your own server
//!
//! [`Builder::mount`] takes no sockets and gives both sides as hyper services ([`service`]). A
//! stream is then a body of a connection that hyper keeps, which costs many times the memory of one
//! that the gateway serves itself.
//!
//! ```
//! use hyper::server::conn::http1;
//! use hyper_util::rt::{TokioIo, TokioTimer};
//! use tasklight::{Registry, Tasklight};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::default();
//! let gateway = Tasklight::builder().registry(registry.clone()).mount()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let observe = gateway.observe();
//! let server = tokio::spawn(async move {
//!     loop {
//!         let (socket, _) = listener.accept().await?;
//!         let mut http = http1::Builder::new();
//!         http.timer(TokioTimer::new()); // else no header timeout
//!         tokio::spawn(http.serve_connection(TokioIo::new(socket), observe.clone()));
//!     }
//!     # #[expect(unreachable_code, reason = "tells the type")]
//!     # std::io::Result::Ok(())
//! });
//!
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # let mut client = tokio::net::TcpStream::connect(address).await?;
//! # client.write_all(b"GET /sessions/demo/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
//! # let mut head = [0; 15];
//! # client.read_exact(&mut head).await?;
//! # assert_eq!(&head, b"HTTP/1.1 200 OK");
//! gateway.shutdown().await; // streams end
//! # let mut rest = String::new();
//! # client.read_to_string(&mut rest).await?;
//! # assert!(rest.contains(": session demo") && rest.ends_with("0\r\n\r\n"), "{rest}");
//! server.abort();
//! # Ok(())
//! # }
//! ```
//!
//! # Without a registry
//!
//! Pages may look for a gateway where a program runs without background work. It answers, and every
//! session is empty.
//!
//! ```
//! # use tasklight::{Tasklight, config::Settings};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
//! let gateway = Tasklight::builder().settings(settings).without_registry().serve()?;
//! # gateway.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # A registry alone
//!
//! ```
//! use tasklight::{
//!     NewTask, Kind, Label, Registry, Scope, SessionId, Status,
//!     producer::shell::{ShellCommand, Shells},
//! };
//! use std::{collections::BTreeMap, time::Duration};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::default();
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
//! # The house
//!
//! A module imports only from lower floors (`scripts/layers` checks it):
//!
//! | floor | module | its one idea |
//! |---|---|---|
//! | 0 | `id` | names, parsed once, at the edge |
//! | 0 | `address` | where the control API is, and what the gateway is called |
//! | 0 | `token` | the secret that opens the control API over TCP |
//! | 0 | `whole` | whole numbers in JSON |
//! | 0 | [`clock`] | the one clock, which never goes back |
//! | 0 | [`descriptors`] | how many files and sockets may be open |
//! | 0 | `sync` | locking |
//! | 0 | [`shutdown`] | a one-way signal |
//! | 0 | `traffic` | what is connected and what was sent, in numbers |
//! | 1 | [`config`] | settings and limits, with the reason for each default |
//! | 1 | `sse` | SSE frames as bytes |
//! | 1 | `task` | the record, its legal changes, the wire |
//! | 1 | `output` | one task's output log |
//! | 1 | [`spill`] | whole outputs, in files |
//! | 2 | `mux` | what a stream of many sessions says, as JSON |
//! | 2 | `registry` | the truth, and who is told of it |
//! | 3 | [`producer`] | who makes tasks |
//! | 3 | [`hub`] | one slot for each watched session |
//! | 3 | `overview` | every open session at once, for the control API |
//! | 4 | `http::{problem, route, body, host, client}` | errors as answers, paths as values, bodies of bounded size, who is asked and who asks |
//! | 4 | `http::{socket, wire}` | the sockets that a stream can be written to, and its form there |
//! | 5 | `http::{source, stream, handoff, stream_body}` | what a stream says, after hyper or within it |
//! | 5 | `http::fanout` | the one writer of all streams of one session's list |
//! | 5 | `http::{negotiate, observe, control, metrics}` | the two sides' routes |
//! | 5 | `http::{assets, cors}` | the embedded files, and what pages of other origins may read |
//! | 5 | `http::{gate, admission, service}` | who is let in, and the two sides for somebody's own server |
//! | 6 | [`server`] | listeners, connections, drain |
//! | 6 | `laws` | what holds for any input, for property tests and fuzzing alone |
//! | 7 | `embed` | a gateway inside another program |
//!
//! # Invariants
//!
//! 1. No lock is held across `.await`, nor while a listener runs: commit, unlock, then notify.
//! 2. No queue is unbounded. A stream holds at most one unsent frame.
//! 3. Nothing below `http` knows a status code; nothing above `registry` writes a record.
//! 4. The browsers' side is handed a [`TaskObserver`]: it cannot read output, stop or start.
//! 5. Looking creates no owner and leaves nothing behind.
//! 6. Every live task has someone bound to settle it: a process, a terminal, a lease, or a handle
//!    whose drop settles. An external task without a lease has its producer alone, until its session is
//!    disposed or the gateway ends.
//! 7. The clock is handed in; only `clock` reads the machine's.

mod address;
pub mod clock;
pub mod config;
pub mod descriptors;
mod embed;
mod http;
pub mod hub;
mod id;
#[cfg(any(test, fuzzing))]
pub mod laws;
mod mux;
mod output;
mod overview;
pub mod producer;
mod registry;
pub mod server;
pub mod shutdown;
pub mod spill;
mod sse;
mod sync;
mod task;
mod token;
mod traffic;
mod whole;

pub use self::{
    address::{ControlAddress, HostName, InvalidControlAddress, InvalidHostName},
    embed::{Builder, Mounted, Tasklight},
    id::{InvalidKind, InvalidSessionId, InvalidTaskId, InvalidTerminalId, Kind, Scope, SessionId, TaskId, TerminalId},
    registry::{
        AccessError, ByEnd, ByStatus, Census, Disposal, DoneTask, Finished, InvalidNoticeId, Kill, KillError,
        LaunchError, Launched, ListenerGuard, NewTask, Notice, NoticeId, Notices, Owner, Producer, Reading, Registry,
        StartError, Stop, StopError, StopReason, TaskHandle, TaskObserver, TaskWriter, Update,
    },
    task::{Detail, End, InvalidDetail, InvalidLabel, Label, Outcome, Status, TaskView},
    token::{InvalidToken, SecretToken, TokenFileError},
};

/// The two sides as hyper services; see [`Builder::mount`].
pub mod service {
    pub use crate::http::service::{Body, ControlService, ObserveService};
}

/// The paths of the control API, for clients.
pub mod paths {
    pub use crate::http::route::{owner_path, tasks_path, terminals_path};
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
