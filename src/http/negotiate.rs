//! What a client asks of a stream or a list: which form, which sign of life, from where on.

use std::str::FromStr;

use hyper::{HeaderMap, Method, Request, StatusCode, header};

use super::{
    handoff::Answer,
    problem::Problem,
    source::Source,
    stream::StreamPlan,
    wire::{self, Framing, Heartbeat, Wire},
};
use crate::sse;

/// Answers a request for what is only there as a stream. `HEAD` gets the headers, and `make` is not
/// called.
pub(crate) fn only_stream<B>(request: &Request<B>, make: impl FnOnce() -> Source) -> Result<Answer, Problem> {
    let (stream, _) = weights(request.headers());
    if stream > 0.0 { answer(request, make) } else { Err(Problem::NotAcceptable) }
}

/// Answers a request with a stream.
pub(crate) fn answer<B>(request: &Request<B>, make: impl FnOnce() -> Source) -> Result<Answer, Problem> {
    let heartbeat = heartbeat(request)?;
    if *request.method() == Method::HEAD {
        let mut answer = super::empty(StatusCode::OK);
        *answer.headers_mut() = wire::headers();
        return Ok(answer.into());
    }
    let wire = Wire { framing: Framing::of(request.version()), heartbeat };
    Ok(Answer::Stream(StreamPlan { source: make(), wire, headers: wire::headers(), admitted: None }))
}

/// Whether the client had a stream before and may hold what came of it.
pub(crate) fn resumes(headers: &HeaderMap) -> bool {
    headers.get(LAST_EVENT_ID).is_some_and(|id| !id.is_empty())
}

/// The last id that the client holds, if it is one of those.
pub(crate) fn last_event_id<T: FromStr>(headers: &HeaderMap) -> Option<T> {
    headers.get(LAST_EVENT_ID)?.to_str().ok()?.parse().ok()
}

/// WHATWG HTML §9.2.4.
const LAST_EVENT_ID: &str = "last-event-id";

/// Which sign of life the client asks for.
pub(crate) fn heartbeat<B>(request: &Request<B>) -> Result<Heartbeat, Problem> {
    let query = request.uri().query().unwrap_or_default();
    match form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "heartbeat") {
        None => Ok(Heartbeat::Comment),
        Some((_, style)) if style == "event" => Ok(Heartbeat::Event),
        Some((_, style)) => {
            Err(Problem::field("heartbeat", format!("'event' is the only one to ask for, not {style:?}")))
        }
    }
}

/// Which form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Stream,
    Json,
}

/// Which of the two forms the client would rather have (RFC 9110 §12.5.1); `usual` where it is all
/// the same.
pub(crate) fn wanted(headers: &HeaderMap, usual: Wanted) -> Result<Wanted, Problem> {
    let (stream, json) = weights(headers);
    if stream <= 0.0 && json <= 0.0 {
        Err(Problem::NotAcceptable)
    } else if json > stream {
        Ok(Wanted::Json)
    } else if stream > json {
        Ok(Wanted::Stream)
    } else {
        Ok(usual)
    }
}

/// How much a client wants the stream, and how much JSON.
fn weights(headers: &HeaderMap) -> (f32, f32) {
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
    if any { (stream.value, json.value) } else { (1.0, 1.0) }
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
        wanted(&headers, Wanted::Stream).ok()
    }

    #[test]
    fn the_stream_goes_to_whoever_does_not_rather_have_json() {
        assert_eq!(wanted(&HeaderMap::new(), Wanted::Stream).ok(), Some(Wanted::Stream));
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
    #[test]
    fn where_json_is_usual_the_stream_goes_to_whoever_names_it() {
        let mut headers = HeaderMap::new();
        assert_eq!(wanted(&headers, Wanted::Json).ok(), Some(Wanted::Json));
        for (accept, expected) in [
            ("*/*", Wanted::Json),
            ("text/event-stream, application/json", Wanted::Json),
            ("text/event-stream", Wanted::Stream),
            ("text/event-stream, */*;q=0.1", Wanted::Stream),
        ] {
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(wanted(&headers, Wanted::Json).ok(), Some(expected), "{accept}");
        }
    }
}
