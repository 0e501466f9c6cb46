//! A path, as what it names. A pure function.
//!
//! A path is split first, and each segment is percent-decoded once (RFC 3986 §2.4): so `%61` is
//! `a`, `%2F` is never a separator, and nothing is decoded twice.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use self::Part::{Session, Task, Terminal, Word};
use super::problem::Problem;
use crate::{
    hub::MAX_SESSIONS,
    id::{InvalidSessionId, Scope, SessionId, TaskId, TerminalId},
};

/// The most segments of a path that means something.
const MAX_SEGMENTS: usize = 5;

/// What a browser may ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObserveRoute {
    /// The gateway's own page.
    Page,
    /// A file of the widget, which may not be there.
    Widget(String),
    Icon,
    Tasks(SessionId),
    Mux,
}

/// What a producer or an agent may ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControlRoute {
    Tasks(Scope),
    Task(Scope, TaskId),
    Kill(Scope, TaskId),
    Output(Scope, TaskId),
    Done(Scope),
    Owner(SessionId),
    Document,
    Mux,
    Metrics,
    Terminals(SessionId, TerminalRoute),
    Healthz,
    Readyz,
}

/// What may be asked of a session's terminals.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TerminalRoute {
    All,
    One(TerminalId),
    Send(TerminalId),
    Resize(TerminalId),
}

/// Reads a path of the browsers' listener.
pub(crate) fn observe(path: &str) -> Result<ObserveRoute, Problem> {
    let segments = Segments::of(path)?;
    let names = segments.decoded.each_ref().map(AsRef::as_ref);
    match names.get(..segments.count).unwrap_or_default() {
        [""] => Ok(ObserveRoute::Page),
        ["widget", file] => Ok(ObserveRoute::Widget((*file).to_owned())),
        ["favicon.ico"] => Ok(ObserveRoute::Icon),
        ["sessions", session, "tasks"] => Ok(ObserveRoute::Tasks(SessionId::new(session)?)),
        ["mux"] => Ok(ObserveRoute::Mux),
        _ => Err(Problem::NoSuchPath),
    }
}

/// One sort of path of the control API. The router is the table of these.
struct Sort {
    template: &'static [Part],
    /// What may be asked there, as an `Allow` header says it.
    methods: &'static str,
    read: fn(&Names<'_>) -> Result<ControlRoute, Problem>,
}

/// What a segment of a path is.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Always this.
    Word(&'static str),
    Session,
    Task,
    Terminal,
}

/// Every path of the control API. `openapi.json` describes each, and a test holds the two together.
const CONTROL: &[Sort] = &[
    sort(&[Word("openapi.json")], "GET, HEAD", |_| Ok(ControlRoute::Document)),
    sort(&[Word("healthz")], "GET", |_| Ok(ControlRoute::Healthz)),
    sort(&[Word("readyz")], "GET", |_| Ok(ControlRoute::Readyz)),
    sort(&[Word("metrics")], "GET, HEAD", |_| Ok(ControlRoute::Metrics)),
    sort(&[Word("mux")], "GET, HEAD", |_| Ok(ControlRoute::Mux)),
    sort(&[Word("done")], "GET, HEAD", done),
    sort(&[Word("tasks")], "GET, HEAD, POST", tasks),
    sort(&[Word("tasks"), Task], "GET, PATCH", task),
    sort(&[Word("tasks"), Task, Word("kill")], "POST", kill),
    sort(&[Word("tasks"), Task, Word("output")], "GET, POST", output),
    sort(&[Word("sessions"), Session], "DELETE", |names| Ok(ControlRoute::Owner(names.session()?))),
    sort(&[Word("sessions"), Session, Word("done")], "GET, HEAD", done),
    sort(&[Word("sessions"), Session, Word("tasks")], "GET, HEAD, POST", tasks),
    sort(&[Word("sessions"), Session, Word("tasks"), Task], "GET, PATCH", task),
    sort(&[Word("sessions"), Session, Word("tasks"), Task, Word("kill")], "POST", kill),
    sort(&[Word("sessions"), Session, Word("tasks"), Task, Word("output")], "GET, POST", output),
    sort(&[Word("sessions"), Session, Word("terminals")], "GET, POST", |names| {
        names.terminals(|_| Ok(TerminalRoute::All))
    }),
    sort(&[Word("sessions"), Session, Word("terminals"), Terminal], "GET, DELETE", |names| {
        names.terminals(|names| Ok(TerminalRoute::One(names.terminal()?)))
    }),
    sort(&[Word("sessions"), Session, Word("terminals"), Terminal, Word("send")], "POST", |names| {
        names.terminals(|names| Ok(TerminalRoute::Send(names.terminal()?)))
    }),
    sort(&[Word("sessions"), Session, Word("terminals"), Terminal, Word("resize")], "POST", |names| {
        names.terminals(|names| Ok(TerminalRoute::Resize(names.terminal()?)))
    }),
];

const fn sort(
    template: &'static [Part],
    methods: &'static str,
    read: fn(&Names<'_>) -> Result<ControlRoute, Problem>,
) -> Sort {
    Sort { template, methods, read }
}

fn done(names: &Names<'_>) -> Result<ControlRoute, Problem> {
    Ok(ControlRoute::Done(names.scope()?))
}

fn tasks(names: &Names<'_>) -> Result<ControlRoute, Problem> {
    Ok(ControlRoute::Tasks(names.scope()?))
}

fn task(names: &Names<'_>) -> Result<ControlRoute, Problem> {
    Ok(ControlRoute::Task(names.scope()?, names.task()?))
}

fn kill(names: &Names<'_>) -> Result<ControlRoute, Problem> {
    Ok(ControlRoute::Kill(names.scope()?, names.task()?))
}

fn output(names: &Names<'_>) -> Result<ControlRoute, Problem> {
    Ok(ControlRoute::Output(names.scope()?, names.task()?))
}

/// Reads a path of the control listener; says too what may be asked there, as an `Allow` header.
pub(crate) fn control(path: &str) -> Result<(ControlRoute, &'static str), Problem> {
    let segments = Segments::of(path)?;
    let found = CONTROL.iter().find_map(|sort| Some((sort, Names::of(sort.template, segments.as_slice())?)));
    let (sort, names) = found.ok_or(Problem::NoSuchPath)?;
    Ok(((sort.read)(&names)?, sort.methods))
}

/// What a path names.
#[derive(Default)]
struct Names<'a> {
    session: Option<&'a str>,
    task: Option<&'a str>,
    terminal: Option<&'a str>,
}

impl<'a> Names<'a> {
    /// None: the path is not of that template.
    fn of(template: &[Part], segments: &'a [Cow<'_, str>]) -> Option<Self> {
        if template.len() != segments.len() {
            return None;
        }
        let mut names = Self::default();
        for (part, segment) in template.iter().zip(segments) {
            match *part {
                Word(word) if word == *segment => {}
                Word(_) => return None,
                Session => names.session = Some(segment),
                Task => names.task = Some(segment),
                Terminal => names.terminal = Some(segment),
            }
        }
        Some(names)
    }

    fn session(&self) -> Result<SessionId, Problem> {
        Ok(SessionId::new(self.session.unwrap_or_default())?)
    }

    fn scope(&self) -> Result<Scope, Problem> {
        if self.session.is_some() { self.session().map(Scope::Session) } else { Ok(Scope::Unowned) }
    }

    fn task(&self) -> Result<TaskId, Problem> {
        let task = self.task.unwrap_or_default();
        task.parse().map_err(|_| Problem::UnknownTask(task.to_owned()))
    }

    fn terminal(&self) -> Result<TerminalId, Problem> {
        let terminal = self.terminal.unwrap_or_default();
        terminal.parse().map_err(|_| Problem::UnknownTerminal(terminal.to_owned()))
    }

    /// The session is read first: what is wrong with it is told before what follows it.
    fn terminals(&self, read: fn(&Self) -> Result<TerminalRoute, Problem>) -> Result<ControlRoute, Problem> {
        Ok(ControlRoute::Terminals(self.session()?, read(self)?))
    }
}

/// The sessions that a query names (`session=a&session=b`), each once, in their order.
pub(crate) fn sessions(query: &str) -> Result<Vec<SessionId>, Problem> {
    let mut sessions = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name != "session" {
            continue;
        }
        // In a form's query a plus sign is a space (WHATWG URL, §5.1).
        let value = value.replace('+', " ");
        let name = percent_decode_str(&value).decode_utf8().map_err(|_| InvalidSessionId::NotUtf8)?;
        let session = SessionId::new(&name)?;
        if sessions.contains(&session) {
            continue;
        }
        if sessions.len() == MAX_SESSIONS {
            return Err(Problem::field("session", format!("at most {MAX_SESSIONS} on one connection")));
        }
        sessions.push(session);
    }
    Ok(sessions)
}

/// The control API's path of a session's terminals; a terminal's own is this, `/` and its id.
#[must_use]
pub fn terminals_path(session: &SessionId) -> String {
    format!("{}/terminals", owner_path(session))
}

/// The control API's path of a scope's tasks; a task's own is this, `/` and its id.
#[must_use]
pub fn tasks_path(scope: &Scope) -> String {
    match scope {
        Scope::Session(session) => format!("{}/tasks", owner_path(session)),
        Scope::Unowned => "/tasks".to_owned(),
    }
}

/// The control API's path of a session.
#[must_use]
pub fn owner_path(session: &SessionId) -> String {
    format!("/sessions/{}", utf8_percent_encode(session.as_str(), SEGMENT))
}

/// All but RFC 3986's unreserved characters (§2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path, segment by segment.
#[derive(Default)]
struct Segments<'a> {
    decoded: [Cow<'a, str>; MAX_SEGMENTS],
    count: usize,
}

impl<'a> Segments<'a> {
    fn of(path: &'a str) -> Result<Self, Problem> {
        let mut rest = path.strip_prefix('/').ok_or(Problem::NoSuchPath)?;
        let mut segments = Self::default();
        let escapes = path.contains('%');
        loop {
            // A byte of that value is that character, wherever it stands in UTF-8.
            let end = rest.bytes().position(|byte| byte == b'/');
            let (segment, more) = rest.split_at(end.unwrap_or(rest.len()));
            let at = segments.count;
            let place = segments.decoded.get_mut(at).ok_or(Problem::NoSuchPath)?;
            *place = if escapes { decoded(segment, at)? } else { segment.into() };
            segments.count += 1;
            match more.strip_prefix('/') {
                Some(more) => rest = more,
                None => return Ok(segments),
            }
        }
    }

    fn as_slice(&self) -> &[Cow<'a, str>] {
        self.decoded.get(..self.count).unwrap_or_default()
    }
}

fn decoded(segment: &str, at: usize) -> Result<Cow<'_, str>, Problem> {
    percent_decode_str(segment).decode_utf8().map_err(|_| match at {
        // Where a session stands, the answer says what a session is.
        1 => InvalidSessionId::NotUtf8.into(),
        _ => Problem::BadPath,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn session(path: &str) -> Result<String, String> {
        match observe(path) {
            Ok(ObserveRoute::Tasks(session)) => Ok(session.to_string()),
            Ok(other) => Err(format!("{other:?}")),
            Err(problem) => Err(format!("{problem:?}")),
        }
    }

    #[test]
    fn each_segment_is_decoded_once() {
        assert_eq!(session("/sessions/%61/tasks").unwrap(), "a");
        assert_eq!(session("/sessions/%2561/tasks").unwrap(), "%61");
        assert_eq!(session("/sessions/a%20b/tasks").unwrap(), "a b");
        assert_eq!(session("/sessions/%E6%9E%84/tasks").unwrap(), "构");
        assert_eq!(session("/sessions/../tasks").unwrap(), "..");
        assert_eq!(session("/sessions/100%/tasks").unwrap(), "100%");
    }

    #[test]
    fn what_is_not_a_session_id_is_told_from_what_is_not_a_path() {
        for bad in ["", "a%2Fb", "%00", "%0A", "%FF", "%C2%85", &"x".repeat(129)] {
            let problem = session(&format!("/sessions/{bad}/tasks")).unwrap_err();
            assert!(problem.starts_with("BadSessionId"), "{bad}: {problem}");
        }
        for bad in [
            "/widget",
            "/widget/a/b",
            "/sessions",
            "/sessions/a",
            "/sessions/a/tasks/",
            "//sessions/a/tasks",
            "/x",
            "*",
            "",
        ] {
            assert_eq!(session(bad).unwrap_err(), "NoSuchPath", "{bad}");
        }
    }

    #[test]
    fn a_query_names_each_session_once_and_decoded_once() {
        let named = |query| sessions(query).map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(named("").unwrap(), [""; 0]);
        assert_eq!(named("heartbeat=event&session=b&session=%61&session=b").unwrap(), ["b", "a"]);
        assert_eq!(
            named("session=a+b&session=a%2Bb&session=%2561&session=%E6%9E%84").unwrap(),
            ["a b", "a+b", "%61", "构"]
        );
        for bad in ["session=", "session", "session=a%2Fb", "session=%FF", "session=%0A", "session=a&session=%C2%85"] {
            assert!(matches!(sessions(bad), Err(Problem::BadSessionId(_))), "{bad}");
        }
        let many = |n| (0..n).map(|n| format!("session=s{n}")).collect::<Vec<_>>().join("&");
        assert_eq!(sessions(&many(64)).unwrap().len(), 64);
        assert!(matches!(sessions(&many(65)), Err(Problem::Field { .. })));
    }

    fn control(path: &str) -> Result<ControlRoute, Problem> {
        super::control(path).map(|(route, _)| route)
    }

    /// As an `OpenAPI` document writes it.
    fn written(part: Part) -> &'static str {
        match part {
            Word(word) => word,
            Session => "{session}",
            Task => "{task}",
            Terminal => "{terminal}",
        }
    }

    #[test]
    fn the_document_describes_each_path_and_method_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let documented: BTreeSet<_> = paths
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone())))
            .collect();
        let routed: BTreeSet<_> = CONTROL
            .iter()
            .flat_map(|sort| {
                let segments: String = sort.template.iter().flat_map(|part| ["/", written(*part)]).collect();
                sort.methods.split(", ").map(move |method| (segments.clone(), method.to_lowercase()))
            })
            .collect();
        assert_eq!(documented, routed);
    }

    #[test]
    fn the_page_and_the_widgets_files_have_one_path_each() {
        assert_eq!(observe("/").unwrap(), ObserveRoute::Page);
        assert_eq!(observe("/favicon.ico").unwrap(), ObserveRoute::Icon);
        assert_eq!(observe("/widget/a.js").unwrap(), ObserveRoute::Widget("a.js".into()));
        assert_eq!(observe("/widget/..%2Fa").unwrap(), ObserveRoute::Widget("../a".into()));
    }

    #[test]
    fn a_path_of_the_control_api_reads_back_as_it_was_written() {
        for name in ["demo", "a b", "构建", "100%", "%61", "."] {
            let scope = Scope::Session(SessionId::new(name).unwrap());
            assert_eq!(control(&tasks_path(&scope)).unwrap(), ControlRoute::Tasks(scope.clone()));
            let id: TaskId = "bash-7".parse().unwrap();
            let path = format!("{}/{id}/kill", tasks_path(&scope));
            assert_eq!(control(&path).unwrap(), ControlRoute::Kill(scope, id));
        }
        assert_eq!(control("/tasks").unwrap(), ControlRoute::Tasks(Scope::Unowned));
        assert!(matches!(control("/tasks/bash-0"), Err(Problem::UnknownTask(_))));
        let demo = SessionId::new("a b").unwrap();
        let send = format!("{}/term-3/send", terminals_path(&demo));
        assert_eq!(
            control(&send).unwrap(),
            ControlRoute::Terminals(demo, TerminalRoute::Send("term-3".parse().unwrap()))
        );
        assert!(matches!(control("/sessions/a/terminals/bash-1"), Err(Problem::UnknownTerminal(_))));
        assert!(matches!(control("/terminals"), Err(Problem::NoSuchPath)));
        assert!(matches!(control("/sessions/a/tasks/bash-1/eat"), Err(Problem::NoSuchPath)));
        assert!(matches!(control("/sessions/a/tasks/bash-1/kill/it"), Err(Problem::NoSuchPath)));
        assert!(matches!(control(&"/%61".repeat(1_000)), Err(Problem::NoSuchPath)));
    }
}
