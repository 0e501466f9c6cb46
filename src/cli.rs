//! The command line: arguments to a command, a command to an exit code.

pub(crate) mod args;
mod backoff;
mod client;
mod events;
mod print;
mod run;
mod serve;
mod text;
mod watch;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    process::ExitCode,
};

use hyper::StatusCode;
use tasklight::{
    InvalidLabel, TaskView,
    paths::{owner_path, tasks_path},
};
use tracing_subscriber::EnvFilter;

use self::{
    args::{Arguments, Command, StartArguments},
    client::{Client, ClientError, Content, Method},
};

/// Why a command failed. `tasklight help` documents the exit codes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Bind(#[from] tasklight::server::BindError),
    #[error(transparent)]
    Token(#[from] args::TokenError),
    #[error("this folder's name cannot be a session's; name one with --session")]
    NoSession,
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    #[error("name a command")]
    NoCommand,
    #[error("{} cannot be run: {error}", program.display())]
    NotRun { program: OsString, error: io::Error },
    #[error("{0}")]
    System(#[source] io::Error),
    /// Nobody reads what is printed any more.
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
    #[error("a second signal came before all had ended")]
    Impatient,
}

impl CommandError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Client(ClientError::Unreachable { .. }) => ExitCode::from(3),
            Self::Client(_)
            | Self::Bind(_)
            | Self::Token(_)
            | Self::NoSession
            | Self::Label(_)
            | Self::NoCommand
            | Self::NotRun { .. }
            | Self::System(_)
            | Self::Print(_)
            | Self::Impatient => ExitCode::FAILURE,
        }
    }
}

/// Carries a command out.
pub(crate) fn carry_out(arguments: Arguments) -> ExitCode {
    match execute(arguments) {
        Ok(code) => code,
        Err(CommandError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            print::error(&error);
            error.exit_code()
        }
    }
}

fn execute(Arguments { control, command }: Arguments) -> Result<ExitCode, CommandError> {
    match command {
        Command::Serve(serve) => {
            log_to_stderr();
            serve::serve(serve, control)?;
        }
        Command::Run(run) => return run::run(run, &control),
        Command::Watch { session, json } => {
            let client = Client::new(&control)?;
            let watch = watch::watch(&client, session.session()?, json);
            runtime()?.block_on(watch)?;
        }
        asking @ (Command::Start(_)
        | Command::List { .. }
        | Command::Output { .. }
        | Command::Kill { .. }
        | Command::Dispose { .. }) => runtime()?.block_on(ask(&Client::new(&control)?, asking))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::System)
}

/// The commands that ask a gateway one thing.
async fn ask(client: &Client, command: Command) -> Result<(), CommandError> {
    match command {
        Command::Serve(_) | Command::Run(_) | Command::Watch { .. } => Ok(()),
        Command::Start(start) => {
            let json = start.json;
            let scope = start.scope.scope()?;
            let body = start_body(start)?;
            let task = client.send(Method::POST, &tasks_path(&scope), Content::Json(&body)).await?.body;
            if json { print::line(&task) } else { print::line(&client::parsed::<TaskView>(&task)?.id.to_string()) }
        }
        Command::List { scope, json } => {
            let scope = scope.scope()?;
            let list = client.send(Method::GET, &tasks_path(&scope), Content::None).await?.body;
            if json { print::line(&list) } else { print::list(&client::parsed::<Vec<TaskView>>(&list)?, &scope) }
        }
        Command::Output { task, scope, wait, json } => {
            let wait = wait.map(|wait| format!("?wait={}ms", wait.as_millis())).unwrap_or_default();
            let path = format!("{}/{task}/output{wait}", tasks_path(&scope.scope()?));
            let output = client.send(Method::GET, &path, Content::None).await?.body;
            if json { print::line(&output) } else { print::output(&client::parsed(&output)?) }
        }
        Command::Kill { task, scope, reason, json } => {
            let path = format!("{}/{task}/kill", tasks_path(&scope.scope()?));
            let body = serde_json::json!({ "reason": reason });
            let answer = client.send(Method::POST, &path, Content::Json(&body)).await?;
            if json {
                return print::line(&answer.body);
            }
            let task = client::parsed::<TaskView>(&answer.body)?;
            if answer.status == StatusCode::ACCEPTED { print::asked(&task) } else { print::finished(&task) }
        }
        Command::Dispose { session } => {
            let session = session.session()?;
            client.send(Method::DELETE, &owner_path(&session), Content::None).await?;
            print::line(&format!("{session} disposed"))
        }
    }
}

fn start_body(start: StartArguments) -> Result<serde_json::Value, CommandError> {
    let cwd = match start.cwd {
        Some(cwd) => std::path::absolute(cwd),
        None => std::env::current_dir(),
    };
    let mut body = serde_json::json!({
        "kind": start.kind.name(),
        "command": start.kind.command_line(&start.command),
        "cwd": cwd.map_err(CommandError::System)?,
        "env": start.env.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    });
    if let Some(label) = start.label
        && let Some(fields) = body.as_object_mut()
    {
        fields.insert("label".to_owned(), label.into());
    }
    Ok(body)
}

/// One line an event, on stderr; `TASKLIGHT_LOG` says which.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("TASKLIGHT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
