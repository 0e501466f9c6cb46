//! `tasklight serve`.

use std::time::Duration;

use tasklight::{
    ControlAddress, Tasklight,
    config::{RegistryLimits, Settings, TerminalLimits},
    descriptors,
    shutdown::{self, Phase},
};

use super::{
    CommandError,
    args::{ControlArguments, ServeArguments},
};

/// How long the end waits for threads: dropping tasks takes a moment, and so does a write.
const LAST_MOMENT: Duration = Duration::from_secs(2);

pub(super) fn serve(arguments: ServeArguments, control: ControlArguments) -> Result<(), CommandError> {
    let mut limits = RegistryLimits::default();
    limits.max_live_tasks = arguments.max_live_tasks;
    limits.max_sessions = arguments.max_sessions;
    limits.max_kinds = arguments.max_kinds;
    limits.max_settled_tasks = arguments.max_settled_tasks;
    limits.output_tail = arguments.output_tail;
    let mut terminals = TerminalLimits::default();
    terminals.max_open = arguments.max_terminals;
    let settings = Settings {
        listen: arguments.listen,
        hosts: arguments.hosts,
        allow_origins: arguments.allow_origin,
        token: control.token()?,
        control: control.addresses(),
        heartbeat: arguments.heartbeat,
        request_timeout: arguments.request_timeout,
        peer_timeout: arguments.peer_timeout,
        max_connections: arguments.max_connections,
        max_session_streams: arguments.max_session_streams,
        max_client_streams: arguments.max_client_streams,
        trusted_proxies: arguments.trusted_proxy,
        drain: arguments.drain,
        grace: arguments.grace,
        spill_dir: arguments.spill_dir,
        spill_limit: arguments.spill_limit,
        limits,
        terminals,
    };
    let descriptors = descriptors::raise();
    tracing::debug!(descriptors, "as many may be open");
    // One thread: what a change costs beyond the kernel's price is little, and where several share it, waking
    // the next one costs more than the work that it takes over.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CommandError::System)?;
    let served = runtime.block_on(async {
        let mut signal = shutdown::signals().map_err(CommandError::System)?;
        let server = Tasklight::builder().settings(settings).bind()?;
        let control: Vec<_> = server.control().iter().map(ControlAddress::to_string).collect();
        // In the form that TASKLIGHT_CONTROL takes.
        tracing::info!(listen = %server.address(), control = %control.join(","), "serving");
        let (trigger, shutdown) = shutdown::channel();
        let signals = async {
            signal().await;
            trigger.enter(Phase::Draining);
            signal().await;
        };
        tokio::select! {
            () = server.run(&trigger, shutdown) => Ok(()),
            () = signals => Err(CommandError::Impatient),
        }
    });
    // Whatever still runs is killed as it is dropped; a write to a disk that hangs is not waited for.
    runtime.shutdown_timeout(LAST_MOMENT);
    served
}
