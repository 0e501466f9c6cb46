//! A request's body, of bounded size and within bounded time, as a value.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request,
    body::{Body, Incoming},
    header,
};
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The largest JSON body, in bytes.
pub(crate) const MAX_JSON: usize = 64 * 1024;
/// The largest text, in bytes: as much as is kept of an output.
pub(crate) const MAX_TEXT: usize = 256 * 1024;

/// Reads a JSON body.
///
/// # Errors
/// Not JSON by its content type (415), too large (413), too slow (408), not UTF-8 or not JSON
/// (400), a field that is unknown, missing or has a wrong value (422, naming it).
pub(crate) async fn json<T: DeserializeOwned>(
    request: &mut Request<Incoming>,
    patience: Duration,
) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::NotJson);
    }
    parse(&whole(request, MAX_JSON, patience).await?)
}

/// Like [`json`], but no body and no content type at all is the default.
pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(
    request: &mut Request<Incoming>,
    patience: Duration,
) -> Result<T, Problem> {
    if request.body().is_end_stream() && !request.headers().contains_key(header::CONTENT_TYPE) {
        return Ok(T::default());
    }
    json(request, patience).await
}

/// Reads a body of plain text.
///
/// # Errors
/// Not plain text in UTF-8 by its content type (415), too large (413), too slow (408), not UTF-8
/// (400).
pub(crate) async fn text(request: &mut Request<Incoming>, patience: Duration) -> Result<String, Problem> {
    if !is_utf8_text(request.headers()) {
        return Err(Problem::NotText);
    }
    String::from_utf8(whole(request, MAX_TEXT, patience).await?.into()).map_err(|error| not_utf8(error.utf8_error()))
}

async fn whole(request: &mut Request<Incoming>, limit: usize, patience: Duration) -> Result<Bytes, Problem> {
    let body = request.body_mut();
    let mut read = pin!(async {
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Problem::BrokenBody(format!("the body did not arrive whole: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > limit {
                return Err(Problem::TooLarge { limit });
            }
            // Most come in one piece.
            if whole.is_empty() && body.is_end_stream() {
                return Ok(data);
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.into())
    });
    // Most come with the head, and need no timer.
    if let Poll::Ready(whole) = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
        return whole;
    }
    tokio::time::timeout(patience, read).await.unwrap_or(Err(Problem::TooSlow))
}

/// A body as a value.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(not_utf8)?;
    let is_object = text.trim_start().starts_with('{');
    match serde_json::from_str(text) {
        Ok(value) if is_object => Ok(value),
        Ok(_) | Err(_) => read_closely(text, is_object),
    }
}

/// Reads a body in which something is wrong, and says what.
fn read_closely<T: DeserializeOwned>(text: &str, is_object: bool) -> Result<T, Problem> {
    let broken = |error: &serde_json::Error| Problem::BrokenBody(format!("the body is not JSON: {error}"));
    // All of it first: a field is to blame only where the JSON is whole.
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| broken(&error))?;
    // serde takes an array for a struct too, its values in the order of the fields.
    if !is_object {
        return Err(Problem::field("(body)", "the body is a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        match error.inner() {
            inner if inner.is_data() => Problem::field(blamed(&field, inner), without_position(inner)),
            // A number that is too large, half a surrogate pair.
            inner => broken(inner),
        }
    })
}

fn not_utf8(error: std::str::Utf8Error) -> Problem {
    Problem::BrokenBody(format!("byte {} of the body is not UTF-8", error.valid_up_to()))
}

/// The field that an error is about. For one that is unknown, missing or there twice the path
/// names the object around it, and the message names the field in backquotes.
fn blamed(path: &str, error: &serde_json::Error) -> String {
    let message = without_position(error);
    // The name is the client's, and may hold a backquote itself.
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.rsplit_once("`, expected "));
    let name = unknown.map(|(name, _)| name).or_else(|| {
        let start = ["missing field `", "duplicate field `"];
        start.iter().find_map(|start| message.strip_prefix(start)?.strip_suffix('`'))
    });
    name.map_or_else(|| if path == "." { "(body)".to_owned() } else { path.to_owned() }, str::to_owned)
}

fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&position).unwrap_or(&message).to_owned()
}

fn is_json(headers: &HeaderMap) -> bool {
    // As nearly everybody spells it, first of all.
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json")
        || content_type(headers).is_some_and(|(essence, _)| essence.eq_ignore_ascii_case("application/json"))
}

/// US-ASCII is UTF-8 too, and no charset says nothing.
fn is_utf8_text(headers: &HeaderMap) -> bool {
    content_type(headers).is_some_and(|(essence, mut parameters)| {
        essence.eq_ignore_ascii_case("text/plain")
            && parameters.all(|(name, value)| {
                !name.eq_ignore_ascii_case("charset")
                    || ["utf-8", "us-ascii"].iter().any(|charset| value.eq_ignore_ascii_case(charset))
            })
    })
}

/// RFC 9110 §8.3.1: type and subtype, compared without case; parameters follow a semicolon, their
/// values maybe in quotes.
fn content_type(headers: &HeaderMap) -> Option<(&str, impl Iterator<Item = (&str, &str)>)> {
    let mut parts = headers.get(header::CONTENT_TYPE)?.to_str().ok()?.split(';');
    let essence = parts.next()?.trim();
    let parameters = parts.filter_map(|part| part.trim().split_once('='));
    Some((essence, parameters.map(|(name, value)| (name, value.trim_matches('"')))))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::task::Label;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        #[expect(dead_code, reason = "only whether it can be read is asked")]
        label: Label,
        #[serde(default)]
        #[expect(dead_code, reason = "only whether it can be read is asked")]
        env: std::collections::BTreeMap<String, String>,
    }

    fn blamed_field(body: &str) -> (String, String) {
        let problem = parse::<Example>(body.as_bytes()).unwrap_err();
        let Problem::Field { field, problem } = problem else { panic!("{body}: {problem:?}") };
        (field, problem)
    }

    #[test]
    fn a_bad_field_is_named() {
        assert_eq!(blamed_field("{}").0, "label");
        assert_eq!(blamed_field(r#"{"label":""}"#), ("label".into(), "a label has something to read in it".into()));
        assert_eq!(blamed_field(r#"{"label":7}"#).0, "label");
        assert_eq!(blamed_field(r#"{"label":"a","env":{"A":1}}"#).0, "env.A");
        assert_eq!(blamed_field(r#"{"label":"a","label":"b"}"#).0, "label");
        let (field, problem) = blamed_field(r#"{"label":"a","lable":"b"}"#);
        assert_eq!(field, "lable");
        assert_eq!(problem, "unknown field `lable`, expected `label` or `env`");
        assert_eq!(blamed_field(r#"{"a`, expected b":1}"#).0, "a`, expected b");
        for not_an_object in ["[]", r#"["label"]"#, "7", "null"] {
            assert_eq!(blamed_field(not_an_object).0, "(body)");
        }
    }

    #[test]
    fn text_is_plain_and_in_utf8() {
        let is_text = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            is_utf8_text(&headers)
        };
        for good in ["text/plain", "Text/Plain; charset=UTF-8", "text/plain;charset=\"us-ascii\"", "text/plain; x=y"] {
            assert!(is_text(good), "{good}");
        }
        for bad in ["", "text/html", "application/json", "text/plain; charset=latin1"] {
            assert!(!is_text(bad), "{bad}");
        }
        assert!(!is_utf8_text(&HeaderMap::new()));
    }

    #[test]
    fn a_broken_body_is_not_a_bad_field() {
        for broken in [
            &b""[..],
            b"{",
            b"{\"label\":\"a\"} x",
            b"{\"label\":\"\xff\"}",
            b"{'label':1}",
            b"{\"label\":7",
            b"{\"lable\":1,}",
        ] {
            assert!(matches!(parse::<Example>(broken), Err(Problem::BrokenBody(_))), "{broken:?}");
        }
    }
}
