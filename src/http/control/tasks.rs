//! How tasks come in, and how producers report on those that they work on themselves.

use std::{collections::BTreeMap, path::PathBuf};

use hyper::{Request, StatusCode, body::Incoming};
use serde::Deserialize;

use super::{
    super::{Whole, body, empty, json, problem::Problem, route::tasks_path},
    Control, created,
};
use crate::{
    id::{Kind, Scope, TaskId},
    producer::{
        external::Lease,
        shell::{Shell, ShellCommand},
    },
    registry::{NewTask, Update},
    task::{Detail, End, Label},
};

/// With a command, the gateway runs it; without one, whoever asks works and reports.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Start {
    command: Option<String>,
    kind: Option<Kind>,
    cwd: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    label: Option<Label>,
    lease_ms: Option<Lease>,
}

/// Who works.
enum Work {
    Here(Shell, ShellCommand),
    Elsewhere(Option<Lease>),
}

/// A producer's report; `{}` only renews the lease.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    status: Option<ReportedStatus>,
    detail: Option<Detail>,
    label: Option<Label>,
}

/// How a producer says its task stands. `stopping` is not among them: only a kill makes a task so.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReportedStatus {
    /// At work still, which also a task that was asked to end may be: it stays `stopping`.
    Running,
    Completed,
    Killed,
    Failed,
}

impl Control {
    pub(super) async fn start(&self, scope: &Scope, request: &mut Request<Incoming>) -> Result<Whole, Problem> {
        let start: Start = body::json(request, self.request_timeout).await?;
        let (task, work) = start.checked()?;
        let task = match work {
            Work::Here(shell, command) => self.registry.start(scope, task, self.shells.run(shell, command))?,
            Work::Elsewhere(lease) => self.registry.start(scope, task, self.externals.task(lease))?,
        };
        Ok(created(&format!("{}/{}", tasks_path(scope), task.id), &task))
    }

    pub(super) async fn update(
        &self,
        scope: &Scope,
        id: &TaskId,
        request: &mut Request<Incoming>,
    ) -> Result<Whole, Problem> {
        let word = self.externals.hear(&self.registry, scope, id)?;
        let report: Report = body::json(request, self.request_timeout).await?;
        Ok(json(StatusCode::OK, word.report(report.into())?.json().clone()))
    }

    pub(super) async fn append(
        &self,
        scope: &Scope,
        id: &TaskId,
        request: &mut Request<Incoming>,
    ) -> Result<Whole, Problem> {
        let word = self.externals.hear(&self.registry, scope, id)?;
        let text = body::text(request, self.request_timeout).await?;
        word.append(&text).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }
}

impl From<Report> for Update {
    fn from(Report { status, detail, label }: Report) -> Self {
        let end = match status {
            None | Some(ReportedStatus::Running) => None,
            Some(ReportedStatus::Completed) => Some(End::Completed),
            Some(ReportedStatus::Killed) => Some(End::Killed),
            Some(ReportedStatus::Failed) => Some(End::Failed),
        };
        Self { label, detail, end }
    }
}

impl Start {
    /// What was asked for, if all of it makes sense.
    fn checked(self) -> Result<(NewTask, Work), Problem> {
        let Self { command, kind, cwd, env, label, lease_ms } = self;
        let Some(command) = command else {
            if kind.is_none() && label.is_none() {
                return Err(Problem::field(
                    "command",
                    "missing: what the shell is to run; or give a kind and a label, and work on the task yourself",
                ));
            }
            let missing = "missing: a task without a command has a kind and a label";
            let kind = kind.ok_or_else(|| Problem::field("kind", missing))?;
            let label = label.ok_or_else(|| Problem::field("label", missing))?;
            let only_for_commands = |field| Err(Problem::field(field, "only a task with a command has it"));
            return match (cwd, env) {
                (Some(_), _) => only_for_commands("cwd"),
                (_, Some(_)) => only_for_commands("env"),
                (None, None) => Ok((NewTask { kind, label }, Work::Elsewhere(lease_ms))),
            };
        };
        if lease_ms.is_some() {
            return Err(Problem::field("leaseMs", "only a task without a command has a lease"));
        }
        let kind = kind.unwrap_or_else(Kind::bash);
        let shell = Shell::of(&kind).ok_or_else(|| {
            Problem::field(
                "kind",
                format!("a command is run by kind bash or pwsh, not by {kind}; for a pty, open a terminal"),
            )
        })?;
        check_command(&command)?;
        let env = env.unwrap_or_default();
        check_variables(&env)?;
        let label = label.map_or_else(|| Label::from_command(&command), Ok);
        let label = label.map_err(|error| Problem::field("command", error.to_string()))?;
        Ok((NewTask { kind, label }, Work::Here(shell, ShellCommand { command, cwd, env })))
    }
}

pub(super) fn check_command(command: &str) -> Result<(), Problem> {
    if command.contains('\0') {
        return Err(Problem::field("command", "a command has no NUL character"));
    }
    if command.trim().is_empty() {
        return Err(Problem::field("command", "a command has something to run in it"));
    }
    Ok(())
}

pub(super) fn check_variables(env: &BTreeMap<String, String>) -> Result<(), Problem> {
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

/// What a body asks for, and the command if there is one; for [`crate::laws`].
#[cfg(any(test, fuzzing))]
pub(crate) fn started_by(body: &[u8]) -> Result<(NewTask, Option<ShellCommand>), Problem> {
    let (task, work) = body::parse::<Start>(body)?.checked()?;
    match work {
        Work::Here(_, command) => Ok((task, Some(command))),
        Work::Elsewhere(_) => Ok((task, None)),
    }
}
