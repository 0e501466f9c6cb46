//! The browsers' routes. They look, and can do nothing else: all they hold is the hub.

use std::sync::Arc;

use hyper::{HeaderMap, Method, Request, StatusCode, header};

use super::{
    assets,
    cors::{self, Readers},
    handoff::Answer,
    json,
    negotiate::{self, Wanted},
    problem::Problem,
    route::{self, ObserveRoute},
    source::Source,
};
use crate::{config::AllowedOrigin, hub::Hub, id::SessionId};

const METHODS: &str = "GET, HEAD";

/// What the routes show, and to whom.
#[derive(Debug)]
pub(crate) struct Observe {
    pub(crate) hub: Arc<Hub>,
    pub(crate) allow_origins: Vec<AllowedOrigin>,
}

impl Observe {
    /// Answers one request.
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Answer {
        let route = route::observe(request.uri().path());
        let readers = match route {
            Ok(ObserveRoute::Widget(_)) => Readers::All,
            Ok(ObserveRoute::Page | ObserveRoute::Icon | ObserveRoute::Tasks(_) | ObserveRoute::Mux) | Err(_) => {
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

    fn route<B>(&self, route: ObserveRoute, request: &Request<B>) -> Result<Answer, Problem> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Problem::MethodNotAllowed { allow: METHODS });
        }
        let asset = match route {
            ObserveRoute::Tasks(session) => return tasks(&self.hub, session, request, Wanted::Stream),
            ObserveRoute::Mux => {
                let sessions = route::sessions(request.uri().query().unwrap_or_default())?;
                return mux(&self.hub, &sessions, request);
            }
            ObserveRoute::Page => &assets::PAGE,
            ObserveRoute::Icon => &assets::ICON,
            ObserveRoute::Widget(name) => assets::widget(&name).ok_or(Problem::NoSuchPath)?,
        };
        Ok(Answer::Whole(assets::answer(asset, request.headers())))
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
