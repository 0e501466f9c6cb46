//! The browsers' routes. They look, and can do nothing else: all they hold is the hub.

use std::sync::Arc;

use hyper::{Method, Request, StatusCode};

use super::{
    handoff::Answer,
    json,
    negotiate::{self, Wanted},
    problem::Problem,
    route::{self, ObserveRoute},
    source::Source,
};
use crate::{hub::Hub, id::SessionId};

const METHODS: &str = "GET, HEAD";

/// Answers one request.
pub(crate) fn answer<B>(hub: &Arc<Hub>, request: &Request<B>) -> Answer {
    match route(hub, request) {
        Ok(answer) => answer,
        Err(problem) => Answer::Whole(problem.into()),
    }
}

fn route<B>(hub: &Arc<Hub>, request: &Request<B>) -> Result<Answer, Problem> {
    let route = route::observe(request.uri().path())?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Problem::MethodNotAllowed { allow: METHODS });
    }
    match route {
        ObserveRoute::Tasks(session) => tasks(hub, session, request, Wanted::Stream),
        ObserveRoute::Mux => mux(hub, &route::sessions(request.uri().query().unwrap_or_default())?, request),
    }
}

/// One session's list, in the form that the client would rather have.
pub(crate) fn tasks<B>(hub: &Hub, session: SessionId, request: &Request<B>, usual: Wanted) -> Result<Answer, Problem> {
    match negotiate::wanted(request.headers(), usual)? {
        Wanted::Json => Ok(json(StatusCode::OK, hub.list(&session)).into()),
        Wanted::Stream => {
            negotiate::answer(request, || Source::tasks(hub.subscribe(session), negotiate::resumes(request.headers())))
        }
    }
}

/// Several sessions' lists.
pub(crate) fn mux<B>(hub: &Hub, sessions: &[SessionId], request: &Request<B>) -> Result<Answer, Problem> {
    if sessions.is_empty() {
        return Err(Problem::field("session", "missing: name at least one, as in /mux?session=a&session=b"));
    }
    negotiate::only_stream(request, || {
        Source::Mux(Box::new(hub.mux(sessions.iter().cloned(), negotiate::resumes(request.headers()))))
    })
}
