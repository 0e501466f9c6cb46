//! What a stream says: one of four sources, each of which knows what comes first and what comes next.
//!
//! | source | first | then | `id` |
//! |---|---|---|---|
//! | [`TaskList`] | the list, if it is not empty or the client resumes | the list at every change | the server's clock; reset by `[]` |
//! | [`Mux`] | `session/subscribed` for each session | the lists as above, and removals | the server's clock |
//! | [`Overview`] | a baseline of all sessions | changed lists, removals | the server's clock |
//! | [`Notices`] | nothing | each task's end, once | how far the reader has come |
//!
//! A client that sends `Last-Event-ID` to a mux may hold rows: each session is answered, with `[]`
//! too. An overview begins with all there is anyhow. To notices the id says which were received; it
//! stands in the first bytes already, in a block without data, which sets the client's last id and
//! dispatches nothing (WHATWG HTML §9.2.6).

use bytes::BytesMut;

use crate::{
    clock::UnixMillis,
    hub::{Beats, Frame, Mux, MuxNews, News, Subscription},
    id::SessionId,
    mux,
    overview::Overview,
    registry::{Notice, Notices},
    sse::{self, EventId},
    traffic::Open,
};

/// Where a stream's events come from. Only the first is there by the thousand, and it is small; the
/// others are boxed, so that it stays so.
pub(crate) enum Source {
    Tasks(TaskList),
    Mux(Box<Mux>),
    Overview(Box<(Overview, Beats)>),
    Notices(Box<(Notices, Beats)>),
}

/// One session's list.
pub(crate) struct TaskList {
    subscription: Subscription,
    /// The client sent `Last-Event-ID`: it holds rows, so it gets an answer even when it is `[]`.
    resumes: bool,
    /// The newest id sent: ids never go back on one connection.
    last_stamp: UnixMillis,
}

/// What comes next.
pub(crate) enum Said {
    /// A list that all its subscribers share.
    List(Frame),
    /// An event of this stream's own.
    Event(BytesMut),
    /// A sign of life.
    Beat(UnixMillis),
    /// Nothing more will come.
    End,
}

impl Source {
    pub(crate) fn tasks(subscription: Subscription, resumes: bool) -> Self {
        Self::Tasks(TaskList { subscription, resumes, last_stamp: UnixMillis(0) })
    }

    pub(crate) fn kind(&self) -> Open {
        match self {
            Self::Tasks(_) => Open::Tasks,
            Self::Mux(_) => Open::Mux,
            Self::Overview(_) => Open::Overview,
            Self::Notices(_) => Open::Notices,
        }
    }

    /// The sessions whose lists it tells because its reader named them.
    pub(crate) fn sessions(&self) -> Vec<&SessionId> {
        match self {
            Self::Tasks(list) => vec![list.subscription.session()],
            Self::Mux(mux) => mux.sessions().collect(),
            Self::Overview(_) | Self::Notices(_) => Vec::new(),
        }
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> UnixMillis {
        match self {
            Self::Tasks(list) => list.subscription.now(),
            Self::Mux(mux) => mux.now(),
            Self::Overview(source) => source.1.now(),
            Self::Notices(source) => source.1.now(),
        }
    }

    /// What is said at once. `now` is a moment before.
    pub(crate) fn opening(&mut self, now: UnixMillis) -> BytesMut {
        match self {
            Self::Tasks(list) => list.opening(now),
            Self::Mux(mux) => {
                let subscribed = mux.sessions().map(|session| stamped(now, &mux::subscribed(session)));
                subscribed.collect::<Vec<_>>().concat().as_slice().into()
            }
            Self::Overview(source) => stamped(now, &source.0.baseline()),
            Self::Notices(source) => {
                let (notices, _) = &**source;
                let mut opening = comment("notices of", &notices.scope().to_string());
                opening.extend_from_slice(sse::position(&notices.position().to_string()).as_bytes());
                opening
            }
        }
    }

    /// What comes next. Safe to drop: what was not returned is not lost.
    pub(crate) async fn next(&mut self) -> Said {
        match self {
            Self::Tasks(list) => match list.subscription.next().await {
                News::List(frame) => Said::List(list.timely(frame)),
                News::Beat(at) => Said::Beat(at),
            },
            Self::Mux(mux) => {
                let news = mux.next().await;
                mux_said(mux.now(), &news)
            }
            Self::Overview(source) => {
                let (overview, beats) = &mut **source;
                tokio::select! {
                    biased;
                    event = overview.next() => Said::Event(stamped(beats.now(), &event)),
                    at = beats.next() => Said::Beat(at),
                }
            }
            Self::Notices(source) => {
                let (notices, beats) = &mut **source;
                tokio::select! {
                    biased;
                    notice = notices.next() => notice.map_or(Said::End, |notice| notice_said(&notice)),
                    at = beats.next() => Said::Beat(at),
                }
            }
        }
    }

    /// What is left to say at the end of all, one thing after another: whatever was committed by now,
    /// even where no feed has told of it yet.
    pub(crate) fn rest(&mut self) -> Option<Said> {
        match self {
            Self::Tasks(list) => list.subscription.last().map(|frame| Said::List(list.timely(frame))),
            Self::Mux(mux) => mux.last().map(|news| mux_said(mux.now(), &news)),
            Self::Overview(source) => source.0.last().map(|event| Said::Event(stamped(source.1.now(), &event))),
            Self::Notices(source) => source.0.try_next().map(|notice| notice_said(&notice)),
        }
    }

    /// The client left, having taken every byte.
    pub(crate) fn delivered(self) {
        match self {
            Self::Notices(source) => source.0.delivered(),
            Self::Tasks(_) | Self::Mux(_) | Self::Overview(_) => {}
        }
    }
}

impl TaskList {
    fn opening(&mut self, now: UnixMillis) -> BytesMut {
        self.last_stamp = now;
        let mut opening = comment("session", self.subscription.session().as_str());
        let baseline = self.subscription.baseline();
        if !baseline.is_empty() || self.resumes {
            opening.extend_from_slice(&baseline.restamped(now).event());
        }
        opening
    }

    /// The subscription, and the newest id sent.
    pub(super) fn into_parts(self) -> (Subscription, UnixMillis) {
        (self.subscription, self.last_stamp)
    }

    /// What all share as it is, unless this reader would get it late.
    fn timely(&mut self, frame: Frame) -> Frame {
        let now = self.subscription.now();
        let frame = if frame.is_timely(now, self.last_stamp) { frame } else { frame.restamped(now) };
        self.last_stamp = frame.stamp();
        frame
    }
}

fn mux_said(now: UnixMillis, news: &MuxNews) -> Said {
    match news {
        MuxNews::List(session, frame) => Said::Event(stamped(now, &mux::tasks(session, frame.json()))),
        MuxNews::Removed(session) => Said::Event(stamped(now, &mux::removed(session))),
        MuxNews::Beat(at) => Said::Beat(*at),
    }
}

fn notice_said(notice: &Notice) -> Said {
    Said::Event(sse::event(EventId::Opaque(&notice.id.to_string()), &sse::json_line(&notice.task)))
}

fn stamped(now: UnixMillis, data: &[u8]) -> BytesMut {
    sse::event(EventId::Stamp(now), data)
}

fn comment(what: &str, name: &str) -> BytesMut {
    // Some clients end lines at U+2028 and U+2029 too; a name must not forge a field there.
    let name = name.replace(['\u{2028}', '\u{2029}'], "\u{fffd}");
    sse::comment(&format!("{what} {name}")).as_bytes().into()
}
