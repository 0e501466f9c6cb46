//! `tasklight serve`.

use std::time::Duration;

use tasklight::{
    config::Settings,
    server::Server,
    shutdown::{self, Phase},
};

use super::{
    CommandError,
    args::{ControlAddress, ServeArguments},
};

/// How long the end waits for threads: dropping tasks takes a moment, and so does a write.
const LAST_MOMENT: Duration = Duration::from_secs(2);

pub(super) fn serve(arguments: &ServeArguments, control: &ControlAddress) -> Result<(), CommandError> {
    let mut settings = Settings::new(arguments.listen, control.path().to_owned());
    settings.heartbeat = arguments.heartbeat;
    settings.request_timeout = arguments.request_timeout;
    settings.peer_timeout = arguments.peer_timeout;
    settings.grace = arguments.grace;
    settings.drain = arguments.drain;
    settings.spill_dir.clone_from(&arguments.spill_dir);
    settings.spill_limit = arguments.spill_limit;
    settings.limits.max_live_tasks = arguments.max_live_tasks;
    settings.limits.max_settled_tasks = arguments.max_settled_tasks;
    settings.limits.output_tail = arguments.output_tail;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(CommandError::System)?;
    let served = runtime.block_on(async {
        let mut signal = shutdown::signals().map_err(CommandError::System)?;
        let server = Server::bind(settings)?;
        tracing::info!(listen = %server.address(), %control, "serving");
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
