//! `tasklight watch`: a session's list, live.
//!
//! On a terminal it is drawn in place; elsewhere each change of a task is a line, or each list is a
//! line of JSON. It outlives its gateway: it reconnects, and says so.

mod changes;
mod rows;
mod screen;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use tasklight::SessionId;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{sleep, timeout},
};

use self::{changes::Changes, screen::Screen};
use super::{
    CommandError,
    backoff::Backoff,
    client::{Client, ClientError},
    events::{Events, List},
    print,
};

/// The first wait before a reconnect where the gateway names none, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// The longest that the gateway may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the list is shown.
enum View {
    Screen(Screen),
    Changes(Changes),
    Json,
}

impl View {
    fn list(&mut self, list: List) -> Result<(), CommandError> {
        match self {
            Self::Screen(screen) => screen.list(list),
            Self::Changes(changes) => changes.list(list),
            Self::Json => print::line(&list.json),
        }
    }

    /// Nothing new will come for `wait`.
    fn lost(&mut self, why: &ClientError, wait: Duration) -> Result<(), CommandError> {
        let what = format!("{why}; trying again in {:.1} s", wait.as_secs_f64());
        match self {
            Self::Screen(screen) => screen.lost(what),
            Self::Changes(_) | Self::Json => {
                print::notice(&what);
                Ok(())
            }
        }
    }

    /// Returns when there is something to draw though nothing came.
    async fn tick(&self) {
        match self {
            Self::Screen(screen) => screen.tick().await,
            Self::Changes(_) | Self::Json => std::future::pending().await,
        }
    }

    fn draw(&mut self) -> Result<(), CommandError> {
        match self {
            Self::Screen(screen) => screen.draw(),
            Self::Changes(_) | Self::Json => Ok(()),
        }
    }
}

/// Shows the list until SIGINT or SIGTERM.
pub(super) async fn watch(client: &Client, session: SessionId, json: bool) -> Result<(), CommandError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandError::System)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CommandError::System)?;
    let mut view = match (json, io::stdout().is_terminal()) {
        (true, _) => View::Json,
        (false, true) => View::Screen(Screen::new(session.clone())),
        (false, false) => View::Changes(Changes::default()),
    };
    tokio::select! {
        shown = show(client, &session, &mut view) => shown,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Shows the list for ever, or until the gateway says that it never will.
async fn show(client: &Client, session: &SessionId, view: &mut View) -> Result<(), CommandError> {
    let mut resized = signal(SignalKind::window_change()).map_err(CommandError::System)?;
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let why = follow(client, session, view, &mut resized, &mut backoff).await?;
        if why.is_final() {
            return Err(why.into());
        }
        let wait = backoff.next();
        view.lost(&why, wait)?;
        drawing(view, &mut resized, sleep(wait)).await?;
    }
}

/// Shows the list for as long as one stream lasts, and returns why it does not any more.
async fn follow(
    client: &Client,
    session: &SessionId,
    view: &mut View,
    resized: &mut Signal,
    backoff: &mut Backoff,
) -> Result<ClientError, CommandError> {
    let opening = timeout(PATIENCE, Events::open(client, session));
    let mut events = match drawing(view, resized, opening).await? {
        Ok(Ok(events)) => events,
        Ok(Err(error)) => return Ok(error),
        Err(_) => return Ok(ClientError::Late),
    };
    loop {
        match drawing(view, resized, events.next()).await? {
            Ok(Some(list)) => {
                backoff.start_at(events.retry().unwrap_or(FIRST_RETRY));
                view.list(list)?;
            }
            Ok(None) => return Ok(ClientError::Ended),
            Err(error) => return Ok(error),
        }
    }
}

/// Awaits something, and draws whenever that is due meanwhile.
async fn drawing<T>(
    view: &mut View,
    resized: &mut Signal,
    awaited: impl Future<Output = T>,
) -> Result<T, CommandError> {
    let mut awaited = std::pin::pin!(awaited);
    loop {
        tokio::select! {
            done = &mut awaited => return Ok(done),
            _ = resized.recv() => view.draw()?,
            () = view.tick() => view.draw()?,
        }
    }
}
