//! What holds for any input, for those who make inputs up: the property tests below, and libFuzzer
//! (`scripts/fuzz`). There only for these two; no other build has it.
//!
//! Promise: a law says by other means than the code what the code must do, and panics when it is
//! broken. Never here: a case that somebody thought of; those are beside the code.

#![expect(clippy::missing_panics_doc, reason = "a broken law panics: that is what it is for")]

use crate::{
    clock::UnixMillis,
    http::{
        control::started_by,
        problem::Problem,
        route::{self, ControlRoute, ObserveRoute, owner_path, tasks_path},
    },
    id::{InvalidSessionId, Kind, Scope, SessionId, TaskId},
    output::{More, OutputLog},
    sse::{self, EventId},
    task::TaskView,
};

/// A text is a session id exactly when it is allowed; its path reads back as the same session.
pub fn session_id(text: &str) {
    let session = SessionId::new(text);
    assert_eq!(session.is_ok(), may_name_a_session(text.as_bytes()), "{text:?}: {session:?}");
    let Ok(session) = session else { return };
    assert_eq!(session.as_str(), text);
    let owner = owner_path(&session);
    assert_eq!(
        route::control(&owner).map(|(route, _)| route).ok(),
        Some(ControlRoute::Owner(session.clone())),
        "{owner}"
    );
    let path = tasks_path(&Scope::Session(session.clone()));
    assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#'), "{path}");
    assert_eq!(route::observe(&path).ok(), Some(ObserveRoute::Tasks(session.clone())), "{path}");
    assert_eq!(
        route::control(&path).map(|(route, _)| route).ok(),
        Some(ControlRoute::Tasks(Scope::Session(session))),
        "{path}"
    );
}

/// A kind and a task id have one spelling: what can be read is written as it was.
pub fn task_id(text: &str) {
    let is_kind = |text: &str| {
        let letters = text.trim_start_matches(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        letters.is_empty() && text.len() <= 32 && text.starts_with(|c: char| c.is_ascii_lowercase())
    };
    assert_eq!(Kind::new(text).is_ok(), is_kind(text), "{text:?}");
    let is_id = text.rsplit_once('-').is_some_and(|(kind, number)| {
        is_kind(kind) && number.parse::<u64>().is_ok_and(|value| value > 0 && value.to_string() == number)
    });
    let id = text.parse::<TaskId>();
    assert_eq!(id.is_ok(), is_id, "{text:?}: {id:?}");
    if let Ok(id) = id {
        assert_eq!(id.to_string(), text);
    }
}

/// A path is split, then each segment is decoded once; both listeners read it alike.
pub fn path(path: &str) {
    let observed = route::observe(path);
    let controlled = route::control(path).map(|(route, _)| route);
    let segments: Vec<_> = path.strip_prefix('/').into_iter().flat_map(|path| path.split('/')).map(decoded).collect();
    let [before, session, behind] = segments.as_slice() else { return };
    if before != b"sessions" || behind != b"tasks" {
        assert!(!matches!(observed, Ok(ObserveRoute::Tasks(_))), "{path:?}");
        return;
    }
    match (observed, controlled) {
        (Ok(ObserveRoute::Tasks(observed)), Ok(ControlRoute::Tasks(Scope::Session(controlled)))) => {
            assert_eq!((observed.as_str().as_bytes(), &observed), (session.as_slice(), &controlled), "{path:?}");
            assert!(may_name_a_session(session), "{path:?}");
        }
        (Err(Problem::BadSessionId(observed)), Err(Problem::BadSessionId(controlled))) => {
            assert_eq!(observed, controlled, "{path:?}");
            assert!(!may_name_a_session(session), "{path:?}: {observed}");
            assert_eq!(std::str::from_utf8(session).is_err(), observed == InvalidSessionId::NotUtf8, "{path:?}");
        }
        other => panic!("{path:?}: {other:?}"),
    }
}

/// 1 to 128 bytes of UTF-8 without control characters (Unicode's Cc) and `/`.
fn may_name_a_session(bytes: &[u8]) -> bool {
    let is_plain = |c| !matches!(c, '/' | '\0'..='\x1f' | '\x7f'..='\u{9f}');
    (1..=128).contains(&bytes.len()) && std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_plain))
}

/// WHATWG URL, "percent-decode": a percent sign without two hex digits stands for itself.
fn decoded(segment: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        (bytes, rest) = match after {
            [high, low, after @ ..] if *first == b'%' && hex(high).is_some() && hex(low).is_some() => {
                let (high, low) = (hex(high).unwrap_or_default(), hex(low).unwrap_or_default());
                ([bytes, vec![high << 4 | low]].concat(), after)
            }
            after => ([bytes, vec![*first]].concat(), after),
        };
    }
    bytes
}

/// An event as a parser found it: its id, its name and its data.
pub type Found = (Option<String>, Option<String>, Option<String>);

/// A list's frame is exactly one event that holds an equal list, however the bytes are cut up on
/// the way. `parse` is somebody else's parser, which gets the bytes piece by piece.
pub fn frame(tasks: &[TaskView], at: u64, parse: impl Fn(&[&[u8]]) -> Vec<Found>) {
    let json = sse::json_line(&tasks);
    let id = if tasks.is_empty() { EventId::Reset } else { EventId::Stamp(UnixMillis(at)) };
    let frame = sse::event(id, &json);
    let text = std::str::from_utf8(&frame).expect("a frame is UTF-8");
    let breaks =
        |c: &char| matches!(c, '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    assert_eq!(text.chars().find(breaks), None, "{text:?}");
    assert_eq!(text.split('\n').count(), 4, "id, data, and a blank line: {text:?}");

    let expected = (Some(if tasks.is_empty() { String::new() } else { at.to_string() }), None);
    let found = |pieces: &[&[u8]]| {
        let mut events = parse(pieces);
        let Some((id, name, Some(data))) = events.pop() else { panic!("no event: {text:?}") };
        assert!(events.is_empty(), "more than one event: {text:?}");
        assert_eq!((id, name), expected);
        let list: Vec<TaskView> = serde_json::from_str(&data).expect("the data is a list");
        assert_eq!(list, tasks);
    };
    found(&[&frame]);
    found(&frame.chunks(1).collect::<Vec<_>>());
    for at in (0..=frame.len()).step_by(1 + frame.len() / 256) {
        let (head, tail) = frame.split_at(at);
        found(&[head, tail]);
    }

    // RFC 9112 §7.1.
    let chunk = sse::chunk(&frame);
    let size = chunk.iter().take_while(|byte| **byte != b'\r').map(|byte| char::from(*byte)).collect::<String>();
    assert_eq!(usize::from_str_radix(&size, 16), Ok(frame.len()));
    assert_eq!(chunk.get(size.len()..), Some([b"\r\n", &frame[..], b"\r\n"].concat().as_slice()));
}

/// A body that asks for a task is broken exactly when it is not JSON; one that is JSON and not good
/// has a field to blame.
pub fn body(body: &[u8]) {
    let value = serde_json::from_slice::<serde_json::Value>(body);
    match started_by(body) {
        Ok((task, command)) => {
            let value = value.expect("it was read, so it is JSON");
            let said = |field: &str| value.get(field).and_then(serde_json::Value::as_str);
            assert_eq!(said("kind").unwrap_or("bash"), task.kind.as_str());
            assert_eq!(said("command"), command.as_ref().map(|command| command.command.as_str()));
            if let Some(label) = said("label").or(said("command").filter(|command| command.len() <= 4_096)) {
                assert_eq!(label, task.label.as_str());
            }
        }
        Err(Problem::BrokenBody(why)) => assert!(value.is_err(), "{why}: {value:?}"),
        Err(Problem::Field { field, problem }) => {
            assert!(std::str::from_utf8(body).is_ok() && !problem.is_empty());
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
            assert!(is_json, "{field} is blamed for what is not JSON: {problem}");
            if let Ok(value) = value {
                let is_there = value.get(&field).is_some();
                assert!(is_there || !problem.starts_with("unknown field"), "{field:?} is not in it: {problem}");
            }
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// An output log of so many bytes, with something appended or (none) all read that there is, and
/// with a last read at the end.
pub fn output(limit: usize, steps: &[Option<Vec<u8>>]) {
    let is_continuation = |byte: &u8| byte & 0xC0 == 0x80;
    let mut log = OutputLog::new(limit);
    // The model: all that was ever appended, and how much of it was read or told as gone.
    let (mut all, mut seen) = (Vec::new(), 0);
    let mut shown = String::new();
    let mut whole = true;
    for step in steps.iter().map(Option::as_deref).chain([None]).enumerate() {
        let more = if step.0 == steps.len() { More::No } else { More::Expected };
        if let Some(bytes) = step.1 {
            assert_eq!(
                log.overflows(bytes.len()),
                log.kept().map(<[u8]>::len).iter().sum::<usize>() + bytes.len() > limit
            );
            log.append(bytes);
            all.extend_from_slice(bytes);
            let kept = log.kept().concat();
            assert!(kept.len() <= limit && all.ends_with(&kept));
            continue;
        }
        let has_unread = log.has_unread(more);
        let read = log.read(more);
        let from = seen + usize::try_from(read.dropped).expect("it fits");
        let unread = all.get(from..).expect("no more is gone than there was");
        // What is gone did not fit, but for the rest of a character at the cut.
        let fits = all.len().saturating_sub(limit).max(seen);
        assert!((fits..=fits + 3).contains(&from), "{from} of {fits}");
        assert!(
            from == fits || unread.is_empty() || all.get(fits..from).is_some_and(|cut| cut.iter().all(is_continuation))
        );
        let cut_three = || {
            all.get(from.saturating_sub(3)..from).is_some_and(|cut| cut.len() == 3 && cut.iter().all(is_continuation))
        };
        assert!(read.dropped == 0 || !unread.first().is_some_and(is_continuation) || cut_three(), "a character is cut");
        whole &= from == seen;

        // At most half a character is held back, and only while more is expected.
        let held = (0..=3)
            .find(|held| unread.len().checked_sub(*held).is_some_and(|end| lossy(unread.get(..end)) == read.text));
        let held = held.unwrap_or_else(|| panic!("{:?} was read of {unread:?}", read.text));
        assert!(held == 0 || more == More::Expected);
        if let Err(cut) = std::str::from_utf8(unread)
            && cut.error_len().is_none()
            && more == More::Expected
        {
            assert_eq!(held, unread.len() - cut.valid_up_to(), "half a character waits");
        }
        seen = all.len() - held;
        assert_eq!(has_unread, !read.text.is_empty() || read.dropped > 0);
        assert!(!log.has_unread(more) && log.read(more).text.is_empty(), "nothing is read twice");
        shown.push_str(&read.text);
    }
    assert_eq!(seen, all.len());
    if whole {
        assert_eq!(shown, lossy(Some(&all)), "the reads make up the whole");
    }
}

fn lossy(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use futures_util::{Stream, stream};
    use hyper::{HeaderMap, header};
    use proptest::{collection::vec, prelude::*, sample::select};
    use serde_json::json;
    use sse_stream::SseByteStream;

    use super::*;
    use crate::http::negotiate::{Wanted, wanted};

    /// What a parser of another project finds in the pieces.
    fn parse(pieces: &[&[u8]]) -> Vec<Found> {
        let pieces = pieces.iter().map(|piece| Ok::<_, std::io::Error>(*piece));
        let mut events = pin!(SseByteStream::new(stream::iter(pieces)));
        let mut found = Vec::new();
        while let Poll::Ready(Some(event)) = events.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
            let event = event.expect("the bytes are an event stream");
            found.push((event.id, event.event, event.data));
        }
        found
    }

    /// Text with more of what is hard than chance would give it.
    fn text() -> impl Strategy<Value = String> {
        let hard = "\r\n\0\u{85}\u{2028}\u{2029}\u{feff}\\\"/%: <&🦀é\u{7f}\u{b}";
        let hard = select(hard.chars().collect::<Vec<_>>());
        vec(prop_oneof![hard, any::<char>(), prop::char::range(' ', '~')], 0..40).prop_map(String::from_iter)
    }

    fn task() -> impl Strategy<Value = TaskView> {
        let id =
            ("[a-z][a-z0-9-]{0,31}", 1_u64..).prop_map(|(kind, number)| (kind.clone(), format!("{kind}-{number}")));
        let label = text().prop_filter("a label is not blank", |label| !label.trim().is_empty());
        let status = select(vec!["running", "stopping", "completed", "killed", "failed"]);
        (id, label, status, prop::option::of(text()), any::<u64>(), any::<u64>()).prop_map(
            |((kind, id), label, status, detail, started, finished)| {
                let mut task = json!({"id": id, "kind": kind, "label": label, "status": status, "startedAt": started});
                if let Some(detail) = detail {
                    task["detail"] = json!(detail);
                }
                if !matches!(status, "running" | "stopping") {
                    task["finishedAt"] = json!(finished);
                }
                serde_json::from_value(task).unwrap()
            },
        )
    }

    /// A text of JSON that is nearly a start, whatever it is.
    fn nearly_a_start() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            any::<f64>().prop_map(|n| n.to_string()),
            Just("1e999".into()),
            any::<u64>().prop_map(|n| n.to_string())
        ];
        let string = prop_oneof![text().prop_map(|text| json!(text).to_string()), Just(r#""\ud800""#.into())];
        let value = prop_oneof![
            string,
            number,
            select(vec!["null", "true", "[]", "{}", r#"{"A":"b"}"#, "", "{"]).prop_map(str::to_owned)
        ];
        let known = select(vec!["command", "kind", "cwd", "env", "label", "leaseMs"]).prop_map(str::to_owned);
        let field =
            (prop_oneof![4 => known, 1 => text()], value).prop_map(|(name, value)| format!("{}:{value}", json!(name)));
        (vec(field, 0..4), select(vec!["}", "}", "}", "", "} x", ",}"]))
            .prop_map(|(fields, end)| format!("{{{}{end}", fields.join(",")))
    }

    proptest! {
        // What was found becomes a case beside the code, which says more than a seed.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_session_id_exactly_when_it_is_allowed(text in text(), length in 120_usize..136) {
            session_id(&text);
            session_id(&text.repeat(8));
            session_id(&"x".repeat(length));
        }

        #[test]
        fn any_text_is_a_task_id_in_one_spelling_or_none(
            text in text(),
            near in "[a-zA-Z0-9-]{0,34}(-[+0-9]{0,21})?",
        ) {
            task_id(&text);
            task_id(&near);
        }

        #[test]
        fn any_path_is_split_and_then_decoded_once(
            text in text(),
            near in "(/(sessions|sess%69ons|tasks|%74asks|%(2[0-9fF5]|[0-9a-fA-F]{2}|[c-f][0-9]%[89ab][0-9])|[a%/2]){0,4}){0,5}",
            session in "(%[0-9a-fA-F]{2}|%[c-d][0-9]%[89ab][0-9]|[%a2fF5]|[!-.0-~]){0,50}",
        ) {
            path(&text);
            path(&near);
            path(&format!("/sessions/{session}/tasks"));
        }

        #[test]
        fn any_list_is_one_event_for_another_projects_parser(tasks in vec(task(), 0..5), at in any::<u64>()) {
            frame(&tasks, at, parse);
        }

        #[test]
        fn any_body_is_a_start_or_broken_or_has_a_field_to_blame(
            bytes in vec(any::<u8>(), 0..64),
            near in nearly_a_start(),
        ) {
            body(&bytes);
            body(near.as_bytes());
        }

        #[test]
        fn any_start_reads_back_as_it_was_meant(
            command in text().prop_map(|text| text.replace('\0', "0")),
            env in prop::collection::btree_map("[^=\0]{1,8}", "[^\0]{0,8}", 0..4),
            cwd in prop::option::of("/[^\0]{0,20}"),
            label in prop::option::of(text()),
            lease in prop::option::of(1_000_u64..=86_400_000),
        ) {
            let is_blank = |text: &String| text.trim().is_empty();
            prop_assume!(!is_blank(&command) && !label.as_ref().is_some_and(is_blank));
            let mut start = json!({"command": command, "env": env});
            if let Some(cwd) = &cwd {
                start["cwd"] = json!(cwd);
            }
            if let Some(label) = &label {
                start["label"] = json!(label);
            }
            let (task, read) = started_by(start.to_string().as_bytes()).unwrap();
            let read = read.unwrap();
            prop_assert_eq!((task.kind.as_str(), task.label.as_str()), ("bash", label.as_ref().unwrap_or(&command).as_str()));
            let meant: (_, BTreeMap<String, String>, _) = (command.clone(), env, cwd.map(Into::into));
            prop_assert_eq!((read.command, read.env, read.cwd), meant);

            let label = label.unwrap_or(command);
            let mut elsewhere = json!({"kind": "subagent", "label": label});
            if let Some(lease) = lease {
                elsewhere["leaseMs"] = json!(lease);
            }
            let (task, read) = started_by(elsewhere.to_string().as_bytes()).unwrap();
            prop_assert_eq!((task.kind.as_str(), task.label.as_str(), read), ("subagent", label.as_str(), None));
        }

        #[test]
        fn any_output_is_kept_and_read_as_the_model_says(
            limit in prop_oneof![0_usize..12, 0_usize..200],
            steps in vec(prop::option::weighted(0.7, prop_oneof![
                vec(any::<u8>(), 0..20),
                vec(select(b"a\x80\xBF\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x80\xED\xA0\xFF".to_vec()), 0..9),
                text().prop_map(String::into_bytes),
                (text(), any::<prop::sample::Index>()).prop_map(|(text, at)| text.as_bytes()[..at.index(text.len() + 1)].to_vec()),
            ]), 0..30),
        ) {
            output(limit, &steps);
        }

        /// RFC 9110 §12.5.1: the most specific range says a type's weight; none is 0.
        #[test]
        fn any_accept_header_gets_what_it_weighs_most(
            ranges in prop::sample::subsequence(
                vec!["text/event-stream", "text/*", "application/json", "application/*", "*/*", "image/png", "text/html"], 0..7,
            ).prop_shuffle(),
            weights in vec(prop::option::of(0_u32..=1_000), 7),
            noise in vec(any::<u8>(), 0..40),
        ) {
            let weight = |names: [&str; 3]| {
                let at = names.iter().find_map(|name| ranges.iter().position(|range| range == name));
                at.map_or(0, |at| weights[at].unwrap_or(1_000))
            };
            let stream = weight(["text/event-stream", "text/*", "*/*"]);
            let json = weight(["application/json", "application/*", "*/*"]);
            let expected = match (stream, json) {
                (0, 0) => None,
                (stream, json) if json > stream => Some(Wanted::Json),
                _ => Some(Wanted::Stream),
            };
            let written = ranges.iter().zip(&weights).map(|(range, weight)| match weight {
                None => (*range).to_owned(),
                Some(weight) => format!("{range};q={}.{:03}", weight / 1_000, weight % 1_000),
            });
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, written.collect::<Vec<_>>().join(", ").parse().unwrap());
            prop_assert_eq!(wanted(&headers, Wanted::Stream).ok(), expected, "{:?}", headers);

            // Whatever it is, there is an answer.
            if let Ok(noise) = header::HeaderValue::from_bytes(&noise) {
                headers.insert(header::ACCEPT, noise);
                let _ = wanted(&headers, Wanted::Stream);
            }
        }
    }
}
