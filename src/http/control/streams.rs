//! The control API's streams, and its numbers.

use hyper::{Method, Request, body::Incoming};

use super::Control;
use crate::{
    http::{
        handoff::Answer,
        metrics,
        negotiate::{self, Wanted},
        observe,
        problem::Problem,
        route::{self, ControlRoute},
        source::Source,
    },
    id::Scope,
    overview::Overview,
};

impl Control {
    /// Answers a request that looks, and may look for long; none for any other.
    pub(super) fn observed(&self, request: &Request<Incoming>) -> Result<Option<Answer>, Problem> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(None);
        }
        let answer = match route::control(request.uri().path())? {
            ControlRoute::Tasks(Scope::Session(session)) => observe::tasks(&self.hub, session, request, Wanted::Json)?,
            ControlRoute::Done(scope) => negotiate::only_stream(request, || {
                let notices = self.registry.notices(scope, negotiate::last_event_id(request.headers()));
                Source::Notices(Box::new((notices, self.hub.beats())))
            })?,
            ControlRoute::Mux => {
                let sessions = route::sessions(request.uri().query().unwrap_or_default())?;
                if sessions.is_empty() {
                    negotiate::only_stream(request, || {
                        Source::Overview(Box::new((Overview::new(&self.registry), self.hub.beats())))
                    })?
                } else {
                    observe::mux(&self.hub, &sessions, request)?
                }
            }
            ControlRoute::Metrics => metrics::answer(&self.registry.census(), &self.hub, &self.traffic).into(),
            ControlRoute::Tasks(Scope::Unowned)
            | ControlRoute::Task(..)
            | ControlRoute::Kill(..)
            | ControlRoute::Output(..)
            | ControlRoute::Owner(_)
            | ControlRoute::Terminals(..)
            | ControlRoute::Healthz
            | ControlRoute::Readyz => return Ok(None),
        };
        Ok(Some(answer))
    }
}
