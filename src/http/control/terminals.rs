//! The routes of terminals: open, look, send, resize, close.

use std::{collections::BTreeMap, path::PathBuf};

use hyper::{Method, Request, StatusCode, body::Incoming};
use serde::Deserialize;

use super::{
    Control, DISPOSAL_MARGIN, as_json, created,
    tasks::{check_command, check_variables},
};
use crate::{
    http::{
        Whole, body, empty,
        problem::Problem,
        route::{TerminalRoute, tasks_path, terminals_path},
    },
    id::{Scope, SessionId, TerminalId},
    producer::pty::{Extent, Input, Opening, Size, Wait},
};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    command: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    rows: Option<Extent>,
    cols: Option<Extent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    text: String,
    enter: Option<bool>,
    #[serde(default)]
    wait: Wait,
}

impl Control {
    pub(super) async fn terminals_route(
        &self,
        session: &SessionId,
        route: TerminalRoute,
        allow: &'static str,
        request: &mut Request<Incoming>,
    ) -> Result<Whole, Problem> {
        match (route, request.method()) {
            (TerminalRoute::All, &Method::GET) => Ok(as_json(StatusCode::OK, &self.terminals.list(session))),
            (TerminalRoute::All, &Method::POST) => self.open_terminal(session, request).await,
            (TerminalRoute::One(id), &Method::GET) => Ok(as_json(StatusCode::OK, &self.terminals.get(session, id)?)),
            (TerminalRoute::One(id), &Method::DELETE) => self.close_terminal(session, id).await,
            (TerminalRoute::Send(id), &Method::POST) => self.send(session, id, request).await,
            (TerminalRoute::Resize(id), &Method::POST) => {
                let size: Size = body::json(request, self.request_timeout).await?;
                Ok(as_json(StatusCode::OK, &self.terminals.resize(session, id, size)?))
            }
            (_, _) => Err(Problem::MethodNotAllowed { allow }),
        }
    }

    async fn open_terminal(&self, session: &SessionId, request: &mut Request<Incoming>) -> Result<Whole, Problem> {
        let open: Open = body::json_or_default(request, self.request_timeout).await?;
        let terminal = self.terminals.open(session, &open.checked()?)?;
        Ok(created(&format!("{}/{}", terminals_path(session), terminal.id), &terminal))
    }

    /// 204 when nothing is left of it; 202 where that takes longer than it should, since something
    /// in it is another user's.
    async fn close_terminal(&self, session: &SessionId, id: TerminalId) -> Result<Whole, Problem> {
        let closed = self.terminals.close(session, id);
        match tokio::time::timeout(self.grace + DISPOSAL_MARGIN, closed).await {
            Ok(closed) => closed.map(|()| empty(StatusCode::NO_CONTENT)).map_err(Problem::from),
            Err(_) => Ok(as_json(StatusCode::ACCEPTED, &self.terminals.get(session, id)?)),
        }
    }

    async fn send(
        &self,
        session: &SessionId,
        id: TerminalId,
        request: &mut Request<Incoming>,
    ) -> Result<Whole, Problem> {
        let Send { text, enter, wait } = body::json(request, self.request_timeout).await?;
        let input = Input { text, enter: enter.unwrap_or(true) };
        let task = self.terminals.send(session, id, &input, wait)?;
        Ok(created(&format!("{}/{}", tasks_path(&Scope::Session(session.clone())), task.id), &task))
    }
}

impl Open {
    /// What was asked for, if all of it makes sense.
    fn checked(self) -> Result<Opening, Problem> {
        let Self { command, cwd, env, rows, cols } = self;
        if let Some(command) = &command {
            check_command(command)?;
        }
        check_variables(&env)?;
        let Size { rows: usual_rows, cols: usual_cols } = Size::DEFAULT;
        let size = Size { rows: rows.unwrap_or(usual_rows), cols: cols.unwrap_or(usual_cols) };
        Ok(Opening { command, cwd, env, size })
    }
}
