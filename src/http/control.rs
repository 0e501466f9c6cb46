//! The producers' and agents' routes. They can run commands, so they are never reached by a page:
//! only by a Unix socket that nobody but its owner can open.

mod terminals;

use std::{borrow::Cow, collections::BTreeMap, path::PathBuf, time::Duration};

use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::{
    Whole, body, json,
    problem::Problem,
    route::{self, ControlRoute, tasks_path},
};
use crate::{
    id::{Kind, Scope, SessionId, TaskId},
    producer::{
        pty::Terminals,
        shell::{Shell, ShellCommand, Shells},
    },
    registry::{Kill, NewTask, Reading, Registry},
    shutdown::{Phase, Shutdown},
    task::{Label, TaskView},
};

/// The longest that a read is held.
const MAX_WAIT: Duration = Duration::from_mins(10);

/// How much longer than the grace is waited for what was asked to end.
const DISPOSAL_MARGIN: Duration = Duration::from_secs(2);

/// What the routes act on.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) registry: Registry,
    pub(crate) shells: Shells,
    pub(crate) terminals: Terminals,
    pub(crate) shutdown: Shutdown,
    pub(crate) request_timeout: Duration,
    pub(crate) grace: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    command: Option<String>,
    kind: Option<Kind>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    label: Option<Label>,
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
    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Whole {
        self.route(request).await.unwrap_or_else(Whole::from)
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Whole, Problem> {
        let route = route::control(request.uri().path())?;
        let method = request.method().clone();
        let not_allowed = |allow| Err(Problem::MethodNotAllowed { allow });
        match (route, method) {
            (ControlRoute::Tasks(scope), Method::GET) => Ok(as_json(StatusCode::OK, &self.registry.list(&scope))),
            (ControlRoute::Tasks(scope), Method::POST) => self.start(&scope, request).await,
            (ControlRoute::Tasks(_), _) => not_allowed("GET, POST"),
            (ControlRoute::Task(scope, id), Method::GET) => {
                Ok(as_json(StatusCode::OK, &self.registry.get(&scope, &id)?))
            }
            (ControlRoute::Kill(scope, id), Method::POST) => self.kill(&scope, &id, request).await,
            (ControlRoute::Kill(..), _) => not_allowed("POST"),
            (ControlRoute::Output(scope, id), Method::GET) => self.output(&scope, &id, &request).await,
            (ControlRoute::Owner(session), Method::DELETE) => Ok(self.dispose(&session).await),
            (ControlRoute::Owner(_), _) => not_allowed("DELETE"),
            (ControlRoute::Terminals(session, route), method) => {
                self.terminals_route(&session, route, &method, request).await
            }
            (ControlRoute::Healthz, Method::GET) => Ok(plain("ok\n")),
            (ControlRoute::Readyz, Method::GET) => match self.shutdown.phase() {
                Phase::Running => Ok(plain("ready\n")),
                Phase::Draining | Phase::Ending => Err(Problem::Draining),
            },
            (ControlRoute::Task(..) | ControlRoute::Output(..) | ControlRoute::Healthz | ControlRoute::Readyz, _) => {
                not_allowed("GET")
            }
        }
    }

    async fn start(&self, scope: &Scope, request: Request<Incoming>) -> Result<Whole, Problem> {
        let start: Start = body::json(request, self.request_timeout).await?;
        let (task, shell, command) = start.checked()?;
        let task = self.registry.start(scope, task, self.shells.run(shell, command))?;
        Ok(created(&format!("{}/{}", tasks_path(scope), task.id), &task))
    }

    async fn kill(&self, scope: &Scope, id: &TaskId, request: Request<Incoming>) -> Result<Whole, Problem> {
        let KillRequest { reason } = body::json_or_default(request, self.request_timeout).await?;
        match self.registry.kill(scope, id, reason)? {
            Kill::Asked(task) => Ok(as_json(StatusCode::ACCEPTED, &task)),
            Kill::AlreadyFinished(task) => Ok(as_json(StatusCode::OK, &task)),
        }
    }

    async fn output(&self, scope: &Scope, id: &TaskId, request: &Request<Incoming>) -> Result<Whole, Problem> {
        let wait = wait(request.uri().query().unwrap_or_default())?;
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

impl Start {
    /// What was asked for, if all of it makes sense.
    fn checked(self) -> Result<(NewTask, Shell, ShellCommand), Problem> {
        let Self { command, kind, cwd, env, label } = self;
        let command = command.ok_or_else(|| Problem::field("command", "missing: what the shell is to run"))?;
        let kind = kind.unwrap_or_else(Kind::bash);
        let shell = Shell::of(&kind).ok_or_else(|| {
            Problem::field(
                "kind",
                format!("a command is run by kind bash or pwsh, not by {kind}; for a pty, open a terminal"),
            )
        })?;
        check_command(&command)?;
        check_variables(&env)?;
        let label = label.map_or_else(|| Label::from_command(&command), Ok);
        let label = label.map_err(|_| Problem::field("command", "a command has something to run in it"))?;
        Ok((NewTask { kind, label }, shell, ShellCommand { command, cwd, env }))
    }
}

fn check_command(command: &str) -> Result<(), Problem> {
    if command.contains('\0') {
        return Err(Problem::field("command", "a command has no NUL character"));
    }
    Ok(())
}

fn check_variables(env: &BTreeMap<String, String>) -> Result<(), Problem> {
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Problem::field(
            "env",
            format!("{name:?} is not a variable's name: it is empty, or has '=' or NUL"),
        ));
    }
    if let Some((name, _)) = env.iter().find(|(_, value)| value.contains('\0')) {
        return Err(Problem::field(format!("env.{name}"), "a variable's value has no NUL character"));
    }
    Ok(())
}

/// What a model reads, with what is missing said where it is missing.
fn text(reading: &Reading) -> Cow<'_, str> {
    match reading.dropped {
        0 => Cow::Borrowed(&reading.text),
        dropped => format!("[{dropped} bytes of older output are gone]\n{}", reading.text).into(),
    }
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
