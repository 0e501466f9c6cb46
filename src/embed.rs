//! A gateway inside another program.
//!
//! Promises:
//! - What is wrong with the settings is an error of the last step, never a panic.
//! - A gateway that is shut down ends its registry's tasks while its streams still show it, and
//!   streams end cleanly; one gateway has one registry, and takes it along.
//! - A gateway that is dropped ends too, with nobody waiting for it.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::task::JoinHandle;

use crate::{
    address::ControlAddress,
    clock::Clock,
    config::Settings,
    http::service::{ControlService, ObserveService},
    registry::Registry,
    server::{BindError, Server, Services},
    shutdown::{self, Phase, ShutdownTrigger},
    spill::SpillFolder,
};

/// A gateway that serves in the background, made by [`Tasklight::builder`].
///
/// Dropping it begins a shutdown and waits for nothing.
pub struct Tasklight {
    address: SocketAddr,
    control: Vec<ControlAddress>,
    trigger: Arc<ShutdownTrigger>,
    serving: JoinHandle<()>,
}

impl Tasklight {
    /// Begins a gateway with the default [`Settings`] and a registry of its own.
    pub fn builder() -> Builder {
        Builder { settings: Settings::default(), registry: Source::Own }
    }

    /// Where browsers connect; the real port, if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the control API is, with real ports; empty if there is none.
    #[must_use]
    pub fn control(&self) -> &[ControlAddress] {
        &self.control
    }

    /// Ends tasks, streams and connections, within [`Settings::drain`], and returns when all is
    /// done.
    pub async fn shutdown(mut self) {
        self.trigger.enter(Phase::Draining);
        // An error is a panic of what served: then it has ended too.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Tasklight {
    fn drop(&mut self) {
        self.trigger.enter(Phase::Draining);
    }
}

impl fmt::Debug for Tasklight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasklight")
            .field("address", &self.address)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

/// A gateway to be. Its last step says where it serves: [`Builder::serve`], [`Builder::bind`] or
/// [`Builder::mount`].
#[derive(Debug)]
#[must_use = "nothing is served before the last step"]
pub struct Builder {
    settings: Settings,
    registry: Source,
}

#[derive(Debug)]
enum Source {
    Own,
    Given(Registry),
    Absent,
}

impl Builder {
    /// Takes settings, all of them.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Shows that registry, which keeps the limits and the files it was made with. The gateway closes it at its
    /// end, see [`Registry::close`].
    pub fn registry(self, registry: Registry) -> Self {
        Self { registry: Source::Given(registry), ..self }
    }

    /// Shows no registry: every session is empty, and streams are silent but for signs of life.
    /// For programs whose pages look for a gateway where there is no background work.
    pub fn without_registry(self) -> Self {
        Self { registry: Source::Absent, ..self }
    }

    /// Serves in the background, on sockets of its own. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn serve(self) -> Result<Tasklight, BindError> {
        let server = self.bind()?;
        let (trigger, shutdown) = shutdown::channel();
        let trigger = Arc::new(trigger);
        let (address, control) = (server.address(), server.control().to_vec());
        let serving = tokio::spawn({
            let trigger = Arc::clone(&trigger);
            async move { server.run(&trigger, shutdown).await }
        });
        Ok(Tasklight { address, control, trigger, serving })
    }

    /// Takes the sockets, and leaves it to the caller to serve. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(self) -> Result<Server, BindError> {
        let (settings, registry, spill) = self.parts()?;
        Server::bind(settings, registry, spill)
    }

    /// Takes no sockets: the two sides are services for a hyper server of the caller's.
    /// [`Settings::listen`], [`Settings::control`] and [`Settings::hosts`] are not used. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError::NoRuntime`].
    pub fn mount(self) -> Result<Mounted, BindError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BindError::NoRuntime)?;
        let (settings, registry, spill) = self.parts()?;
        let (trigger, shutdown) = shutdown::channel();
        let services = Services::new(&settings, registry, shutdown.clone());
        let ticking = services.clone();
        let beating = runtime.spawn(async move { match ticking.tick().await {} });
        let observe = ObserveService::new(Arc::clone(&services.observe), Arc::clone(&services.traffic), shutdown);
        let control = services.control.clone().map(|control| ControlService::new(control, settings.token.clone()));
        Ok(Mounted { settings, services, observe, control, trigger, beating: Beating(beating), spill })
    }

    fn parts(self) -> Result<(Settings, Option<Registry>, Option<SpillFolder>), BindError> {
        let Self { settings, registry } = self;
        match registry {
            Source::Own => {
                let spill = settings.spill_dir.as_ref().map(|path| {
                    SpillFolder::open(path, settings.spill_limit)
                        .map_err(|source| BindError::Spill { path: path.clone(), source })
                });
                let spill = spill.transpose()?;
                let spills = spill.as_ref().map(SpillFolder::spills);
                let registry = Registry::with_spills(Clock::system(), settings.limits, spills);
                Ok((settings, Some(registry), spill))
            }
            Source::Given(registry) => Ok((settings, Some(registry), None)),
            Source::Absent => Ok((settings, None, None)),
        }
    }
}

/// A gateway without sockets: services to be mounted, and what keeps them going.
///
/// Dropping it ends the streams at once and leaves the tasks alone.
#[derive(Debug)]
pub struct Mounted {
    settings: Settings,
    services: Services,
    observe: ObserveService,
    control: Option<ControlService>,
    trigger: ShutdownTrigger,
    beating: Beating,
    /// Where outputs are kept, for as long as the registry is shown.
    spill: Option<SpillFolder>,
}

/// The ticker of all streams and leases; ends with its owner.
#[derive(Debug)]
struct Beating(JoinHandle<()>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Mounted {
    /// What browsers may ask for.
    #[must_use]
    pub fn observe(&self) -> ObserveService {
        self.observe.clone()
    }

    /// What producers and agents may ask for; none without a registry.
    #[must_use]
    pub fn control(&self) -> Option<ControlService> {
        self.control.clone()
    }

    /// Ends the tasks, within [`Settings::drain`], then the streams. The server around it is the
    /// caller's to end.
    pub async fn shutdown(self) {
        let Self { settings, services, observe: _, control: _, trigger, beating, spill: _spill } = self;
        trigger.enter(Phase::Draining);
        let _ = tokio::time::timeout(settings.drain, services.end_tasks(settings.drain)).await;
        trigger.enter(Phase::Ending);
        drop(beating);
    }
}
