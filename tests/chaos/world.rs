//! What stands around the readers: the gateway in its lives, a proxy before it, a clock that jumps.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use tempfile::TempDir;

use crate::support::{Gateway, wait};

/// How long a process has between SIGTERM and SIGKILL here.
const FLAGS: [&str; 8] = ["--grace", "500ms", "--drain", "5s", "--peer-timeout", "5s", "--heartbeat", "1s"];

/// A gateway that ends and starts again at the same place.
pub(crate) struct Lives {
    gateway: Option<Gateway>,
    folder: Arc<TempDir>,
    address: SocketAddr,
    clock: Option<WallClock>,
    pub(crate) count: u32,
}

impl Lives {
    pub(crate) fn begin(address: SocketAddr) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = WallClock::find(folder.path());
        let mut lives = Self { gateway: None, folder, address, clock, count: 0 };
        lives.start();
        lives
    }

    fn start(&mut self) {
        let variables = self.clock.as_ref().map(WallClock::variables).unwrap_or_default();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.gateway = Some(Gateway::at(self.address, &self.folder, &FLAGS, &variables));
        self.count += 1;
    }

    pub(crate) fn now(&self) -> &Gateway {
        self.gateway.as_ref().unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.now().socket()
    }

    /// Ends the gateway by that signal, and starts another in its place.
    pub(crate) fn again(&mut self, signal: &str) {
        let mut gateway = self.gateway.take().unwrap();
        gateway.signal(signal);
        let ended = gateway.wait();
        assert!(signal == "KILL" || ended.success(), "SIGTERM: {ended}\n{}", gateway.log());
        drop(gateway);
        self.start();
    }

    /// Sets the gateway's wall clock so far from the machine's. Says whether it could.
    pub(crate) fn step_clock(&self, seconds: i64) -> bool {
        self.clock.as_ref().is_some_and(|clock| {
            clock.set(seconds);
            true
        })
    }
}

/// A wall clock of the gateway's own, by libfaketime; the monotonic clock stays the machine's.
struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    fn find(folder: &Path) -> Option<Self> {
        let places = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
        let library = places.map(|place| place.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
        let clock = Self { library: library?, file: folder.join("clock") };
        clock.set(0);
        Some(clock)
    }

    /// The file is replaced whole: half of a time is another time.
    fn set(&self, seconds: i64) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_CACHE_DURATION", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DISABLE_SHM", "1".into()),
        ]
    }
}

/// nginx before the gateway, if there is one on this machine.
pub(crate) struct Proxy {
    child: Child,
    folder: TempDir,
}

impl Proxy {
    pub(crate) fn begin(address: SocketAddr, gateway: SocketAddr) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display();
        let temporary: Vec<_> = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {place}/{kind};"))
            .into();
        let configuration = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;
             events {{ worker_connections 1024; }}
             http {{
                 access_log off; {temporary}
                 server {{
                     listen {address};
                     location / {{ proxy_pass http://{gateway}; proxy_http_version 1.1; proxy_set_header Connection ''; }}
                 }}
             }}",
            temporary = temporary.join(" "),
        );
        std::fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
        let child = Self::spawn(folder.path())?;
        Some(Self { child, folder })
    }

    fn spawn(folder: &Path) -> Option<Child> {
        let error_log = folder.join("error.log");
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).arg("-e").arg(error_log);
        nginx.stdin(Stdio::null()).spawn().ok()
    }

    pub(crate) fn again(&mut self) {
        let _ = self.child.kill();
        wait(&mut self.child);
        self.child = Self::spawn(self.folder.path()).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address for somebody who comes and goes. Not one of those that the system gives to connecting
/// sockets: with nobody listening there, a connecting one may be given it, and meets itself.
pub(crate) fn address() -> SocketAddr {
    let free = (0..1_000).map(|_| SocketAddr::from(([127, 0, 0, 1], fastrand::u16(10_000..30_000))));
    free.into_iter().find(|address| TcpListener::bind(address).is_ok()).unwrap()
}
