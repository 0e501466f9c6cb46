//! A gateway of one's own for each test, and ways to talk to it.

pub(crate) mod counter;
pub(crate) mod http;
pub(crate) mod openapi;
pub(crate) mod raw;
pub(crate) mod sse;
pub(crate) mod terminal;
pub(crate) mod tty;

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

/// A variable that a gateway's children inherit.
const MARK: &str = "GATEWAY_UNDER_TEST";

/// The program under test.
pub(crate) fn tasklight() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tasklight"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TASKLIGHT_")) {
        command.env_remove(name);
    }
    command
}

/// The program as a shell starts it in the foreground: with no signal ignored, whichever are where these tests run.
pub(crate) fn in_foreground() -> Command {
    let plain = tasklight();
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(plain.get_program());
    for (name, _) in plain.get_envs() {
        command.env_remove(name);
    }
    command
}

/// A running gateway; killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where its control API is, with real ports, in the order in which it was asked for.
    pub(crate) control: Vec<String>,
    pub(crate) folder: Arc<TempDir>,
    log: Arc<Mutex<String>>,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A gateway with more flags to `serve`.
    pub(crate) fn with(flags: &[&str]) -> Self {
        Self::with_variables(flags, &[])
    }

    /// A gateway with more flags to `serve`, and variables.
    pub(crate) fn with_variables(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::at(([127, 0, 0, 1], 0).into(), &folder, flags, variables)
    }

    /// A gateway that browsers reach there.
    pub(crate) fn listening(listen: SocketAddr, flags: &[&str]) -> Self {
        Self::at(listen, &Arc::new(tempfile::tempdir().unwrap()), flags, &[])
    }

    /// A gateway in its place: for one that is to be started there again.
    pub(crate) fn at(listen: SocketAddr, folder: &Arc<TempDir>, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = tasklight();
        command.args(["serve", "--listen", &listen.to_string(), "--control"]).arg(socket_of(folder.path())).args(flags);
        command.envs(variables.iter().copied());
        Self::spawn(command, Arc::clone(folder))
    }

    /// A gateway that is started with so many descriptors, and may have so many.
    pub(crate) fn with_descriptors(soft: u32, hard: u32, flags: &[&str]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec \"$0\" \"$@\"")]);
        command.arg(tasklight().get_program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(socket_of(folder.path())).args(flags);
        Self::spawn(command, folder)
    }

    /// A gateway that another program starts: `wrapper`, its flags, and then the gateway's own.
    pub(crate) fn below(wrapper: &[&str]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let inner = tasklight();
        let mut command = Command::new(wrapper[0]);
        for (name, _) in inner.get_envs() {
            command.env_remove(name);
        }
        command.args(&wrapper[1..]).arg(inner.get_program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(socket_of(folder.path()));
        Self::spawn(command, folder)
    }

    /// Another gateway at the same control address, behind one that has ended.
    pub(crate) fn again(&mut self) -> Self {
        let folder = std::mem::replace(&mut self.folder, Arc::new(tempfile::tempdir().unwrap()));
        let mut command = tasklight();
        command.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(socket_of(folder.path()));
        Self::spawn(command, folder)
    }

    /// A gateway with a variable set.
    pub(crate) fn with_variable(name: &str, value: &str) -> Self {
        Self::with_variables(&[], &[(name, value)])
    }

    fn spawn(mut command: Command, folder: Arc<TempDir>) -> Self {
        // By this its children are told from those of any other gateway.
        command.env(MARK, folder.path());
        let mut child = command.env("NO_COLOR", "1").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let (address, control) = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the gateway did not start: {}", log.lock().unwrap());
            };
            log.lock().unwrap().push_str(&format!("{line}\n"));
            let field = |name: &str| line.split(name).nth(1).and_then(|rest| rest.split(' ').next());
            if let (Some(address), Some(control)) = (field(" listen="), field(" control=")) {
                break (address.parse().unwrap(), control.split(',').map(str::to_owned).collect());
            }
        };
        let rest = Arc::clone(&log);
        // Ends with the gateway, whose end closes the pipe.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                rest.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Self { child, address, control, folder, log }
    }

    /// The command lines of the processes that it started and that have this text in them; of all
    /// that ever were its own, also when it has ended.
    pub(crate) fn children(&self, text: &str) -> Vec<String> {
        let mark = format!("{MARK}={}", self.folder.path().display());
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
        let own = all.filter(|process| {
            let variables = std::fs::read(process.join("environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        });
        let lines = own.filter_map(|process| std::fs::read(process.join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(text)).collect()
    }

    /// Waits until none of its children has this text in its command line.
    pub(crate) fn has_none_left(&self, text: &str) {
        eventually(&format!("nothing is left of {text}"), || self.children(text).is_empty().then_some(()));
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

    /// The first TCP address of its control API.
    pub(crate) fn control_address(&self) -> SocketAddr {
        self.control.iter().find_map(|address| address.parse().ok()).expect("it has one over TCP")
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

    /// Adds text to an external task's output.
    pub(crate) fn append(&self, path: &str, text: &str) -> Answer {
        let headers = [("content-type", "text/plain; charset=utf-8")];
        http::over_unix(&self.socket(), &http::request("POST", &format!("{path}/output"), &headers, text))
    }

    /// Starts a command in a session and returns its task.
    pub(crate) fn run(&self, session: &str, command: &str) -> Value {
        let answer = self.control("POST", &format!("/sessions/{session}/tasks"), Some(json!({ "command": command })));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    /// A stream of the control listener.
    pub(crate) fn stream(&self, path: &str, headers: &[(&str, &str)]) -> sse::Stream {
        sse::Stream::control(&self.socket(), path, headers)
    }

    /// A number that the gateway tells: `name`, or `name{label="value"}`.
    pub(crate) fn metric(&self, sample: &str) -> u64 {
        let page = self.control("GET", "/metrics", None).body;
        let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().unwrap()
    }

    /// Waits until a number is what it should be.
    pub(crate) fn metric_becomes(&self, sample: &str, value: u64) {
        eventually(&format!("{sample} is {value}"), || (self.metric(sample) == value).then_some(()));
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

/// Lets this process have as many descriptors as it may: for tests that hold many clients' ends.
pub(crate) fn more_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
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
