//! The browsers' routes. They look, and can do nothing else: all they hold is the hub.

use std::sync::Arc;

use hyper::{HeaderMap, Method, Request, StatusCode, body::Incoming, header};

use super::{
    Whole, assets,
    cors::{self, Readers},
    json,
    problem::Problem,
    route::{self, ObserveRoute},
    stream::{self, Heartbeat, StreamPlan},
};
use crate::{config::AllowedOrigin, hub::Hub, id::SessionId, sse};

const METHODS: &str = "GET, HEAD";

/// What becomes of a request.
pub(crate) enum Answer {
    /// An answer by hyper, like any other.
    Whole(Whole),
    /// A stream: the connection leaves hyper.
    Stream(StreamPlan),
}

/// What the routes show, and to whom.
#[derive(Debug)]
pub(crate) struct Observe {
    pub(crate) hub: Arc<Hub>,
    pub(crate) allow_origins: Vec<AllowedOrigin>,
}

impl Observe {
    /// Answers one request.
    pub(crate) fn answer(&self, request: &Request<Incoming>) -> Answer {
        let route = route::observe(request.uri().path());
        let readers = match route {
            Ok(ObserveRoute::Widget(_)) => Readers::All,
            Ok(ObserveRoute::Page | ObserveRoute::Icon | ObserveRoute::Tasks(_)) | Err(_) => {
                Readers::Allowed(&self.allow_origins)
            }
        };
        let origin = request.headers().get(header::ORIGIN);
        let answer = if cors::is_preflight(request.method(), request.headers()) {
            // Before the path is judged: a page is to read what is wrong with it.
            preflight(readers, request.headers())
        } else {
            route.and_then(|route| self.route(route, request))
        };
        let mut answer = answer.unwrap_or_else(|problem| Answer::Whole(problem.into()));
        answer.headers_mut().extend(cors::headers(readers, origin));
        answer
    }

    fn route(&self, route: ObserveRoute, request: &Request<Incoming>) -> Result<Answer, Problem> {
        let asset = match route {
            ObserveRoute::Tasks(session) => return tasks(&self.hub, session, request),
            ObserveRoute::Page => &assets::PAGE,
            ObserveRoute::Icon => &assets::ICON,
            ObserveRoute::Widget(name) => assets::widget(&name).ok_or(Problem::NoSuchPath)?,
        };
        look(request.method())?;
        Ok(Answer::Whole(assets::answer(asset, request.headers())))
    }
}

impl Answer {
    fn headers_mut(&mut self) -> &mut HeaderMap {
        match self {
            Self::Whole(answer) => answer.headers_mut(),
            Self::Stream(plan) => &mut plan.headers,
        }
    }
}

fn preflight(readers: Readers<'_>, headers: &HeaderMap) -> Result<Answer, Problem> {
    let origin = headers.get(header::ORIGIN);
    if !cors::may_read(readers, origin) {
        let origin = origin.map(|origin| String::from_utf8_lossy(origin.as_bytes()).into_owned());
        return Err(Problem::ForeignOrigin(format!("{} is not allowed", origin.unwrap_or_default())));
    }
    let mut answer = super::empty(StatusCode::NO_CONTENT);
    answer.headers_mut().extend(cors::preflight_headers());
    Ok(Answer::Whole(answer))
}

/// Whether only the head is wanted.
fn look(method: &Method) -> Result<bool, Problem> {
    match *method {
        Method::GET => Ok(false),
        Method::HEAD => Ok(true),
        _ => Err(Problem::MethodNotAllowed { allow: METHODS }),
    }
}

fn tasks(hub: &Arc<Hub>, session: SessionId, request: &Request<Incoming>) -> Result<Answer, Problem> {
    let head = look(request.method())?;
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
            headers: stream::headers(),
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
enum Wanted {
    Stream,
    Json,
}

/// Which of the two forms the client would rather have (RFC 9110 §12.5.1); the stream where it is
/// all the same.
fn wanted(headers: &HeaderMap) -> Result<Wanted, Problem> {
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
