//! What serves, apart from sockets: the hub, the producers, and the control API's routes, built on
//! one registry or on none.

use std::{convert::Infallible, sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    config::Settings,
    http::control::Control,
    hub::Hub,
    producer::{external::Externals, shell::Shells},
    registry::Registry,
    shutdown::Shutdown,
    traffic::Traffic,
};

/// The parts of one gateway.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    pub(crate) hub: Arc<Hub>,
    pub(crate) traffic: Arc<Traffic>,
    /// None without a registry: there is nothing to control.
    pub(crate) control: Option<Arc<Control>>,
}

impl Services {
    pub(crate) fn new(settings: &Settings, registry: Option<Registry>, shutdown: Shutdown) -> Self {
        let clock = registry.as_ref().map_or_else(Clock::system, Registry::clock);
        let observer = registry.as_ref().map(Registry::observer);
        let hub = Arc::new(Hub::new(observer, clock, settings.heartbeat));
        let traffic = Arc::new(Traffic::default());
        let control = registry.map(|registry| {
            Arc::new(Control {
                registry,
                hub: Arc::clone(&hub),
                traffic: Arc::clone(&traffic),
                shells: Shells::new(settings.grace),
                externals: Externals::new(settings.grace),
                shutdown,
                request_timeout: settings.request_timeout,
                grace: settings.grace,
            })
        });
        Self { hub, traffic, control }
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

    /// Refuses every start from now on, and ends every task and process; returns how many tasks
    /// had not ended within `bound`.
    pub(crate) async fn end_tasks(&self, bound: Duration) -> usize {
        let Some(control) = &self.control else { return 0 };
        let live = control.registry.close(bound).await;
        control.shells.close().await;
        live
    }
}
