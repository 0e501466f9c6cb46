//! The browsers' routes. They look, and can do nothing else: all they hold is the hub.

use std::sync::Arc;

use hyper::{HeaderMap, Method, Request, StatusCode, header};

use super::{
    Whole, json,
    problem::Problem,
    route::{self, ObserveRoute},
    stream::{self, Heartbeat, StreamPlan},
};
use crate::{hub::Hub, id::SessionId, sse};

const METHODS: &str = "GET, HEAD";

/// What becomes of a request.
pub(crate) enum Answer {
    /// An answer by hyper, like any other.
    Whole(Whole),
    /// A stream: the connection leaves hyper.
    Stream(StreamPlan),
}

/// Answers one request.
pub(crate) fn answer<B>(hub: &Arc<Hub>, request: &Request<B>) -> Answer {
    match route(hub, request) {
        Ok(answer) => answer,
        Err(problem) => Answer::Whole(problem.into()),
    }
}

fn route<B>(hub: &Arc<Hub>, request: &Request<B>) -> Result<Answer, Problem> {
    match route::observe(request.uri().path())? {
        ObserveRoute::Tasks(session) => tasks(hub, session, request),
    }
}

fn tasks<B>(hub: &Arc<Hub>, session: SessionId, request: &Request<B>) -> Result<Answer, Problem> {
    let head = match *request.method() {
        Method::GET => false,
        Method::HEAD => true,
        _ => return Err(Problem::MethodNotAllowed { allow: METHODS }),
    };
    match (wanted(request.headers())?, head) {
        (Wanted::Json, _) => Ok(Answer::Whole(json(StatusCode::OK, hub.list(&session)))),
        (Wanted::Stream, true) => {
            let mut answer = super::empty(StatusCode::OK);
            *answer.headers_mut() = stream::headers();
            Ok(Answer::Whole(answer))
        }
        (Wanted::Stream, false) => Ok(Answer::Stream(StreamPlan {
            heartbeat: heartbeat(request.uri().query().unwrap_or_default())?,
            version: request.version(),
            resumes: request.headers().get("last-event-id").is_some_and(|id| !id.is_empty()),
            subscription: hub.subscribe(session),
        })),
    }
}

fn heartbeat(query: &str) -> Result<Heartbeat, Problem> {
    match form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "heartbeat") {
        None => Ok(Heartbeat::Comment),
        Some((_, style)) if style == "event" => Ok(Heartbeat::Event),
        Some((_, style)) => {
            Err(Problem::field("heartbeat", format!("'event' is the only one to ask for, not {style:?}")))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Stream,
    Json,
}

/// Which of the two forms the client would rather have (RFC 9110 §12.5.1); the stream where it is
/// all the same.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Wanted, Problem> {
    let mut stream = Weight::default();
    let mut json = Weight::default();
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            stream.heed(&range, sse::MEDIA_TYPE, "text/*", weight);
            json.heed(&range, "application/json", "application/*", weight);
        }
    }
    let (stream, json) = if any { (stream.value, json.value) } else { (1.0, 0.0) };
    if stream <= 0.0 && json <= 0.0 {
        Err(Problem::NotAcceptable)
    } else if json > stream {
        Ok(Wanted::Json)
    } else {
        Ok(Wanted::Stream)
    }
}

/// How much a client wants one media type: the weight of the most specific range that fits.
#[derive(Default)]
struct Weight {
    value: f32,
    specific: u8,
}

impl Weight {
    fn heed(&mut self, range: &str, exact: &str, group: &str, value: f32) {
        let specific = match range {
            range if range == exact => 3,
            range if range == group => 2,
            "*/*" => 1,
            _ => return,
        };
        if specific > self.specific {
            *self = Self { value, specific };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> Option<Wanted> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        wanted(&headers).ok()
    }

    #[test]
    fn the_stream_goes_to_whoever_does_not_rather_have_json() {
        assert_eq!(wanted(&HeaderMap::new()).ok(), Some(Wanted::Stream));
        for stream in [
            "*/*",
            "text/event-stream",
            "Text/Event-Stream; charset=utf-8",
            "text/html, application/xhtml+xml, */*;q=0.8",
            "text/*",
            "application/json;q=0.5, text/event-stream",
            "application/json;q=0, */*",
        ] {
            assert_eq!(accept(stream), Some(Wanted::Stream), "{stream}");
        }
        for json in
            ["application/json", "application/json, text/plain;q=0.5", "application/*", "application/json, */*;q=0.1"]
        {
            assert_eq!(accept(json), Some(Wanted::Json), "{json}");
        }
        for neither in ["text/html", "image/*", "text/event-stream;q=0", "nonsense"] {
            assert_eq!(accept(neither), None, "{neither}");
        }
    }
}
