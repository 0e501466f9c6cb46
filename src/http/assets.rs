//! The gateway's page and the widget's modules, embedded in the program.
//!
//! Promises:
//! - One `ETag` a content, and every use is preceded by the question whether it is still current
//!   (`no-cache`), so that a page never runs modules of two versions.
//! - The page runs nothing but its own files, and nothing from the wire as HTML or script: its
//!   policy forbids both.
//! - The modules may be loaded by pages of every origin; what they show may not (see `cors`).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::OnceLock,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};

use super::Whole;

/// One embedded file.
#[derive(Debug)]
pub(crate) struct Asset {
    name: &'static str,
    content_type: &'static str,
    body: &'static [u8],
    tag: OnceLock<HeaderValue>,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const DRAWING: &str = "image/svg+xml";

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        Asset {
            name: $name,
            content_type: $content_type,
            body: include_bytes!(concat!("../../static/", $name)),
            tag: OnceLock::new(),
        }
    };
}

/// `GET /`.
pub(crate) static PAGE: Asset = asset!("index.html", HTML);

/// `GET /favicon.ico`, which browsers ask for beside a list that is opened as a page.
pub(crate) static ICON: Asset = asset!("favicon.svg", DRAWING);

static WIDGET: [Asset; 13] = [
    asset!("session-tasks.js", SCRIPT),
    asset!("session-tasks-element.js", SCRIPT),
    asset!("session-tasks-styles.js", SCRIPT),
    asset!("session-tasks.d.ts", TEXT),
    asset!("dom.js", SCRIPT),
    asset!("task-list.js", SCRIPT),
    asset!("task-row.js", SCRIPT),
    asset!("task-mirror.js", SCRIPT),
    asset!("task-stream.js", SCRIPT),
    asset!("format.js", SCRIPT),
    asset!("page.js", SCRIPT),
    asset!("page.css", STYLE),
    asset!("favicon.svg", DRAWING),
];

/// `GET /widget/{name}`.
pub(crate) fn widget(name: &str) -> Option<&'static Asset> {
    WIDGET.iter().find(|asset| asset.name == name)
}

/// The page's policy (CSP 3): only what the gateway itself serves, and text stays text.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'self'; require-trusted-types-for 'script'";

/// Answers with a file, or with 304 to a client that has it.
pub(crate) fn answer(asset: &'static Asset, request: &HeaderMap) -> Whole {
    let tag = asset.tag.get_or_init(|| tag(asset.body)).clone();
    let current = has_current(request, &tag);
    let mut answer = if current {
        super::empty(StatusCode::NOT_MODIFIED)
    } else {
        Response::new(Full::new(Bytes::from_static(asset.body)))
    };
    let headers = answer.headers_mut();
    headers.insert(header::ETAG, tag);
    // Kept, and asked for again before each use (RFC 9111 §5.2.2.4).
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if current {
        return answer;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policies = if asset.content_type == HTML {
        vec![
            (header::CONTENT_SECURITY_POLICY, POLICY),
            // A session's name is in the page's address.
            (header::REFERRER_POLICY, "no-referrer"),
        ]
    } else {
        // For pages that demand leave of all they load (`Cross-Origin-Embedder-Policy`).
        vec![(HeaderName::from_static("cross-origin-resource-policy"), "cross-origin")]
    };
    headers.extend(policies.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))));
    answer
}

/// A strong validator (RFC 9110 §8.8.1). Another build may name the same bytes otherwise, which
/// costs one download.
fn tag(body: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let tag = format!("\"{:x}-{:016x}\"", body.len(), hasher.finish());
    // Quotes and hexadecimal digits are a valid value.
    HeaderValue::from_str(&tag).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// `If-None-Match` (RFC 9110 §13.1.2): compared weakly, since a proxy that compresses makes a tag
/// weak.
fn has_current(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let values = request.get_all(header::IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|candidate| {
        let candidate = candidate.strip_prefix("W/").unwrap_or(candidate);
        candidate == "*" || candidate.as_bytes() == tag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_under_its_name() {
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/static")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name == PAGE.name || widget(&name).is_some(), "{name} is not embedded");
        }
        assert!(widget("index.html").is_none(), "the page has one address");
        assert!(widget("../Cargo.toml").is_none());
    }

    #[test]
    fn a_tag_is_recognised_alone_in_a_list_and_weakened() {
        let tag = HeaderValue::from_static("\"a\"");
        let has = |value: &'static str| {
            has_current(&HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]), &tag)
        };
        for current in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "\"b\" ,W/\"a\"", "*"] {
            assert!(has(current), "{current}");
        }
        for old in ["\"b\"", "a", "\"ab\"", "", "W/\"b\", \"c\""] {
            assert!(!has(old), "{old}");
        }
        assert!(!has_current(&HeaderMap::new(), &tag));
    }

    #[test]
    fn tags_differ_where_contents_do() {
        assert_ne!(tag(b"a"), tag(b"b"));
        assert_eq!(tag(PAGE.body), tag(PAGE.body));
    }
}
