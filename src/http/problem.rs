//! Whatever can be wrong with a request, as an answer (RFC 9457): the one place where an error
//! becomes a status.
//!
//! Promise: the title says what to do, the detail what was wrong here; what only the operator may
//! know goes to the log.

use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};
use serde::Serialize;

use super::Whole;
use crate::{
    id::InvalidSessionId,
    producer::{external::HearError, pty::TerminalError},
    registry::{AccessError, KillError, LaunchError, StartError},
};

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) enum Problem {
    /// There is not exactly one valid host.
    BadHost(&'static str),
    /// The request calls for somebody of another name.
    Misdirected {
        host: String,
    },
    /// A page sent it, to where pages have no business.
    FromAPage,
    /// Without the token, or with a wrong one.
    Unauthorized {
        offered: bool,
        close: bool,
    },
    BadPath,
    BadSessionId(InvalidSessionId),
    NoSuchPath,
    MethodNotAllowed {
        allow: &'static str,
    },
    /// A page of an origin that may not read answers asks whether it may.
    ForeignOrigin(String),
    NotAcceptable,
    NotJson,
    NotText,
    TooLarge {
        limit: usize,
    },
    TooSlow,
    BrokenBody(String),
    Field {
        field: String,
        problem: String,
    },
    UnknownTask(String),
    AnotherSession(String),
    Finished(String),
    NotExternal(String),
    TooManyLive(String),
    UnknownTerminal(String),
    TooManyTerminals(String),
    TerminalBusy(String),
    TerminalEnded(String),
    Disposed,
    Draining,
    CannotAsk(String),
    System(String),
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Problem {
    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }

    /// Status, the name that a program can match, and what to do.
    #[expect(clippy::too_many_lines, reason = "a table, one entry a problem")]
    fn class(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BadHost(_) => (StatusCode::BAD_REQUEST, "bad-host", "Send one Host header, NAME or NAME:PORT"),
            Self::Misdirected { .. } => (
                StatusCode::MISDIRECTED_REQUEST,
                "misdirected",
                "Ask by localhost or by IP address, or give the gateway this name with --host",
            ),
            Self::FromAPage => (
                StatusCode::FORBIDDEN,
                "from-a-page",
                "Ask without an Origin header: the control API is not for web pages",
            ),
            Self::Unauthorized { .. } => {
                (StatusCode::UNAUTHORIZED, "unauthorized", "Send the control token: authorization: Bearer TOKEN")
            }
            Self::BadPath => (StatusCode::BAD_REQUEST, "bad-path", "Percent-encode each segment of the path as UTF-8"),
            Self::BadSessionId(_) => (
                StatusCode::BAD_REQUEST,
                "bad-session-id",
                "Use a session id of 1 to 128 bytes of UTF-8 without control characters and without '/'",
            ),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, "no-such-path", "Check the path: there is nothing here"),
            Self::MethodNotAllowed { .. } => {
                (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Use a method that the Allow header names")
            }
            Self::ForeignOrigin(_) => {
                (StatusCode::FORBIDDEN, "foreign-origin", "Start the gateway with --allow-origin for the page's origin")
            }
            Self::NotAcceptable => (
                StatusCode::NOT_ACCEPTABLE,
                "not-acceptable",
                "Accept text/event-stream, or, for one session's list once, application/json",
            ),
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not-json",
                "Send the body as JSON, with content-type: application/json",
            ),
            Self::NotText => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not-text",
                "Send the body as text in UTF-8, with content-type: text/plain; charset=utf-8",
            ),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Send a smaller body"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too-slow", "Send the body at once"),
            Self::BrokenBody(_) => (
                StatusCode::BAD_REQUEST,
                "broken-body",
                "Send a whole body in UTF-8, and valid JSON where JSON is asked for",
            ),
            Self::Field { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad-field",
                "Correct the field that is named, and send the request again",
            ),
            Self::UnknownTask(_) => {
                (StatusCode::NOT_FOUND, "unknown-task", "List the session's tasks: there is none of this id")
            }
            Self::Finished(_) => {
                (StatusCode::CONFLICT, "already-finished", "Stop reporting: a task's first end is final")
            }
            Self::NotExternal(_) => (
                StatusCode::CONFLICT,
                "not-external",
                "Report on tasks that were started without a command; the gateway reports on the others itself",
            ),
            Self::AnotherSession(_) => (StatusCode::FORBIDDEN, "another-session", "Ask by the session that owns it"),
            Self::TooManyLive(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-live-tasks",
                "Kill a task or wait until one ends, then start again",
            ),
            Self::UnknownTerminal(_) => {
                (StatusCode::NOT_FOUND, "unknown-terminal", "List the session's terminals: there is none of this id")
            }
            Self::TooManyTerminals(_) => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-terminals", "Close a terminal, then open another")
            }
            Self::TerminalBusy(_) => (
                StatusCode::CONFLICT,
                "terminal-busy",
                "Wait until the task of the last send has ended, or kill it, then send again",
            ),
            Self::TerminalEnded(_) => {
                (StatusCode::CONFLICT, "terminal-ended", "Open another terminal: the process in this one has ended")
            }
            Self::Disposed => {
                (StatusCode::CONFLICT, "session-disposed", "Wait until the session is disposed, then start again")
            }
            Self::Draining => {
                (StatusCode::SERVICE_UNAVAILABLE, "draining", "Try again once the gateway has been restarted")
            }
            Self::CannotAsk(_) => {
                (StatusCode::BAD_GATEWAY, "cannot-ask", "Try again: the task's producer could not be asked to end it")
            }
            Self::System(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "system",
                "Try again later: the gateway's machine is out of something",
            ),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::BadHost(problem) => (*problem).to_owned(),
            Self::Misdirected { host } => {
                format!("this gateway is not called {host}; if it is to be, start it with --host {host}")
            }
            Self::Unauthorized { offered: true, .. } => "the token is not the gateway's".to_owned(),
            Self::Unauthorized { offered: false, .. } => "there is no token".to_owned(),
            Self::BadSessionId(problem) => problem.to_string(),
            Self::TooLarge { limit } => format!("the body may have {limit} bytes"),
            Self::Field { problem, .. } => problem.clone(),
            Self::UnknownTask(id) => format!("unknown task {id}"),
            Self::UnknownTerminal(id) => format!("unknown terminal {id}"),
            Self::AnotherSession(detail)
            | Self::Finished(detail)
            | Self::NotExternal(detail)
            | Self::TooManyLive(detail)
            | Self::ForeignOrigin(detail)
            | Self::TooManyTerminals(detail)
            | Self::TerminalBusy(detail)
            | Self::TerminalEnded(detail)
            | Self::BrokenBody(detail)
            | Self::CannotAsk(detail)
            | Self::System(detail) => detail.clone(),
            Self::FromAPage
            | Self::BadPath
            | Self::NoSuchPath
            | Self::MethodNotAllowed { .. }
            | Self::NotAcceptable
            | Self::NotJson
            | Self::NotText
            | Self::TooSlow
            | Self::Disposed
            | Self::Draining => String::new(),
        }
    }
}

impl From<Problem> for Whole {
    fn from(problem: Problem) -> Self {
        let (status, name, title) = problem.class();
        let field = if let Problem::Field { field, .. } = &problem { Some(field.as_str()) } else { None };
        let document = Document {
            r#type: format!("urn:tasklight:problem:{name}"),
            title,
            status: status.as_u16(),
            detail: &problem.detail(),
            field,
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut answer = super::with_body(status, "application/problem+json", body);
        if let Problem::Unauthorized { offered, close } = problem {
            // RFC 6750 §3.1: without a token there is no error to name.
            let challenge = if offered { "Bearer error=\"invalid_token\"" } else { "Bearer" };
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            if close {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
        }
        // RFC 9110 §10.2.3, in seconds.
        let retry_after = match status {
            StatusCode::TOO_MANY_REQUESTS => Some("1"),
            // Of the conflicts, those that pass: an end is final.
            StatusCode::CONFLICT if matches!(problem, Problem::Disposed | Problem::TerminalBusy(_)) => Some("1"),
            StatusCode::SERVICE_UNAVAILABLE => Some("5"),
            _ => None,
        };
        if let Problem::MethodNotAllowed { allow } = problem {
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(seconds) = retry_after {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        answer
    }
}

impl From<InvalidSessionId> for Problem {
    fn from(problem: InvalidSessionId) -> Self {
        Self::BadSessionId(problem)
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::UnknownTask(id) => Self::UnknownTask(id.to_string()),
            AccessError::AnotherSession(_) => Self::AnotherSession(error.to_string()),
        }
    }
}

impl From<KillError> for Problem {
    fn from(error: KillError) -> Self {
        match error {
            KillError::Access(error) => error.into(),
            KillError::Stop(error) => Self::CannotAsk(error.to_string()),
        }
    }
}

impl From<HearError> for Problem {
    fn from(error: HearError) -> Self {
        match error {
            HearError::Access(error) => error.into(),
            HearError::Finished(_) => Self::Finished(error.to_string()),
            HearError::NotExternal(_) => Self::NotExternal(error.to_string()),
        }
    }
}

impl From<TerminalError> for Problem {
    fn from(error: TerminalError) -> Self {
        match error {
            TerminalError::TooMany { .. } => Self::TooManyTerminals(error.to_string()),
            TerminalError::Unknown(id) => Self::UnknownTerminal(id.to_string()),
            TerminalError::AnotherSession(_) => Self::AnotherSession(error.to_string()),
            TerminalError::Busy { .. } => Self::TerminalBusy(error.to_string()),
            TerminalError::Closing(_) | TerminalError::Ended { .. } => Self::TerminalEnded(error.to_string()),
            TerminalError::Start(error) => error.into(),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        match error {
            StartError::TooManyLive { .. } => Self::TooManyLive(error.to_string()),
            StartError::OwnerDisposed => Self::Disposed,
            StartError::Closed => Self::Draining,
            StartError::Launch(LaunchError::Field { field, problem }) => Self::field(field, problem),
            StartError::Launch(error @ LaunchError::System { .. }) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "a task did not start");
                Self::System(error.to_string())
            }
        }
    }
}
