//! The producers' and agents' routes. They can run commands, so they are never reached by a page:
//! only by a Unix socket that nobody but its owner can open, or with a token.

mod streams;
mod tasks;
mod terminals;

use std::{borrow::Cow, sync::Arc, time::Duration};

use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

#[cfg(any(test, fuzzing))]
pub(crate) use self::tasks::started_by;
use super::{
    Whole, body,
    handoff::Answer,
    json,
    problem::Problem,
    route::{self, ControlRoute},
};
use crate::{
    hub::Hub,
    id::{Scope, SessionId, TaskId},
    producer::{external::Externals, pty::Terminals, shell::Shells},
    registry::{Kill, Reading, Registry},
    shutdown::{Phase, Shutdown},
    spill::Extent,
    task::TaskView,
    traffic::Traffic,
};

/// What this API is, as an `OpenAPI` document.
const DOCUMENT: &str = include_str!("openapi.json");

/// The longest that a read is held.
const MAX_WAIT: Duration = Duration::from_mins(10);

/// How much longer than the grace is waited for what was asked to end.
const DISPOSAL_MARGIN: Duration = Duration::from_secs(2);

/// What the routes act on.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) registry: Registry,
    pub(crate) hub: Arc<Hub>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) shells: Shells,
    pub(crate) externals: Externals,
    pub(crate) terminals: Terminals,
    pub(crate) shutdown: Shutdown,
    pub(crate) request_timeout: Duration,
    pub(crate) grace: Duration,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KillRequest {
    reason: Option<String>,
}

#[derive(Serialize)]
struct Output<'a> {
    text: Cow<'a, str>,
    task: &'a TaskView,
}

impl Control {
    /// Answers one request, and leaves it where it is: it is large, and moving it down step by step costs more
    /// than most steps.
    pub(crate) async fn answer(&self, request: &mut Request<Incoming>) -> Answer {
        match self.observed(request) {
            Ok(Some(answer)) => answer,
            Ok(None) => self.route(request).await.unwrap_or_else(Whole::from).into(),
            Err(problem) => Whole::from(problem).into(),
        }
    }

    async fn route(&self, request: &mut Request<Incoming>) -> Result<Whole, Problem> {
        let (route, allow) = route::control(request.uri().path())?;
        let method = request.method().clone();
        match (route, method) {
            (ControlRoute::Tasks(scope), Method::GET | Method::HEAD) => {
                Ok(as_json(StatusCode::OK, &self.registry.list(&scope)))
            }
            (ControlRoute::Tasks(scope), Method::POST) => self.start(&scope, request).await,
            (ControlRoute::Task(scope, id), Method::GET) => {
                Ok(as_json(StatusCode::OK, &self.registry.get(&scope, &id)?))
            }
            (ControlRoute::Task(scope, id), Method::PATCH) => self.update(&scope, &id, request).await,
            (ControlRoute::Kill(scope, id), Method::POST) => self.kill(&scope, &id, request).await,
            (ControlRoute::Output(scope, id), Method::GET) => self.output(&scope, &id, request.uri().query()).await,
            (ControlRoute::Output(scope, id), Method::POST) => self.append(&scope, &id, request).await,
            (ControlRoute::Owner(session), Method::DELETE) => Ok(self.dispose(&session).await),
            (ControlRoute::Terminals(session, route), _) => self.terminals_route(&session, route, allow, request).await,
            (ControlRoute::Healthz, Method::GET) => Ok(plain("ok\n")),
            (ControlRoute::Readyz, Method::GET) => match self.shutdown.phase() {
                Phase::Running => Ok(plain("ready\n")),
                Phase::Draining | Phase::Ending => Err(Problem::Draining),
            },
            (ControlRoute::Document, Method::GET | Method::HEAD) => Ok(json(StatusCode::OK, DOCUMENT)),
            (_, _) => Err(Problem::MethodNotAllowed { allow }),
        }
    }

    async fn kill(&self, scope: &Scope, id: &TaskId, request: &mut Request<Incoming>) -> Result<Whole, Problem> {
        let KillRequest { reason } = body::json_or_default(request, self.request_timeout).await?;
        match self.registry.kill(scope, id, reason)? {
            Kill::Asked(task) => Ok(as_json(StatusCode::ACCEPTED, &task)),
            Kill::AlreadyFinished(task) => Ok(as_json(StatusCode::OK, &task)),
        }
    }

    async fn output(&self, scope: &Scope, id: &TaskId, query: Option<&str>) -> Result<Whole, Problem> {
        let wait = wait(query.unwrap_or_default())?;
        let mut shutdown = self.shutdown.clone();
        let reading = tokio::select! {
            reading = self.registry.read_within(scope, id, wait) => reading?,
            // Held no longer than the gateway lives: what there is now is the answer.
            () = shutdown.reached(Phase::Ending) => self.registry.read(scope, id)?,
        };
        Ok(as_json(StatusCode::OK, &Output { text: text(&reading), task: &reading.task }))
    }

    async fn dispose(&self, session: &SessionId) -> Whole {
        let bound = self.grace + DISPOSAL_MARGIN;
        let deadline = Instant::now() + bound;
        self.registry.dispose_owner(session, bound).await;
        let _ = timeout_at(deadline, self.terminals.gone(session)).await;
        super::empty(StatusCode::NO_CONTENT)
    }
}

/// What a model reads, with what is missing said where it is missing.
fn text(reading: &Reading) -> Cow<'_, str> {
    let dropped = match reading.dropped {
        0 => return Cow::Borrowed(&reading.text),
        dropped => format!("{dropped} bytes of older output are gone"),
    };
    let file = reading.spilled.as_ref().map(|spilled| {
        let path = spilled.path.display();
        match spilled.extent {
            Extent::Whole => format!("; all of it is in {path}"),
            Extent::Beginning(bytes) => format!("; the first {bytes} bytes of it are in {path}"),
            Extent::Incomplete => format!("; {path} is incomplete, since it could not be written"),
        }
    });
    format!("[{dropped}{}]\n{}", file.unwrap_or_default(), reading.text).into()
}

/// `wait=30s`, `wait=500ms`; none is not to wait.
fn wait(query: &str) -> Result<Duration, Problem> {
    let Some((_, wait)) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "wait") else {
        return Ok(Duration::ZERO);
    };
    let wait = humantime::parse_duration(&wait)
        .map_err(|error| Problem::field("wait", format!("{error}; write 500ms or 30s")))?;
    if wait > MAX_WAIT {
        return Err(Problem::field("wait", format!("at most {}s, then ask again", MAX_WAIT.as_secs())));
    }
    Ok(wait)
}

fn created(path: &str, value: &impl Serialize) -> Whole {
    let mut answer = as_json(StatusCode::CREATED, value);
    if let Ok(location) = HeaderValue::from_str(path) {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}

fn as_json(status: StatusCode, value: &impl Serialize) -> Whole {
    json(status, crate::sse::json_line(value))
}

fn plain(text: &'static str) -> Whole {
    super::with_body(StatusCode::OK, "text/plain; charset=utf-8", text)
}
