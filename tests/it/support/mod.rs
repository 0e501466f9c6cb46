//! A gateway of one's own for each test, and ways to talk to it.

pub(crate) mod http;
pub(crate) mod raw;
pub(crate) mod sse;

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use self::http::Answer;

/// The longest that any one thing in a test may take: far more than it needs, and an end to a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub(crate) fn tasklight() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tasklight"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TASKLIGHT_")) {
        command.env_remove(name);
    }
    command
}

/// A running gateway; killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) folder: TempDir,
    log: Arc<Mutex<String>>,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A gateway with more flags to `serve`.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tasklight();
        command.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(socket_of(folder.path())).args(flags);
        Self::spawn(command, folder)
    }

    fn spawn(mut command: Command, folder: TempDir) -> Self {
        let mut child = command.env("NO_COLOR", "1").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the gateway did not start: {}", log.lock().unwrap());
            };
            log.lock().unwrap().push_str(&format!("{line}\n"));
            if let Some(address) = line.split(" listen=").nth(1).and_then(|rest| rest.split(' ').next()) {
                break address.parse().unwrap();
            }
        };
        let rest = Arc::clone(&log);
        // Ends with the gateway, whose end closes the pipe.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                rest.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Self { child, address, folder, log }
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    pub(crate) fn url(&self, session: &str) -> String {
        format!("http://{}/sessions/{session}/tasks", self.address)
    }

    /// One request to the control API; a body is sent as JSON.
    pub(crate) fn control(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string());
        let headers: &[(&str, &str)] = if body.is_some() { &[("content-type", "application/json")] } else { &[] };
        http::over_unix(&self.socket(), &http::request(method, path, headers, body.as_deref().unwrap_or_default()))
    }

    /// Starts a command in a session and returns its task.
    pub(crate) fn run(&self, session: &str, command: &str) -> Value {
        let answer = self.control("POST", &format!("/sessions/{session}/tasks"), Some(json!({ "command": command })));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    /// The registry's list of a session.
    pub(crate) fn list(&self, session: &str) -> Value {
        self.control("GET", &format!("/sessions/{session}/tasks"), None).json()
    }

    /// Waits until a task has ended, and returns it.
    pub(crate) fn ended(&self, session: &str, id: &str) -> Value {
        let path = format!("/sessions/{session}/tasks/{id}");
        eventually(&format!("{id} ends"), || {
            let task = self.control("GET", &path, None).json();
            task["finishedAt"].is_u64().then_some(task)
        })
    }

    /// The program, told where this gateway is.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        tasklight().arg("--control").arg(self.socket()).args(arguments).output().unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([&format!("-{signal}"), &self.pid().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Waits for the gateway's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Its resident memory that no file backs, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Asked first, so that it ends its children; killed if it does not.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal("TERM");
            let deadline = Instant::now() + Duration::from_secs(15);
            while Instant::now() < deadline && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
                thread::sleep(Duration::from_millis(10));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if thread::panicking() {
            eprintln!("--- the gateway's log\n{}", self.log());
        }
    }
}

fn socket_of(folder: &Path) -> String {
    format!("unix:{}/control.sock", folder.display())
}

/// Waits for a process, not for ever.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    eventually("a process ends", || child.try_wait().unwrap())
}

/// Asks again and again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it never came that {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The processes whose command line has this text in it. Put a mark of your own into a command to
/// find what it left.
pub(crate) fn processes_with(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(mark)).collect()
}
