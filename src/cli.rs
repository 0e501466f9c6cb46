//! The command line: arguments to a command, a command to an exit code.

pub(crate) mod args;
mod client;
mod print;
mod serve;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use tasklight::{
    TaskView,
    paths::{owner_path, tasks_path},
};
use tracing_subscriber::EnvFilter;

use self::{
    args::{Arguments, Command, StartArguments},
    client::{Client, ClientError, Method},
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
            | Self::System(_)
            | Self::Print(_)
            | Self::Impatient => ExitCode::FAILURE,
        }
    }
}

/// Carries a command out.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match execute(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            print::error(&error);
            error.exit_code()
        }
    }
}

fn execute(arguments: Arguments) -> Result<(), CommandError> {
    if let Command::Serve(serve) = arguments.command {
        log_to_stderr();
        return serve::serve(serve, arguments.control);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(CommandError::System)?.block_on(ask(arguments))
}

/// The commands that ask a gateway.
async fn ask(arguments: Arguments) -> Result<(), CommandError> {
    let client = Client::new(&arguments.control)?;
    match arguments.command {
        Command::Serve(_) => Ok(()),
        Command::Start(start) => {
            let json = start.json;
            let scope = start.scope.scope()?;
            let task = client.send(Method::POST, &tasks_path(&scope), Some(&start_body(start)?)).await?;
            if json { print::line(&task) } else { print::line(&client::parsed::<TaskView>(&task)?.id.to_string()) }
        }
        Command::List { scope, json } => {
            let list = client.send(Method::GET, &tasks_path(&scope.scope()?), None).await?;
            if json { print::line(&list) } else { print::list(&client::parsed::<Vec<TaskView>>(&list)?) }
        }
        Command::Output { task, scope, wait, json } => {
            let wait = wait.map(|wait| format!("?wait={}ms", wait.as_millis())).unwrap_or_default();
            let path = format!("{}/{task}/output{wait}", tasks_path(&scope.scope()?));
            let output = client.send(Method::GET, &path, None).await?;
            if json { print::line(&output) } else { print::output(&client::parsed(&output)?) }
        }
        Command::Kill { task, scope, reason, json } => {
            let path = format!("{}/{task}/kill", tasks_path(&scope.scope()?));
            let body = serde_json::json!({ "reason": reason });
            let task = client.send(Method::POST, &path, Some(&body)).await?;
            if json { print::line(&task) } else { print::status(&client::parsed::<TaskView>(&task)?) }
        }
        Command::Dispose { session } => {
            let session = session.session()?;
            client.send(Method::DELETE, &owner_path(&session), None).await?;
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
