//! Proxies in front of a gateway: their configurations, and their lives as children of a test.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use crate::support::{eventually, wait};

/// The configuration that is shipped. Tests put their own ports and files in; nothing else.
const SHIPPED: &str = include_str!("../../scripts/nginx.conf");

/// Each way in which a proxy is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// nginx with the shipped configuration.
    Shipped,
    /// The same with its TLS lines in: HTTP/2 to the client.
    ShippedHttp2,
    /// nginx with a bare `proxy_pass`: HTTP/1.0 to the gateway, buffering on.
    Bare,
    /// The same with `gzip on` for event streams.
    Gzip,
    /// HAProxy with the defaults of its Debian package.
    HaProxy,
    /// Caddy with a bare `reverse_proxy`.
    Caddy,
}

impl Way {
    pub(crate) const ALL: [Self; 6] =
        [Self::Shipped, Self::ShippedHttp2, Self::Bare, Self::Gzip, Self::HaProxy, Self::Caddy];

    fn scheme(self) -> &'static str {
        match self {
            Self::ShippedHttp2 => "https",
            Self::Shipped | Self::Bare | Self::Gzip | Self::HaProxy | Self::Caddy => "http",
        }
    }

    /// What `curl` is told to ask for besides the URL.
    pub(crate) fn curl_flags(self) -> &'static [&'static str] {
        match self {
            // Whoever accepts gzip gets it wherever the proxy compresses.
            Self::Shipped | Self::Gzip => &["--compressed"],
            Self::ShippedHttp2 => &["--http2", "--insecure", "--compressed"],
            Self::Bare | Self::HaProxy | Self::Caddy => &[],
        }
    }

    fn configuration(self, folder: &Path, address: SocketAddr, gateway: SocketAddr) -> String {
        let path = folder.display();
        match self {
            Self::Shipped | Self::ShippedHttp2 => {
                let mut text = SHIPPED.to_owned();
                let mut put = |old: &str, new: String| {
                    assert_eq!(text.matches(old).count(), 1, "{old:?} stands once in scripts/nginx.conf");
                    text = text.replace(old, &new);
                };
                put("pid /run/nginx.pid;", format!("pid {path}/nginx.pid;"));
                put("error_log /var/log/nginx/error.log", format!("error_log {path}/error.log"));
                put("access_log /var/log/nginx/access.log;", access_log(folder));
                put("server 127.0.0.1:8080;", format!("server {gateway};"));
                if self == Self::Shipped {
                    put("listen 80;", format!("listen {address};"));
                } else {
                    put("        listen 80;\n", String::new());
                    put("#listen 443 ssl http2;", format!("listen {address} ssl http2;"));
                    put("#ssl_certificate /etc/ssl/tasklight/", format!("ssl_certificate {path}/"));
                    put("#ssl_certificate_key /etc/ssl/tasklight/", format!("ssl_certificate_key {path}/"));
                    put("#ssl_protocols", "ssl_protocols".to_owned());
                    put("#ssl_session_cache", "ssl_session_cache".to_owned());
                }
                text
            }
            Self::Bare | Self::Gzip => {
                let gzip = if self == Self::Gzip { "gzip on; gzip_types text/event-stream;" } else { "" };
                let access_log = access_log(folder);
                format!(
                    "pid {path}/nginx.pid; error_log {path}/error.log; events {{}}
                     http {{ {access_log} {gzip}
                         server {{ listen {address}; location / {{ proxy_pass http://{gateway}; }} }} }}"
                )
            }
            Self::HaProxy => format!(
                "defaults
                     mode http
                     timeout connect 5000
                     timeout client 50000
                     timeout server 50000
                 frontend browsers
                     bind {address}
                     default_backend gateway
                 backend gateway
                     server gateway {gateway}\n"
            ),
            Self::Caddy => format!("{{\n admin off\n}}\nhttp://{address} {{\n reverse_proxy {gateway}\n}}\n"),
        }
    }

    fn command(self, folder: &Path) -> Command {
        let configuration = folder.join("configuration");
        match self {
            Self::Shipped | Self::ShippedHttp2 | Self::Bare | Self::Gzip => {
                let mut command = Command::new("nginx");
                command.arg("-c").arg(configuration).args(["-e", "stderr", "-g", "daemon off;"]);
                command
            }
            Self::HaProxy => {
                let mut command = Command::new("haproxy");
                command.arg("-db").arg("-f").arg(configuration);
                command
            }
            Self::Caddy => {
                let mut command = Command::new("caddy");
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(configuration);
                command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
                command
            }
        }
    }
}

/// A log that tells of each request whether it was forwarded: `-` when it was not.
fn access_log(folder: &Path) -> String {
    let path = folder.display();
    format!("log_format forwarded '$upstream_addr $request'; access_log {path}/access.log forwarded;")
}

/// A running proxy; killed, workers and all, when dropped.
pub(crate) struct Proxy {
    child: Child,
    way: Way,
    folder: TempDir,
    pub(crate) address: SocketAddr,
}

impl Proxy {
    pub(crate) fn start(way: Way, gateway: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = free_address();
        if way == Way::ShippedHttp2 {
            certify(folder.path());
        }
        std::fs::write(folder.path().join("configuration"), way.configuration(folder.path(), address, gateway))
            .unwrap();
        let log = std::fs::File::create(folder.path().join("stderr")).unwrap();
        // A group of its own, so that workers can be killed with their master.
        let mut command = way.command(folder.path());
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{way:?}: {error}"));
        let mut proxy = Self { child, way, folder, address };
        eventually(&format!("{way:?} listens"), || {
            assert!(proxy.child.try_wait().unwrap().is_none(), "{way:?} ended");
            TcpStream::connect(address).ok()
        });
        proxy
    }

    /// Points it to another gateway, as an operator does: the file, then a reload.
    pub(crate) fn point_to(&self, gateway: SocketAddr) {
        let text = self.way.configuration(self.folder.path(), self.address, gateway);
        std::fs::write(self.folder.path().join("configuration"), text).unwrap();
        self.signal("HUP", &self.child.id().to_string());
    }

    pub(crate) fn url(&self, session: &str) -> String {
        format!("{}://{}/sessions/{session}/tasks", self.way.scheme(), self.address)
    }

    /// SIGKILL to the master and the workers alike.
    pub(crate) fn kill(&mut self) {
        self.signal("KILL", &format!("-{}", self.child.id()));
        wait(&mut self.child);
    }

    /// Lets nginx end all requests, and returns how many it forwarded in its life.
    pub(crate) fn quit(mut self) -> usize {
        self.signal("QUIT", &self.child.id().to_string());
        wait(&mut self.child);
        let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap();
        log.lines().filter(|line| !line.starts_with("- ")).count()
    }

    fn signal(&self, signal: &str, whom: &str) {
        let done = Command::new("kill").args([&format!("-{signal}"), "--", whom]).status().unwrap();
        assert!(done.success(), "{:?} is there to be signalled", self.way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.kill();
        }
        if std::thread::panicking() {
            for name in ["stderr", "error.log", "access.log"] {
                let log = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
                eprintln!("--- {:?}'s {name}\n{log}", self.way);
            }
        }
    }
}

/// An address that nobody listens on, and that no other test of this run is given.
fn free_address() -> SocketAddr {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        // Not 127.0.0.1: the source ports of a test's own connections are there.
        let address = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap().local_addr().unwrap();
        if given.get_or_insert_default().insert(address.port()) {
            return address;
        }
    }
}

/// A certificate for a day, signed by itself.
fn certify(folder: &Path) {
    let done = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"])
        .args(["-subj", "/CN=localhost", "-keyout", "privkey.pem", "-out", "fullchain.pem"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}
