//! The servers under test: how each is started, and how each takes a change.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, kill};

use crate::{
    http::{Connection, Endpoint, request},
    list::{self, Numbered},
    problem::{Problem, Result},
    process::Processes,
};

/// How long a server may take to come up.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// epoll and one `send` of prebuilt bytes for each reader: what the kernel costs.
    Floor,
    Tasklight,
    /// axum's `Sse` over tokio's `watch`.
    Axum,
    /// Node with better-sse.
    BetterSse,
    /// nginx with nchan, one worker.
    Nchan,
    Pushpin,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Floor, Self::Tasklight, Self::Nchan, Self::Axum, Self::BetterSse, Self::Pushpin];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Tasklight => "tasklight",
            Self::Axum => "axum",
            Self::BetterSse => "better-sse",
            Self::Nchan => "nchan",
            Self::Pushpin => "pushpin",
        }
    }

    /// Whether it is measured as often as it takes for a median, in every work.
    pub(crate) fn is_peer(self) -> bool {
        !matches!(self, Self::Floor | Self::Tasklight)
    }
}

/// Where programs are.
#[derive(Clone)]
pub(crate) struct Places {
    /// The folder of this program, with `floor` and `axum-watch`.
    pub(crate) programs: PathBuf,
    /// The `tasklight` program.
    pub(crate) tasklight: PathBuf,
    /// `tests/load/peers`.
    pub(crate) peers: PathBuf,
    /// Where figures are kept.
    pub(crate) results: PathBuf,
    /// What runs `tasklight`, before its path: nothing, or a program that counts what it does.
    pub(crate) wrapper: Vec<String>,
    /// For sockets, logs and configuration of one run.
    pub(crate) scratch: PathBuf,
}

/// A running server. Dropping it kills it and all that it started.
pub(crate) struct Server {
    kind: Kind,
    child: Child,
    address: SocketAddr,
    endpoint: Endpoint,
    /// The application behind pushpin, which is no part of it.
    origin: Option<Child>,
}

impl Server {
    /// Starts a server, and returns when it takes connections.
    pub(crate) fn start(kind: Kind, places: &Places) -> Result<Self> {
        let folder = places.scratch.join(kind.name());
        // What an earlier run left there.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let address = free_address()?;
        let socket = folder.join("control.sock");
        let mut endpoint = Endpoint::Unix(socket.clone());
        let mut origin = None;
        let mut command = match kind {
            Kind::Tasklight => {
                let tasklight = places.tasklight.display().to_string();
                let mut words = places.wrapper.iter().chain([&tasklight]);
                let mut command = Command::new(words.next().unwrap_or(&tasklight));
                command.args(words);
                let control = format!("unix:{}", socket.display());
                command.args(["serve", "--listen", &address.to_string(), "--control", &control]);
                // The curve goes up to 10,000 and one.
                command.args(["--max-sessions", "20000"]);
                command.env("TASKLIGHT_LOG", "warn");
                command
            }
            Kind::Floor => floor(places, address, &socket, "stream"),
            Kind::Axum => {
                let mut command = Command::new(places.programs.join("axum-watch"));
                command.arg(address.to_string()).arg(&socket);
                command
            }
            Kind::BetterSse => {
                let mut command = Command::new("node");
                command.arg(places.peers.join("better-sse/server.mjs")).arg(address.port().to_string()).arg(&socket);
                command
            }
            Kind::Nchan => {
                let configuration = folder.join("nginx.conf");
                let text = fs::read_to_string(places.peers.join("nchan/nginx.conf"))?
                    .replace("@FOLDER@", &folder.display().to_string())
                    .replace("@ADDRESS@", &address.to_string());
                fs::write(&configuration, text)?;
                let mut command = Command::new("nginx");
                command.arg("-p").arg(&folder).arg("-c").arg(&configuration);
                command
            }
            Kind::Pushpin => {
                let (behind, publish) = (free_address()?, free_address()?);
                endpoint = Endpoint::Tcp(publish);
                origin = Some(spawn(floor(places, behind, &folder.join("origin.sock"), "grip"), &folder, "origin")?);
                fs::write(folder.join("routes"), format!("* {behind}\n"))?;
                let configuration = folder.join("pushpin.conf");
                let text = fs::read_to_string(places.peers.join("pushpin/pushpin.conf"))?
                    .replace("@FOLDER@", &folder.display().to_string())
                    .replace("@PORT@", &address.port().to_string())
                    .replace("@PUBLISH@", &publish.port().to_string());
                fs::write(&configuration, text)?;
                let mut command = Command::new("pushpin");
                command.arg(format!("--config={}", configuration.display()));
                command
            }
        };
        command.current_dir(&folder);
        let child = spawn(command, &folder, "server")?;
        let mut server = Self { kind, child, address, endpoint, origin };
        server.wait_until_up(&folder)?;
        Ok(server)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn processes(&self) -> Result<Processes> {
        Ok(Processes::of(self.child.id())?)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ended by itself.
    pub(crate) fn wait(mut self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err(Problem::NotUp("does not end either".to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Makes that many sessions, and returns the requests that publish a list in each.
    pub(crate) fn sessions(&self, count: usize) -> Result<Vec<Numbered>> {
        let list = list::json();
        let mut control = Connection::open(&self.endpoint)?;
        let mut requests = Vec::with_capacity(count);
        for session in 0..count {
            requests.push(Numbered::new(match self.kind {
                Kind::Tasklight => start_tasks(&mut control, session)?,
                Kind::Floor | Kind::Axum | Kind::BetterSse | Kind::Nchan => {
                    request("POST", &format!("/sessions/s{session}"), "text/plain", &list)
                }
                Kind::Pushpin => {
                    let event = format!("data: {list}\n\n");
                    let item = serde_json::json!({
                        "items": [{ "channel": format!("s{session}"), "formats": { "http-stream": { "content": event } } }]
                    });
                    request("POST", "/publish/", "application/json", &item.to_string())
                }
            }));
        }
        Ok(requests)
    }

    fn wait_until_up(&mut self, folder: &Path) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() || Connection::open(&self.endpoint).is_err() {
            let gone = self.child.try_wait()?.is_some();
            if gone || Instant::now() > end {
                let log = fs::read_to_string(folder.join("server.log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("and says nothing").to_owned();
                return Err(Problem::NotUp(last));
            }
            thread::sleep(Duration::from_millis(20));
        }
        // Pushpin's parts find each other after its ports are open.
        while self.kind == Kind::Pushpin && !self.streams()? {
            if Instant::now() > end {
                return Err(Problem::NotUp("no stream is answered".to_owned()));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether a stream is answered well.
    fn streams(&self) -> Result<bool> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        socket.write_all(b"GET /sessions/up/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        let mut status = [0; 12];
        Ok(socket.read_exact(&mut status).is_ok() && status == *b"HTTP/1.1 200")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in std::iter::once(&mut self.child).chain(&mut self.origin) {
            // Some put their children into process groups of their own. That one ended before is no error.
            let processes = Processes::of(child.id());
            for pid in processes.iter().flat_map(Processes::ids) {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            let _ = child.wait();
        }
    }
}

/// Starts a session's tasks, and returns the request that changes the last of them.
fn start_tasks(control: &mut Connection, session: usize) -> Result<Vec<u8>> {
    let path = format!("/sessions/s{session}/tasks");
    let mut id = String::new();
    for task in 0..list::TASKS {
        id = start_task(control, &path, &list::label(task))?;
    }
    let detail = format!(r#"{{"detail":"step {:0digits$}"}}"#, 0, digits = list::DIGITS);
    Ok(request("PATCH", &format!("{path}/{id}"), "application/json", &detail))
}

/// Starts one task that its producer works on, and returns its id.
pub(crate) fn start_task(control: &mut Connection, path: &str, label: &str) -> Result<String> {
    let body = serde_json::json!({ "kind": list::KIND, "label": label }).to_string();
    let answer = control.ask(&request("POST", path, "application/json", &body))?;
    let task: serde_json::Value =
        serde_json::from_slice(answer).map_err(|error| Problem::Refused(error.to_string()))?;
    Ok(task["id"].as_str().unwrap_or_default().to_owned())
}

/// Starts a task and ends it.
pub(crate) fn live_and_die(control: &mut Connection, path: &str, label: &str) -> Result<()> {
    let task = start_task(control, path, label)?;
    control.ask(&request("PATCH", &format!("{path}/{task}"), "application/json", r#"{"status":"completed"}"#))?;
    Ok(())
}

fn floor(places: &Places, address: SocketAddr, socket: &Path, mode: &str) -> Command {
    let mut command = Command::new(places.programs.join("floor"));
    command.arg(address.to_string()).arg(socket).arg(mode);
    command
}

fn spawn(mut command: Command, folder: &Path, log: &str) -> Result<Child> {
    let log = fs::File::create(folder.join(format!("{log}.log")))?;
    let program = command.get_program().display().to_string();
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    command.spawn().map_err(|error| Problem::NotUp(format!("{program}: {error}")))
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
