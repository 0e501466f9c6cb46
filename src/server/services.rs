//! What serves, apart from sockets: the hub, the producers, and the control API's routes, built on
//! one registry or on none.

use std::{convert::Infallible, sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    config::Settings,
    http::{control::Control, observe::Observe},
    hub::Hub,
    producer::{external::Externals, pty::Terminals, shell::Shells},
    registry::Registry,
    shutdown::Shutdown,
    traffic::Traffic,
};

/// The parts of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) hub: Arc<Hub>,
    pub(crate) observe: Arc<Observe>,
    pub(crate) traffic: Arc<Traffic>,
    /// None without a registry: there is nothing to control.
    pub(crate) control: Option<Arc<Control>>,
}

impl Services {
    pub(crate) fn new(settings: &Settings, registry: Option<Registry>, shutdown: Shutdown) -> Self {
        let clock = registry.as_ref().map_or_else(Clock::system, Registry::clock);
        let observer = registry.as_ref().map(Registry::observer);
        let hub = Arc::new(Hub::new(observer, clock, settings.heartbeat));
        let observe = Observe { hub: Arc::clone(&hub), allow_origins: settings.allow_origins.clone() };
        let traffic = Arc::new(Traffic::default());
        let control = registry.map(|registry| {
            let (grace, unseen) = (settings.grace, settings.limits.output_tail);
            let terminals = Terminals::new(registry.clone(), settings.terminals, grace, unseen);
            Arc::new(Control {
                registry,
                hub: Arc::clone(&hub),
                traffic: Arc::clone(&traffic),
                shells: Shells::new(settings.grace),
                externals: Externals::new(settings.grace),
                terminals,
                shutdown,
                request_timeout: settings.request_timeout,
                grace: settings.grace,
            })
        });
        Self { hub, observe: Arc::new(observe), traffic, control }
    }

    /// Beats for silent streams and ends the leases that ran out, for as long as it is polled.
    pub(crate) async fn tick(&self) -> Infallible {
        let expire = async {
            match &self.control {
                Some(control) => control.externals.expire().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = self.hub.beat() => never,
            never = expire => never,
        }
    }

    /// Refuses every start from now on, and ends every task, process and terminal; returns how many tasks
    /// had not ended within `bound`.
    pub(crate) async fn end_tasks(&self, bound: Duration) -> usize {
        let Some(control) = &self.control else { return 0 };
        let tasks = async {
            let live = control.registry.close(bound).await;
            control.shells.close().await;
            live
        };
        tokio::join!(tasks, control.terminals.close_all()).0
    }
}
