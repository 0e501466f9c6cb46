//! The gateway's side of `run`: the command shows there as a task.
//!
//! Promise: whatever becomes of the gateway, the command is not held up and no task of somebody
//! else's is touched. Numbers start again with the gateway, so a task is ours by its number and its
//! start, and that is checked on each new connection: a connection is one gateway's.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use serde_json::{Value, json};
use tasklight::{Kind, Label, Scope, SessionId, Status, TaskId, TaskView, clock::UnixMillis, paths::tasks_path};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    super::{
        backoff::Backoff,
        client::{Client, ClientError, Content, Link, Method, parsed},
        events::Events,
    },
    notices::Notices,
    tail::{More, Tail},
};

/// How long the gateway waits for word of us before the task counts as failed.
const LEASE: Duration = Duration::from_secs(30);

/// The longest that the gateway hears nothing: well within the lease, and within the 10 s after
/// which it closes a connection that is idle.
const RENEWAL: Duration = Duration::from_secs(6);

/// Output is gathered for so long before it is sent.
const BATCH: Duration = Duration::from_millis(100);

/// The longest that one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest that the gateway may hold up our exit.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Between attempts to reach the gateway, growing.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// How the command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) status: Status,
    pub(super) detail: Option<String>,
}

pub(super) struct Reporter {
    client: Arc<Client>,
    session: SessionId,
    kind: Kind,
    label: Label,
    tail: Arc<Tail>,
    notices: Notices,
    /// Set once the task was asked to end.
    asked: watch::Sender<bool>,
    ended: watch::Receiver<Option<Ending>>,
    row: Option<Row>,
}

/// Our task.
#[derive(Clone)]
struct Row {
    id: TaskId,
    started_at: UnixMillis,
}

/// Why a connection is given up.
enum Lost {
    /// The task is over there, or never was.
    Row,
    Trouble(ClientError),
}

impl From<ClientError> for Lost {
    fn from(error: ClientError) -> Self {
        let gone = [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN, StatusCode::CONFLICT];
        if matches!(&error, ClientError::Refused { status, .. } if gone.contains(status)) {
            Self::Row
        } else {
            Self::Trouble(error)
        }
    }
}

impl Reporter {
    /// A reporter, and where the command's end is told to it.
    pub(super) fn new(
        client: Client,
        session: SessionId,
        kind: Kind,
        label: Label,
        tail: Arc<Tail>,
        asked: watch::Sender<bool>,
    ) -> (Self, watch::Sender<Option<Ending>>) {
        let (ending, ended) = watch::channel(None);
        let notices = Notices::new(session.clone());
        (Self { client: Arc::new(client), session, kind, label, tail, notices, asked, ended, row: None }, ending)
    }

    /// Reports until the command's end is told, or cannot be in time.
    pub(super) async fn run(mut self) {
        let mut ended = self.ended.clone();
        let late = async {
            told(&mut ended).await;
            sleep(LAST_WORDS).await;
        };
        tokio::select! {
            () = self.report() => {}
            () = late => {}
        }
    }

    async fn report(&mut self) {
        let client = Arc::clone(&self.client);
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            let since = Instant::now();
            match self.attach(&client).await {
                Ok(link) => match self.follow(&client, link).await {
                    Ok(()) => return,
                    Err(Lost::Row) => self.row = None,
                    // The next attempt tells whether it is gone.
                    Err(Lost::Trouble(_)) => {}
                },
                Err(error) => {
                    self.notices.trouble(&error);
                    if self.ended.borrow().is_some() {
                        return;
                    }
                }
            }
            if since.elapsed() > PATIENCE {
                backoff.reset();
            }
            let mut ended = self.ended.clone();
            let is_running = ended.borrow().is_none();
            tokio::select! {
                () = sleep(backoff.next()) => {}
                () = told(&mut ended), if is_running => {}
            }
        }
    }

    /// Connects to the gateway and makes sure that our task is there.
    async fn attach<'a>(&mut self, client: &'a Client) -> Result<Link<'a>, ClientError> {
        let mut link = in_time(client.open()).await?;
        if let Some(row) = self.row.clone() {
            match in_time(link.send(Method::GET, &self.path(&row), Content::None)).await.map_err(Lost::from) {
                Ok(answer) => self.heed(&[parsed(&answer.body)?]),
                Err(Lost::Row) => self.row = None,
                Err(Lost::Trouble(error)) => return Err(error),
            }
        }
        let is_new = self.row.is_none();
        // A task that was asked to end and is gone has ended; it does not come back.
        if is_new && !*self.asked.borrow() {
            let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
            let task = json!({ "kind": self.kind, "label": self.label, "leaseMs": lease });
            let answer = in_time(link.send(Method::POST, &self.tasks(), Content::Json(&task))).await?;
            let task: TaskView = parsed(&answer.body)?;
            self.row = Some(Row { id: task.id, started_at: task.started_at });
            self.tail.send_again();
        }
        if let Some(row) = &self.row {
            self.notices.shown(&row.id, is_new);
        }
        Ok(link)
    }

    /// Reports on the command until its end is told.
    async fn follow(&mut self, client: &Client, mut link: Link<'_>) -> Result<(), Lost> {
        let mut ended = self.ended.clone();
        let has_ended = ended.borrow().is_some();
        if let (Some(row), true) = (&self.row, has_ended) {
            return self.last_words(&mut link, row).await;
        }
        let mut events = in_time(Events::open(client, &self.session)).await?;
        // At once, since nobody knows how much of the lease is left.
        let mut renew_at = Instant::now();
        let mut send_at = Some(Instant::now());
        loop {
            let Some(row) = self.row.clone() else { return if *self.asked.borrow() { Ok(()) } else { Err(Lost::Row) } };
            tokio::select! {
                biased;
                () = told(&mut ended) => return self.last_words(&mut link, &row).await,
                list = events.next() => match list? {
                    Some(list) => self.heed(&list.tasks),
                    None => return Err(Lost::Trouble(ClientError::Ended)),
                },
                () = sleep_until(renew_at) => {
                    self.patch(&mut link, &row, &json!({})).await?;
                    renew_at = Instant::now() + RENEWAL;
                }
                () = at(send_at), if send_at.is_some() => {
                    let more = self.send_output(&mut link, &row, More::Expected).await?;
                    send_at = more.then(Instant::now);
                    renew_at = Instant::now() + RENEWAL;
                }
                () = self.tail.grown(), if send_at.is_none() => send_at = Some(Instant::now() + BATCH),
            }
        }
    }

    /// What a list says of our task.
    fn heed(&mut self, tasks: &[TaskView]) {
        let Some(row) = &self.row else { return };
        let ours = tasks.iter().find(|task| task.id == row.id && task.started_at == row.started_at);
        match ours.map(|task| task.status) {
            Some(Status::Running) => {}
            Some(Status::Stopping) => drop(self.asked.send_replace(true)),
            // Not by a kill, which shows as stopping first: the gateway shut down or was started
            // again, or the lease ran out while this machine slept.
            Some(Status::Completed | Status::Killed | Status::Failed) | None => self.row = None,
        }
    }

    async fn last_words(&self, link: &mut Link<'_>, row: &Row) -> Result<(), Lost> {
        while self.send_output(link, row, More::No).await? {}
        let ending = self.ended.borrow().clone();
        let Some(Ending { status, detail }) = ending else { return Ok(()) };
        // A detail of how it got on would not be about its end.
        self.patch(link, row, &json!({ "status": status, "detail": detail.unwrap_or_default() })).await
    }

    /// Sends some output; whether there is more.
    async fn send_output(&self, link: &mut Link<'_>, row: &Row, more: More) -> Result<bool, Lost> {
        let Some(batch) = self.tail.next(more) else { return Ok(false) };
        let path = format!("{}/output", self.path(row));
        in_time(link.send(Method::POST, &path, Content::Text(&batch.text))).await?;
        self.tail.sent(&batch);
        Ok(self.tail.next(more).is_some())
    }

    async fn patch(&self, link: &mut Link<'_>, row: &Row, report: &Value) -> Result<(), Lost> {
        in_time(link.send(Method::PATCH, &self.path(row), Content::Json(report))).await?;
        Ok(())
    }

    fn tasks(&self) -> String {
        tasks_path(&Scope::Session(self.session.clone()))
    }

    fn path(&self, row: &Row) -> String {
        format!("{}/{}", self.tasks(), row.id)
    }
}

async fn told(ended: &mut watch::Receiver<Option<Ending>>) {
    // A sender that is gone tells nothing any more, which is an end too.
    let _ = ended.wait_for(Option::is_some).await;
}

async fn in_time<T>(request: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    timeout(PATIENCE, request).await.unwrap_or(Err(ClientError::Late))
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
