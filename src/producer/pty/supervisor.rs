//! Runs one terminal: types, reads, and sees to its end.
//!
//! Promises:
//! - Output is read whether or not anybody sends, so that no program waits for a reader; for a disk
//!   that is behind with a send's output, it waits as [`TaskHandle::room`] says.
//! - When the terminal's process ends, so does all else that runs in it: SIGHUP, SIGTERM, and
//!   SIGKILL after the grace, to every process of the kernel's session.

use std::{io, pin::Pin, time::Duration};

use bytes::Bytes;
use rustix::process::Signal;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    Record,
    members::Members,
    process::Process,
    sending::{Asked, Interruption, Sending},
    terminal::{Board, Life},
};
use crate::{
    producer::exit::Exit,
    registry::{Owner, StopReason, TaskHandle},
    task::{End, Outcome},
};

/// How often it is looked whether what is left has gone.
const POLL: Duration = Duration::from_millis(50);
/// What nobody could end, after so much longer than the grace, belongs to somebody else.
const GIVE_UP: Duration = Duration::from_secs(5);
/// How much is read between the process's end and the settlement: more than a terminal holds.
const LAST_WORDS: usize = 64 * 1024;

/// Follows one terminal from its opening until its record goes.
pub(super) struct Supervisor {
    pub(super) process: Process,
    pub(super) live: Option<Sending>,
    pub(super) sends: mpsc::Receiver<Sending>,
    pub(super) board: Board,
    pub(super) owner: Owner,
    pub(super) grace: Duration,
    pub(super) record: Record,
}

/// What happened next.
enum Event {
    Exited,
    Close(StopReason),
    Kill,
    Send(Sending),
    /// Somebody wants the live send's task to end; none is an owner that is gone.
    Asked(Option<StopReason>),
    Typed(io::Result<usize>),
    Output(io::Result<Vec<u8>>),
    TimedOut,
    Idle,
}

/// What is known of a terminal whose process runs.
#[derive(Default)]
struct Course {
    /// Why it was asked to close: the first reason counts.
    reason: Option<StopReason>,
    /// When the grace is over.
    kill_at: Option<Instant>,
    /// No process has the terminal open any more.
    silent: bool,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        let owner = self.owner.clone();
        let mut disposed = std::pin::pin!(owner.disposed());
        let mut course = Course::default();
        loop {
            match self.next(disposed.as_mut(), &course).await {
                Event::Exited => break,
                Event::Close(reason) => self.close(&mut course, reason),
                Event::Kill => {
                    self.process.members.signal(Signal::KILL);
                    // Again, should a member have been born while the signal was sent.
                    course.kill_at = Some(Instant::now() + POLL);
                }
                Event::Send(sending) => self.begin(sending),
                Event::Asked(Some(StopReason::Requested(_))) => self.interrupt(),
                // A record that is gone is an owner that is gone.
                Event::Asked(reason) => self.close(&mut course, reason.unwrap_or(StopReason::OwnerDisposed)),
                Event::Typed(Ok(bytes)) => self.live.iter_mut().for_each(|live| live.typed(bytes)),
                Event::Output(Ok(bytes)) => self.put_out(&bytes),
                Event::Typed(Err(_)) | Event::Output(Err(_)) => course.silent = true,
                Event::TimedOut => self.time_out(),
                Event::Idle => self.idle(),
            }
        }
        self.hear_last_words();
        self.report(&course);
        let Self { record, process: Process { members, pty }, sends, board, grace, .. } = self;
        // The kernel hangs up what is left in the terminal when our side closes.
        drop(pty);
        let kill_at = course.kill_at.unwrap_or_else(|| Instant::now() + grace);
        if !end_the_rest(members, course.kill_at.is_some(), kill_at).await {
            tracing::warn!(terminal = %record.id, "something in it could not be ended");
        }
        if course.reason.is_none() {
            record.closed_by_itself();
            keep(record, sends, &board, disposed).await;
        }
    }

    async fn next(&mut self, disposed: Pin<&mut impl Future<Output = ()>>, course: &Course) -> Event {
        let is_open = course.reason.is_none();
        let unsent = self.live.as_ref().map(|live| live.unsent().clone()).filter(|unsent| !unsent.is_empty());
        let give_up_at = self.live.as_ref().map(|live| live.follow().give_up_at());
        let idle_at = self.live.as_ref().and_then(Sending::idle_at);
        let is_free = self.live.is_none();
        let (mut heard, task) = self.live.as_mut().map(Sending::parts).unzip();
        tokio::select! {
            biased;
            () = self.process.members.leader_exited() => Event::Exited,
            reason = why_to_close(&mut self.record.closing), if is_open => Event::Close(reason),
            () = disposed, if is_open => Event::Close(StopReason::OwnerDisposed),
            () = timer(course.kill_at) => Event::Kill,
            Some(sending) = self.sends.recv(), if is_free => Event::Send(sending),
            reason = asked(&mut heard) => Event::Asked(reason),
            () = timer(give_up_at) => Event::TimedOut,
            typed = type_in(&self.process, unsent), if !course.silent => Event::Typed(typed),
            event = output_or_silence(&self.process, task, course.silent, idle_at) => event,
        }
    }

    fn begin(&mut self, sending: Sending) {
        sending.catch_up(&self.board.notes().take_unseen());
        self.live = Some(sending);
    }

    fn put_out(&mut self, bytes: &[u8]) {
        match &mut self.live {
            Some(live) => live.put_out(bytes),
            None => self.board.notes().keep(bytes),
        }
    }

    /// Somebody wants an end of what was sent, not of the terminal.
    fn interrupt(&mut self) {
        if let Some(live) = &mut self.live {
            self.process.interrupt(live.unsent().is_empty());
            live.interrupted(self.grace);
        }
    }

    fn idle(&mut self) {
        let Some(live) = &mut self.live else { return };
        match live.follow().interruption {
            Interruption::None => self.settle(Outcome::new(End::Completed).with_detail("wait: idle")),
            // Silent, and still there: it may be about to heed Ctrl-C.
            Interruption::Asked | Interruption::AskedAgain if !self.process.leader_has_the_terminal() => {
                live.follow_on();
            }
            Interruption::Asked | Interruption::AskedAgain | Interruption::Forced => self.settle_interrupted(),
        }
    }

    fn time_out(&mut self) {
        let Some(live) = &mut self.live else { return };
        match live.follow().interruption {
            Interruption::None => {
                let outcome = match live.unsent().len() {
                    0 => Outcome::new(End::Completed).with_detail("wait: timeout"),
                    left => Outcome::new(End::Failed)
                        .with_detail(format!("wait: timeout ({left} bytes could not be typed: nothing read them)")),
                };
                self.settle(outcome);
            }
            Interruption::Asked => self.interrupt(),
            Interruption::AskedAgain if !self.process.leader_has_the_terminal() => {
                self.process.signal_foreground(Signal::KILL);
                live.forced();
            }
            // The shell whose job was killed goes on: it is its turn.
            Interruption::Forced if live.retried() => self.process.interrupt(true),
            Interruption::AskedAgain | Interruption::Forced => self.settle_interrupted(),
        }
    }

    fn settle_interrupted(&mut self) {
        let forced = self.live.as_ref().is_some_and(|live| live.follow().interruption == Interruption::Forced);
        let what_it_took = if forced { "Ctrl-C, then SIGKILL" } else { "Ctrl-C" };
        self.settle(Outcome::new(End::Killed).with_detail(what_it_took));
    }

    fn settle(&mut self, outcome: Outcome) {
        if let Some(live) = self.live.take() {
            live.settle(outcome);
        }
    }

    fn close(&mut self, course: &mut Course, reason: StopReason) {
        if course.reason.is_none() {
            course.reason = Some(reason);
            self.board.notes().life = Life::Closing;
            self.process.members.hang_up();
            course.kill_at = Some(Instant::now() + self.grace);
        }
    }

    /// What the process wrote before it ended, which may still be in the terminal.
    fn hear_last_words(&mut self) {
        let mut heard = 0;
        while heard < LAST_WORDS
            && let Ok(bytes) = self.process.pty.read_now()
        {
            heard += bytes.len();
            self.put_out(&bytes);
        }
    }

    /// Tells how the process ended; from now on its number may be somebody else's.
    fn report(&mut self, course: &Course) {
        let status = self.process.members.reap_leader();
        let interrupted = self.live.as_ref().is_some_and(|live| live.follow().interruption != Interruption::None);
        let (end, how) = match status {
            Err(error) => (End::Failed, format!("its end could not be read: {error}")),
            Ok(status) if course.reason.is_some() || interrupted => (End::Killed, Exit(status).to_string()),
            Ok(status) if status.success() => (End::Completed, Exit(status).to_string()),
            Ok(status) => (End::Failed, Exit(status).to_string()),
        };
        tracing::info!(terminal = %self.record.id, session = %self.owner.session(), detail = how, "closed");
        let detail = match &course.reason {
            Some(reason @ StopReason::Shutdown) => format!("session exited: {how} ({reason})"),
            Some(StopReason::Requested(_) | StopReason::OwnerDisposed) | None => format!("session exited: {how}"),
        };
        self.board.notes().life = Life::Closed(how);
        self.settle(Outcome::new(end).with_detail(detail));
    }
}

/// Ends what a process left behind in its terminal; whether it could.
async fn end_the_rest(mut members: Members, mut hung_up: bool, mut kill_at: Instant) -> bool {
    let give_up_at = kill_at + GIVE_UP;
    while !members.are_gone() {
        let now = Instant::now();
        if now >= give_up_at {
            return false;
        }
        if !std::mem::replace(&mut hung_up, true) {
            members.hang_up();
        }
        if now >= kill_at {
            members.signal(Signal::KILL);
            kill_at = now + POLL;
        }
        sleep_until(kill_at.min(now + POLL)).await;
    }
    true
}

/// Keeps the record of a terminal whose process ended by itself, until somebody wants it gone. A
/// send that is let in shows what nobody saw.
async fn keep(
    mut record: Record,
    mut sends: mpsc::Receiver<Sending>,
    board: &Board,
    mut disposed: Pin<&mut impl Future<Output = ()>>,
) {
    loop {
        let sending = tokio::select! {
            biased;
            _ = why_to_close(&mut record.closing) => return,
            () = disposed.as_mut() => return,
            Some(sending) = sends.recv() => sending,
        };
        let mut notes = board.notes();
        let (unseen, life) = (notes.take_unseen(), notes.life.clone());
        drop(notes);
        sending.catch_up(&unseen);
        let how = if let Life::Closed(how) = life { how } else { String::new() };
        sending.settle(Outcome::new(End::Failed).with_detail(format!("session exited: {how}")));
    }
}

/// The reason for which a terminal is to close, once there is one.
async fn why_to_close(closing: &mut watch::Receiver<Option<StopReason>>) -> StopReason {
    match closing.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(reason)) => reason.clone(),
        // Nobody can reach the terminal any more.
        Ok(None) | Err(_) => StopReason::OwnerDisposed,
    }
}

/// The next time somebody asks for the live send's end.
async fn asked(heard: &mut Option<&mut Asked>) -> Option<StopReason> {
    match heard {
        Some(heard) => heard.next().await,
        None => std::future::pending().await,
    }
}

/// The next output, once the live send's task can take it, or the end of the wait for it. What has
/// come is not silence, however late it is looked at.
async fn output_or_silence(
    process: &Process,
    task: Option<&TaskHandle>,
    silent: bool,
    idle_at: Option<Instant>,
) -> Event {
    if let Some(task) = task {
        task.room().await;
    }
    tokio::select! {
        biased;
        output = process.pty.read(), if !silent => Event::Output(output),
        () = timer(idle_at) => Event::Idle,
    }
}

/// Types what is to be typed, as far as the terminal takes it.
async fn type_in(process: &Process, unsent: Option<Bytes>) -> io::Result<usize> {
    match unsent {
        Some(unsent) => process.pty.write(&unsent).await,
        None => std::future::pending().await,
    }
}

async fn timer(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
