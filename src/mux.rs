//! What a stream of many sessions says, as JSON: one object a frame.
//!
//! Never here: who says it when (see `hub::mux` and `overview`).

use bytes::Bytes;

use crate::{id::SessionId, sse::json_line};

/// The session is watched from here on.
pub(crate) fn subscribed(session: &SessionId) -> Vec<u8> {
    about("session/subscribed", session, &[])
}

/// The session's list, as JSON, in place of the one before.
pub(crate) fn tasks(session: &SessionId, list: &[u8]) -> Vec<u8> {
    about("session/tasks", session, &[b",\"tasks\":", list])
}

/// The session was disposed.
pub(crate) fn removed(session: &SessionId) -> Vec<u8> {
    about("host/session-removed", session, &[])
}

/// Every open session with its list as JSON, in place of all that was said before.
pub(crate) fn baseline(sessions: impl Iterator<Item = (SessionId, Bytes)>) -> Vec<u8> {
    let mut json = br#"{"type":"baseline","sessions":{"#.to_vec();
    for (at, (session, list)) in sessions.enumerate() {
        if at > 0 {
            json.push(b',');
        }
        json.extend_from_slice(&json_line(&session));
        json.push(b':');
        json.extend_from_slice(&list);
    }
    json.extend_from_slice(b"}}");
    json
}

fn about(kind: &str, session: &SessionId, rest: &[&[u8]]) -> Vec<u8> {
    let mut json = format!(r#"{{"type":"{kind}","sessionId":"#).into_bytes();
    json.extend_from_slice(&json_line(session));
    for part in rest {
        json.extend_from_slice(part);
    }
    json.push(b'}');
    json
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(json: &[u8]) -> Value {
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn frames_are_the_contracts_objects_whatever_a_session_is_called() {
        for name in ["a", "a\"b\\", "构建", "\u{2028}"] {
            let session = SessionId::new(name).unwrap();
            assert_eq!(parsed(&subscribed(&session)), json!({"type": "session/subscribed", "sessionId": name}));
            assert_eq!(
                parsed(&tasks(&session, b"[{}]")),
                json!({"type": "session/tasks", "sessionId": name, "tasks": [{}]})
            );
            assert_eq!(parsed(&removed(&session)), json!({"type": "host/session-removed", "sessionId": name}));
            let sessions = [(session, Bytes::from_static(b"[]")), (SessionId::new("b").unwrap(), "[1]".into())];
            assert_eq!(
                parsed(&baseline(sessions.into_iter())),
                json!({"type": "baseline", "sessions": {name: [], "b": [1]}})
            );
        }
        assert_eq!(parsed(&baseline(std::iter::empty())), json!({"type": "baseline", "sessions": {}}));
    }
}
