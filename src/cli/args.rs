//! Arguments and variables, as typed values. What a newcomer reads at `tasklight help` is here.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tasklight::{
    ControlAddress, HostName, InvalidToken, Kind, Label, Scope, SecretToken, SessionId, TaskId, TokenFileError,
    config::AllowedOrigin,
};

use super::CommandError;

/// Background work, live in a web page.
///
/// A gateway (`tasklight serve`) runs commands in the background and shows each session's list at
/// <http://ADDRESS/sessions/SESSION/tasks>, live. The other commands ask it, by its control API.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) control: ControlArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tasklight serve &
  tasklight start --session demo -- make test
  curl -N http://127.0.0.1:8080/sessions/demo/tasks
  tasklight output --session demo bash-1 --wait 30s
  tasklight run --session demo -- cargo test
  tasklight watch --session demo

Exit codes:
  0  done
  1  the gateway refused, or something failed; stderr says what
  2  the command line is wrong
  3  no gateway answers at the control address
run has the exit code of its command.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve: hold the tasks and stream their lists, until SIGTERM or Ctrl-C
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArguments),
    /// Start a command in the background, and print its task's id
    #[command(after_help = START_HELP)]
    Start(StartArguments),
    /// Run a command here, as if nothing stood between, and show it as a task
    #[command(after_help = RUN_HELP)]
    Run(RunArguments),
    /// Show a session's tasks live, until Ctrl-C
    #[command(after_help = WATCH_HELP)]
    Watch {
        #[command(flatten)]
        session: SessionArgument,
        /// Print each list as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// List a session's tasks and the unowned ones
    #[command(after_help = LIST_HELP)]
    List {
        #[command(flatten)]
        scope: ScopeArguments,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what a task put out since the last time, and how it stands
    ///
    /// There is one cursor for each task: what was printed once is not printed again, to nobody.
    #[command(after_help = OUTPUT_HELP)]
    Output {
        /// The task, such as bash-1
        task: TaskId,
        #[command(flatten)]
        scope: ScopeArguments,
        /// Wait up to this long for something new or the task's end: 500ms, 30s, 10m at most
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        wait: Option<Duration>,
        /// Print {"text":…,"task":…} as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a task: SIGTERM, and SIGKILL 3 s later to what is left
    #[command(after_help = KILL_HELP)]
    Kill {
        /// The task, such as bash-1
        task: TaskId,
        #[command(flatten)]
        scope: ScopeArguments,
        /// Why, for the gateway's log
        #[arg(long)]
        reason: Option<String>,
        /// Print the task as JSON
        #[arg(long)]
        json: bool,
    },
    /// End a session: kill what runs in it, and forget its tasks
    Dispose {
        #[command(flatten)]
        session: SessionArgument,
    },
}

const SERVE_HELP: &str = "\
Browsers can only look. The control API can run commands: its Unix socket has mode 0600, and over
TCP each request needs the token. TCP is plain text: off this machine, put TLS or a tunnel in front.
TASKLIGHT_LOG chooses what is logged (error, warn, info, debug) [default: info].
On SIGTERM and SIGINT children get SIGTERM, and SIGKILL after the grace; then streams end, and
serve exits with 0. A second signal exits at once.";

const START_HELP: &str = "\
One argument is a command line for the shell: tasklight start 'make && ./run'.
More are one command and its arguments, each kept as it is: tasklight start -- grep -r 'a b' src.";

const RUN_HELP: &str = "\
The command has this terminal, its keys, its size and its colours, and run exits with its code: 128
and the signal's number after a signal, 127 if there is no such command, 126 if it cannot be run.
Signals go to the command. A kill of the task ends the command's process group. A gateway that is
absent or restarts changes nothing for the command; a line on stderr says so, and the task is
registered again. The last 256 KiB of output show there.
Where stdin and stdout are terminals the command gets one of its own; else a stream that is no
terminal is a pipe, and stdin is the one that run has.";

const WATCH_HELP: &str = "\
On a terminal the list is drawn in place: running tasks first, then ended ones, the last first. Else
each change of a task is a line. It waits for a gateway that is absent, and says so on stderr.
NO_COLOR switches colours off.";

const LIST_HELP: &str = "\
One task a line: id, status, duration, label and, in brackets, a detail:
  bash-1  failed   3m 05s  make test  (exit code: 2)
Without any: no tasks in session demo. Control characters are shown as \\u{1b}, not obeyed.";

const OUTPUT_HELP: &str = "\
The output, and behind it a line in brackets that says how the task stands:
  [bash-1 running] or [bash-1 failed, exit code: 2]
Without anything new: [no new output] in front of that. What is missing is said where it is missing:
  [4096 bytes of older output are gone]
To a pipe or a file the output goes as it is; on a terminal nothing but its colours is obeyed.";

const KILL_HELP: &str = "\
Prints `bash-1 stopping` when it was asked to end, or, where nothing was left to do, how it ended:
  bash-1 already finished: killed, signal: SIGTERM";

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) session: SessionArgument,
    /// What people see [default: the command]
    #[arg(long, value_parser = Label::new)]
    pub(crate) label: Option<Label>,
    /// What sort of work it is: a lower-case letter, then letters, digits and '-'
    #[arg(long, default_value = "run")]
    pub(crate) kind: Kind,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Where browsers connect; port 0 takes a free one
    #[arg(long, env = "TASKLIGHT_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// A name by which the gateway may be called, beside loopback names and IP addresses; may be
    /// repeated
    #[arg(long = "host", env = "TASKLIGHT_HOST", value_name = "NAME", value_delimiter = ',')]
    pub(crate) hosts: Vec<HostName>,
    /// Let pages of this origin read lists and streams, or of all with '*'; may be repeated
    #[arg(long, env = "TASKLIGHT_ALLOW_ORIGIN", value_name = "SCHEME://HOST[:PORT]", value_delimiter = ',')]
    pub(crate) allow_origin: Vec<AllowedOrigin>,
    /// Running or stopping tasks that one session, or the unowned together, may have
    #[arg(long, env = "TASKLIGHT_MAX_LIVE_TASKS", value_name = "N", default_value_t = 10)]
    pub(crate) max_live_tasks: usize,
    /// Sessions that may be open at once
    #[arg(long, env = "TASKLIGHT_MAX_SESSIONS", value_name = "N", default_value_t = 10_000)]
    pub(crate) max_sessions: usize,
    /// Kinds of tasks that there may ever be
    #[arg(long, env = "TASKLIGHT_MAX_KINDS", value_name = "N", default_value_t = 256)]
    pub(crate) max_kinds: usize,
    /// Ended tasks kept for each session
    #[arg(long, env = "TASKLIGHT_MAX_SETTLED_TASKS", value_name = "N", default_value_t = 100)]
    pub(crate) max_settled_tasks: usize,
    /// Bytes of output kept for each task
    #[arg(long, env = "TASKLIGHT_OUTPUT_TAIL", value_name = "BYTES", default_value_t = 256 * 1024)]
    pub(crate) output_tail: usize,
    /// Keep whole outputs in files of mode 0600 below this folder, which is made with mode 0700:
    /// those that outgrow the tail, until their task is forgotten or serve ends [default: off]
    #[arg(long, env = "TASKLIGHT_SPILL_DIR", value_name = "FOLDER")]
    pub(crate) spill_dir: Option<PathBuf>,
    /// Bytes of output kept in such a file for each task
    #[arg(long, env = "TASKLIGHT_SPILL_LIMIT", value_name = "BYTES", default_value_t = 64 * 1024 * 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) spill_limit: u64,
    /// Terminals that one session may have open
    #[arg(long, env = "TASKLIGHT_MAX_TERMINALS", value_name = "N", default_value_t = 4)]
    pub(crate) max_terminals: usize,
    /// A silent stream sends a sign of life after this long
    #[arg(long, env = "TASKLIGHT_HEARTBEAT", value_name = "TIME", default_value = "15s", value_parser = positive)]
    pub(crate) heartbeat: Duration,
    /// How long a client may take to send a request
    #[arg(long, env = "TASKLIGHT_REQUEST_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = positive)]
    pub(crate) request_timeout: Duration,
    /// A stream's reader that takes nothing for this long is dropped
    #[arg(long, env = "TASKLIGHT_PEER_TIMEOUT", value_name = "TIME", default_value = "30s", value_parser = positive)]
    pub(crate) peer_timeout: Duration,
    /// Connections of browsers that may be open at once; the control API has a quarter as many of
    /// its own [default: five eighths of the limit of open files]
    #[arg(long, env = "TASKLIGHT_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// Streams that one session may have open [default: any number]
    #[arg(long, env = "TASKLIGHT_MAX_SESSION_STREAMS", value_name = "N")]
    pub(crate) max_session_streams: Option<NonZeroUsize>,
    /// Streams that one client address may have open [default: any number]
    #[arg(long, env = "TASKLIGHT_MAX_CLIENT_STREAMS", value_name = "N")]
    pub(crate) max_client_streams: Option<NonZeroUsize>,
    /// A proxy whose X-Forwarded-For tells the client's address; may be repeated
    #[arg(long, env = "TASKLIGHT_TRUSTED_PROXY", value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) trusted_proxy: Vec<IpAddr>,
    /// From SIGTERM to SIGKILL, for each process
    #[arg(long, env = "TASKLIGHT_GRACE", value_name = "TIME", default_value = "3s", value_parser = positive)]
    pub(crate) grace: Duration,
    /// How long a shutdown may take in all
    #[arg(long, env = "TASKLIGHT_DRAIN", value_name = "TIME", default_value = "10s", value_parser = positive)]
    pub(crate) drain: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    #[command(flatten)]
    pub(crate) scope: ScopeArguments,
    /// Which shell runs the command
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kind: ShellKind,
    /// What people see [default: the command]
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Where it runs [default: here]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable for it; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub(crate) env: Vec<(String, String)>,
    /// Print the task as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// The kinds of task that are a shell's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ShellKind {
    /// bash -c
    #[default]
    Bash,
    /// `PowerShell`: pwsh -Command; the gateway refuses it where pwsh is not installed
    Pwsh,
}

impl ShellKind {
    /// As the control API calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Pwsh => "pwsh",
        }
    }

    /// What the shell gets: one argument is a command line as it is; more are quoted, each to be
    /// itself.
    pub(crate) fn command_line(self, command: &[String]) -> String {
        match (self, command) {
            (_, [line]) => line.clone(),
            (Self::Bash, words) => quoted(words.iter().map(String::as_str)),
            // A quoted word is a text and no command, unless the call operator stands before it.
            (Self::Pwsh, words) => {
                let words: Vec<_> = words.iter().map(|word| powershell_word(word)).collect();
                format!("& {}", words.join(" "))
            }
        }
    }
}

/// A word that `PowerShell` takes as it is (`about_Quoting_Rules`): in single quotes nothing means
/// anything but a single quote, of which there are five, and which stands doubled.
fn powershell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
    // A dash makes a parameter, and a dot would end its name.
    let is_bare = !word.is_empty() && word.chars().all(is_plain) && !(word.starts_with('-') && word.contains('.'));
    if is_bare {
        return word.to_owned();
    }
    let doubled = |c: char| match c {
        '\'' | '\u{2018}'..='\u{201b}' => vec![c, c],
        c => vec![c],
    };
    format!("'{}'", word.chars().flat_map(doubled).collect::<String>())
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgument {
    /// The session [default: the name of the current folder]
    #[arg(long, env = "TASKLIGHT_SESSION")]
    session: Option<SessionId>,
}

impl SessionArgument {
    /// The session that was named, or the current folder's name.
    pub(crate) fn session(&self) -> Result<SessionId, CommandError> {
        let here = || {
            let folder = std::env::current_dir().ok()?;
            SessionId::new(&folder.file_name()?.to_string_lossy()).ok()
        };
        // The root folder has no name, and a folder's name may be longer than an id.
        self.session.clone().or_else(here).ok_or(CommandError::NoSession)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ScopeArguments {
    #[command(flatten)]
    session: SessionArgument,
    /// The tasks that belong to no session, and show in every one; --session does not matter then
    #[arg(long)]
    unowned: bool,
}

impl ScopeArguments {
    pub(crate) fn scope(&self) -> Result<Scope, CommandError> {
        if self.unowned { Ok(Scope::Unowned) } else { self.session.session().map(Scope::Session) }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ControlArguments {
    /// Where the control API is: unix:PATH, a path, or HOST:PORT. To serve at several places,
    /// repeat it; the other commands ask at the first [default: tasklight.sock in
    /// `$XDG_RUNTIME_DIR`, else tasklight-UID.sock in the temporary folder]
    #[arg(long = "control", global = true, env = "TASKLIGHT_CONTROL", value_name = "ADDRESS", value_delimiter = ',')]
    addresses: Vec<ControlAddress>,
    /// The file of the token that HOST:PORT needs; nobody else may read it [default: the token in
    /// `$TASKLIGHT_CONTROL_TOKEN`]
    #[arg(long, global = true, env = "TASKLIGHT_CONTROL_TOKEN_FILE", value_name = "FILE")]
    control_token_file: Option<PathBuf>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(transparent)]
    File(#[from] TokenFileError),
    #[error("{0} (in TASKLIGHT_CONTROL_TOKEN)")]
    Variable(#[from] InvalidToken),
}

impl ControlArguments {
    /// Everywhere that was named, or the one default.
    pub(crate) fn addresses(self) -> Vec<ControlAddress> {
        if self.addresses.is_empty() { vec![ControlAddress::default()] } else { self.addresses }
    }

    /// Where to ask: the first that was named, or the default.
    pub(crate) fn first(&self) -> ControlAddress {
        self.addresses.first().cloned().unwrap_or_default()
    }

    /// The token in the file that was named, else the one in the variable, if there is one. It is
    /// never an argument, since everybody on a machine can see those.
    pub(crate) fn token(&self) -> Result<Option<SecretToken>, TokenError> {
        if let Some(file) = &self.control_token_file {
            return Ok(Some(SecretToken::from_file(file)?));
        }
        match std::env::var_os(SecretToken::VARIABLE) {
            Some(token) if !token.is_empty() => {
                let token = token.to_str().ok_or(InvalidToken::Forbidden)?;
                Ok(Some(SecretToken::new(token)?))
            }
            _ => Ok(None),
        }
    }
}

/// Words as one would type them for a shell, each to be itself.
pub(crate) fn quoted<'a>(words: impl Iterator<Item = &'a str> + Clone) -> String {
    let quoter = shlex::Quoter::new().allow_nul(true);
    quoter.join(words.clone()).unwrap_or_else(|_| words.collect::<Vec<_>>().join(" "))
}

fn name_and_value(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn positive(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than nothing".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(format!("{error}; write 500ms or 15s")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn one_argument_is_a_command_line_and_more_are_words() {
        let words = |words: &[&str]| ShellKind::Bash.command_line(&owned(words));
        assert_eq!(words(&["make && ./run"]), "make && ./run");
        assert_eq!(words(&["grep", "-r", "a b", "src"]), "grep -r 'a b' src");
        assert_eq!(words(&["echo", "$HOME", "it's"]), "echo '$HOME' \"it's\"");
    }

    #[test]
    fn words_for_powershell_are_quoted_by_its_own_rules() {
        let words = |words: &[&str]| ShellKind::Pwsh.command_line(&owned(words));
        assert_eq!(words(&["Get-Date; exit 3"]), "Get-Date; exit 3");
        assert_eq!(words(&["Get-Item", "-Path", "a b"]), "& Get-Item -Path 'a b'");
        assert_eq!(
            words(&["echo", "$HOME", "it's", "it\u{2019}s", "-a.b", ""]),
            "& echo '$HOME' 'it''s' 'it\u{2019}\u{2019}s' '-a.b' ''"
        );
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }
}
