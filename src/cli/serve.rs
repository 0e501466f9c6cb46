//! `tasklight serve`.

use tasklight::{
    config::Settings,
    server::Server,
    shutdown::{self, Phase},
};

use super::{
    CommandError,
    args::{ControlAddress, ServeArguments},
};

pub(super) fn serve(arguments: &ServeArguments, control: &ControlAddress) -> Result<(), CommandError> {
    let mut settings = Settings::new(arguments.listen, control.path().to_owned());
    settings.heartbeat = arguments.heartbeat;
    settings.request_timeout = arguments.request_timeout;
    settings.peer_timeout = arguments.peer_timeout;
    settings.grace = arguments.grace;
    settings.drain = arguments.drain;
    settings.limits.max_live_tasks = arguments.max_live_tasks;
    settings.limits.max_settled_tasks = arguments.max_settled_tasks;
    settings.limits.output_tail = arguments.output_tail;
    settings.terminals.max_open = arguments.max_terminals;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(CommandError::System)?.block_on(async {
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
    })
}
