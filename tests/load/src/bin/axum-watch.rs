//! A peer: axum's `Sse` over tokio's `watch`, as its documentation would have one write it.
//!
//! `axum-watch ADDRESS SOCKET`; lists come in by `POST /sessions/NAME` on a Unix socket.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::sse::{Event, KeepAlive, Sse},
    routing::{get, post},
};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};

type Lists = Arc<Mutex<HashMap<String, watch::Sender<Arc<str>>>>>;

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("axum-watch ADDRESS SOCKET"));
    };
    let lists = Lists::default();
    let browsers = Router::new().route("/sessions/{session}/tasks", get(stream)).with_state(Arc::clone(&lists));
    let control = Router::new().route("/sessions/{session}", post(publish)).with_state(lists);
    let browsers = axum::serve(TcpListener::bind(address).await?, browsers);
    let control = axum::serve(UnixListener::bind(path)?, control);
    tokio::try_join!(browsers, control)?;
    Ok(())
}

async fn stream(
    State(lists): State<Lists>,
    Path(session): Path<String>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let list = with(&lists, session, watch::Sender::subscribe);
    let events = WatchStream::new(list).filter(|list| !list.is_empty()).map(|list| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Ok(Event::default().id(now.to_string()).data(&*list))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

async fn publish(State(lists): State<Lists>, Path(session): Path<String>, list: String) -> StatusCode {
    with(&lists, session, |sender| sender.send_replace(list.into()));
    StatusCode::NO_CONTENT
}

fn with<T>(lists: &Lists, session: String, act: impl FnOnce(&watch::Sender<Arc<str>>) -> T) -> T {
    let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
    act(lists.entry(session).or_insert_with(|| watch::Sender::new("".into())))
}
