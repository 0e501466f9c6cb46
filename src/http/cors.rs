//! What an answer says to pages of other origins (WHATWG Fetch §3.3, "HTTP extensions").
//!
//! Promises:
//! - At most one `Access-Control-Allow-Origin`, and `Vary: Origin` wherever it depends on the asker,
//!   granted or not: a cache must not hand one origin's answer to another.
//! - Never `Access-Control-Allow-Credentials`: there are none, and a page's cookies stay with it.
//! - Never `Access-Control-Allow-Private-Network`: that pages of the internet reach a gateway on a
//!   person's machine is that person's to allow, and their browser asks them.

use hyper::{
    HeaderMap, Method,
    header::{self, HeaderName, HeaderValue},
};

use crate::config::AllowedOrigin;

/// How long a browser may keep a preflight's answer: long enough that a page which reconnects asks
/// once, short enough that a changed flag is soon known. In seconds.
const MAX_AGE: &str = "600";

/// Who may read an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Readers<'a> {
    /// Every page: there is nothing in it that is not public.
    All,
    /// The pages of these origins, and the gateway's own.
    Allowed(&'a [AllowedOrigin]),
}

/// A browser's question whether a page may send the request it wants to.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Whether a page of that origin may read what these readers may.
pub(crate) fn may_read(readers: Readers<'_>, origin: Option<&HeaderValue>) -> bool {
    granted(readers, origin).is_some()
}

/// The headers of an answer to a request of that `Origin`, if any.
pub(crate) fn headers(readers: Readers<'_>, origin: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(origin) = granted(readers, origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    if depends(readers) {
        headers.insert(header::VARY, HeaderValue::from_name(header::ORIGIN));
    }
    headers
}

/// What a granted preflight's answer has beside that.
pub(crate) fn preflight_headers() -> [(HeaderName, HeaderValue); 3] {
    [
        (header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD")),
        // A page that reads the stream by fetch resumes with it; EventSource needs no leave.
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("Last-Event-ID")),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE)),
    ]
}

fn granted(readers: Readers<'_>, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
    let allowed = match readers {
        Readers::All => return Some(HeaderValue::from_static("*")),
        Readers::Allowed(allowed) => allowed,
    };
    if allowed.contains(&AllowedOrigin::Any) {
        return Some(HeaderValue::from_static("*"));
    }
    let origin = origin?;
    let named = |rule: &AllowedOrigin| matches!(rule, AllowedOrigin::Exactly(named) if named.as_str().as_bytes() == origin.as_bytes());
    allowed.iter().any(named).then(|| origin.clone())
}

fn depends(readers: Readers<'_>) -> bool {
    match readers {
        Readers::All => false,
        Readers::Allowed(allowed) => !allowed.is_empty() && !allowed.contains(&AllowedOrigin::Any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allowed, asker, `Access-Control-Allow-Origin`, whether it varies.
    type Case<'a> = (&'a [&'a str], Option<&'a str>, Option<&'a str>, bool);

    #[test]
    fn each_asker_is_told_what_the_flags_say_of_it() {
        let a = "https://a.example";
        let table: [Case<'_>; 12] = [
            (&[], None, None, false),
            (&[], Some(a), None, false),
            (&[a], None, None, true),
            (&[a], Some(a), Some(a), true),
            (&[a, "http://b:81"], Some("http://b:81"), Some("http://b:81"), true),
            (&[a], Some("https://b.example"), None, true),
            (&[a], Some("http://a.example"), None, true),
            (&[a], Some("https://a.example:8443"), None, true),
            (&[a], Some("https://a.example.evil.test"), None, true),
            (&[a], Some("null"), None, true),
            (&["*"], None, Some("*"), false),
            (&[a, "*"], Some("null"), Some("*"), false),
        ];
        for (allowed, asker, expected, varies) in table {
            let rules: Vec<AllowedOrigin> = allowed.iter().map(|rule| rule.parse().unwrap()).collect();
            let asker = asker.map(|asker| HeaderValue::from_str(asker).unwrap());
            let told = headers(Readers::Allowed(&rules), asker.as_ref());
            let told_origin = told.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).map(|value| value.to_str().unwrap());
            assert_eq!(told_origin, expected, "{allowed:?} {asker:?}");
            assert_eq!(told.contains_key(header::VARY), varies, "{allowed:?} {asker:?}");
            assert_eq!(may_read(Readers::Allowed(&rules), asker.as_ref()), expected.is_some());
        }
        assert_eq!(headers(Readers::All, None)[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    }

    #[test]
    fn a_preflight_names_an_origin_and_a_method() {
        let mut headers = HeaderMap::new();
        assert!(!is_preflight(&Method::OPTIONS, &headers));
        headers.insert(header::ORIGIN, HeaderValue::from_static("https://a.example"));
        assert!(!is_preflight(&Method::OPTIONS, &headers));
        headers.insert(header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("GET"));
        assert!(is_preflight(&Method::OPTIONS, &headers));
        assert!(!is_preflight(&Method::GET, &headers));
    }
}
