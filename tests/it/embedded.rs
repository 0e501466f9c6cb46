//! The library inside another program: over real sockets, with nothing of the binary.

use std::{net::SocketAddr, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tasklight::{
    ControlAddress, Kind, Label, NewTask, Registry, Scope, SecretToken, SessionId, Tasklight,
    config::Settings,
    producer::in_process,
    server::BindError,
    service::{ControlService, ObserveService},
};
use tokio::runtime::Runtime;

use crate::support::{PATIENCE, eventually, http, sse::Stream};

const TOKEN: &str = "a-token-of-a-test-0123456789";

fn demo() -> Scope {
    Scope::Session(SessionId::new("demo").unwrap())
}

fn new_task(label: &str) -> NewTask {
    NewTask { kind: Kind::new("subagent").unwrap(), label: Label::new(label).unwrap() }
}

fn free() -> Settings {
    Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() }
}

/// Somebody's own server, with both services in it: the control API is below `/api`.
async fn server(observe: ObserveService, control: Option<ControlService>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = move |mut request: hyper::Request<hyper::body::Incoming>| {
        let (observe, control) = (observe.clone(), control.clone());
        async move {
            let below_api = request.uri().path().strip_prefix("/api").map(str::to_owned);
            Ok::<_, std::convert::Infallible>(match (below_api, control) {
                (Some(path), Some(control)) => {
                    *request.uri_mut() = path.parse().unwrap();
                    control.answer(request).await
                }
                _ => observe.answer(&request),
            })
        }
    };
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new());
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service_fn(service.clone())));
        }
    });
    address
}

#[test]
fn an_in_process_task_is_seen_live_and_a_kill_reaches_it() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let registry = Registry::default();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let settings = Settings { control: vec![socket.clone().into()], ..free() };
    let gateway = Tasklight::builder().settings(settings).registry(registry.clone()).serve().unwrap();
    assert_eq!(gateway.control(), [ControlAddress::Unix(socket.clone())]);

    let mut stream = Stream::open(gateway.address(), "demo");
    let work = in_process::future(async |work| {
        work.stopping().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        Err("stopped half way")
    });
    registry.start(&demo(), new_task("plan"), work).unwrap();
    let status = |status: &str| vec![("subagent-1".to_owned(), status.to_owned())];
    assert_eq!(stream.list().statuses(), status("running"));
    let kill = http::request("POST", "/sessions/demo/tasks/subagent-1/kill", &[], "");
    assert_eq!(http::over_unix(&socket, &kill).status, 202);
    assert_eq!(stream.list().statuses(), status("stopping"));
    let ended = stream.list();
    assert_eq!(ended.statuses(), status("killed"));
    assert_eq!(ended.list()[0]["detail"], "stopped half way");

    let live = in_process::future(async |work| drop(work.stopping().await));
    registry.start(&demo(), new_task("on and on"), live).unwrap();
    runtime.block_on(gateway.shutdown());
    let last = stream.until(|event| event.statuses().last().unwrap().1 == "killed");
    assert_eq!(last.list()[1]["detail"], "gateway shut down");
    assert_eq!(stream.next(), None, "a clean end");
    assert!(!socket.exists());
}

#[test]
fn a_gateway_that_is_dropped_ends() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let gateway = Tasklight::builder().settings(free()).serve().unwrap();
    let address = gateway.address();
    let mut stream = Stream::open(address, "demo");
    drop(gateway);
    assert_eq!(stream.next(), None);
    eventually("nobody listens any more", || std::net::TcpStream::connect(address).err());
}

#[test]
fn both_services_work_inside_another_server() {
    let runtime = Runtime::new().unwrap();
    let registry = Registry::default();
    let settings = Settings { token: Some(SecretToken::new(TOKEN).unwrap()), ..Settings::default() };
    let builder = Tasklight::builder().settings(settings).registry(registry.clone());
    let gateway = runtime.block_on(async { builder.mount() }).unwrap();
    let address = runtime.block_on(server(gateway.observe(), gateway.control()));

    let mut stream = Stream::open(address, "demo");
    assert!(stream.head.contains("content-type: text/event-stream\r\n"), "{}", stream.head);
    assert!(stream.head.contains("x-accel-buffering: no\r\n"), "{}", stream.head);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = json!({ "command": "exit 3" }).to_string();
    let start = http::request("POST", "/api/sessions/demo/tasks", &headers, &body);
    assert_eq!(http::over_tcp(address, &start).status, 201);
    let ended = stream.until(|event| event.statuses()[0].1 == "failed");
    assert_eq!(ended.list()[0]["detail"], "exit code: 3");
    http::over_tcp(address, &http::request("GET", "/api/healthz", &[], "")).problem(401);
    let page = [("origin", "http://localhost"), headers[0]];
    http::over_tcp(address, &http::request("GET", "/api/healthz", &page, "")).problem(403);
    let list = http::request("GET", "/sessions/demo/tasks", &[("accept", "application/json")], "");
    assert_eq!(http::over_tcp(address, &list).json()[0]["id"], "bash-1");

    let dispose = http::request("DELETE", "/api/sessions/demo", &headers[..1], "");
    assert_eq!(http::over_tcp(address, &dispose).status, 204);
    let empty = stream.list();
    assert_eq!((empty.data.as_str(), empty.id.as_str()), ("[]", ""));
    runtime.block_on(gateway.shutdown());
    assert_eq!(stream.next(), None, "a clean end");
}

#[test]
fn a_mounted_stream_of_each_kind_shows_how_a_task_ended_before_it_ends() {
    let runtime = Runtime::new().unwrap();
    let registry = Registry::default();
    let builder = Tasklight::builder().registry(registry.clone());
    let gateway = runtime.block_on(async { builder.mount() }).unwrap();
    let address = runtime.block_on(server(gateway.observe(), gateway.control()));
    let live = in_process::future(async |work| drop(work.stopping().await));
    let _inside = runtime.enter();
    registry.start(&demo(), new_task("on and on"), live).unwrap();
    let sources = [
        ("/sessions/demo/tasks", "tasks"),
        ("/mux?session=demo", "mux"),
        ("/api/sessions/demo/tasks", "tasks"),
        ("/api/mux", "overview"),
        ("/api/sessions/demo/done", "done"),
    ];
    let open = |path| Stream::send(address, &http::request("GET", path, &[("accept", "text/event-stream")], ""));
    let mut streams: Vec<_> = sources.iter().map(|(path, _)| open(path)).collect();
    let page = http::over_tcp(address, &http::request("GET", "/api/metrics", &[], "")).body;
    for (_, source) in sources {
        let open = sources.iter().filter(|(_, other)| *other == source).count();
        assert!(page.contains(&format!("tasklight_streams{{source=\"{source}\"}} {open}\n")), "{page}");
    }
    runtime.block_on(gateway.shutdown());
    for (stream, (path, _)) in streams.iter_mut().zip(sources) {
        let mut last = None;
        while let Some(event) = stream.next() {
            last = Some(event);
        }
        let last = last.unwrap_or_else(|| panic!("{path} told nothing")).data;
        assert!(last.contains("subagent-1") && last.contains(r#""status":"killed""#), "{path}: {last}");
    }
}

#[test]
fn a_mounted_stream_beats_when_it_is_silent_and_ends_with_its_owner() {
    let runtime = Runtime::new().unwrap();
    let settings = Settings { heartbeat: Duration::from_millis(20), ..Settings::default() };
    let gateway = runtime.block_on(async { Tasklight::builder().settings(settings).mount() }).unwrap();
    let address = runtime.block_on(server(gateway.observe(), gateway.control()));
    let mut stream = Stream::open(address, "demo");
    assert_eq!(stream.next().unwrap().name, "comment");
    drop(gateway);
    while stream.next().is_some() {}
}

#[test]
fn without_a_registry_every_session_is_empty_and_there_is_no_control() {
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let mounted = Tasklight::builder().without_registry().mount().unwrap();
    assert!(mounted.control().is_none());
    let gateway = Tasklight::builder().settings(free()).without_registry().serve().unwrap();
    let list = http::request("GET", "/sessions/demo/tasks", &[("accept", "application/json")], "");
    assert_eq!(http::over_tcp(gateway.address(), &list).json(), json!([]));
    let resumed = Stream::with(gateway.address(), "demo", &[("last-event-id", "1")]).list();
    assert_eq!(resumed.data, "[]");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, gateway.shutdown()).await }).unwrap();
}

#[test]
fn what_is_wrong_with_the_settings_is_an_error_of_the_last_step() {
    let serve = |settings: Settings| Tasklight::builder().settings(settings).serve().unwrap_err();
    assert!(matches!(serve(free()), BindError::NoRuntime));
    assert!(matches!(Tasklight::builder().mount().unwrap_err(), BindError::NoRuntime));
    let runtime = Runtime::new().unwrap();
    let _inside = runtime.enter();
    let over_tcp = vec!["127.0.0.1:0".parse().unwrap()];
    assert!(matches!(serve(Settings { control: over_tcp.clone(), ..free() }), BindError::NoToken { .. }));
    let nothing = Tasklight::builder().settings(Settings { control: over_tcp, ..free() }).without_registry();
    assert!(matches!(nothing.serve().unwrap_err(), BindError::NothingToControl));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = Settings { listen: taken.local_addr().unwrap(), ..Settings::default() };
    assert!(matches!(serve(taken), BindError::Listen { .. }));
}
