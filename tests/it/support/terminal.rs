//! A terminal of a gateway, and ways to use it that do not depend on how fast the machine is.

use serde_json::{Value, json};

use super::{Gateway, eventually, http::Answer};

/// bash as it is without anybody's settings.
pub(crate) const BASH: &str = "bash --norc --noprofile";

/// An open terminal.
pub(crate) struct Terminal<'a> {
    gateway: &'a Gateway,
    session: &'a str,
    pub(crate) id: String,
}

/// A task that has ended, and all its output.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) task: Value,
    pub(crate) text: String,
}

impl Sent {
    /// `status` and `detail`.
    pub(crate) fn end(&self) -> (&str, &str) {
        (self.task["status"].as_str().unwrap(), self.task["detail"].as_str().unwrap())
    }
}

impl<'a> Terminal<'a> {
    pub(crate) fn open(gateway: &'a Gateway, session: &'a str, command: &str) -> Self {
        Self::with(gateway, session, json!({ "command": command }))
    }

    pub(crate) fn with(gateway: &'a Gateway, session: &'a str, body: Value) -> Self {
        let answer = gateway.control("POST", &format!("/sessions/{session}/terminals"), Some(body));
        assert_eq!(answer.status, 201, "{answer:?}");
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(answer.header("location"), Some(format!("/sessions/{session}/terminals/{id}").as_str()));
        Self { gateway, session, id }
    }

    /// A request about this terminal.
    pub(crate) fn ask(&self, method: &str, what: &str, body: Option<Value>) -> Answer {
        self.gateway.control(method, &format!("/sessions/{}/terminals/{}{what}", self.session, self.id), body)
    }

    pub(crate) fn view(&self) -> Value {
        self.ask("GET", "", None).json()
    }

    /// Starts a send and returns its task.
    pub(crate) fn start(&self, body: Value) -> Value {
        let answer = self.ask("POST", "/send", Some(body));
        assert_eq!(answer.status, 201, "{answer:?}");
        let task = answer.json();
        let location = format!("/sessions/{}/tasks/{}", self.session, task["id"].as_str().unwrap());
        assert_eq!(answer.header("location"), Some(location.as_str()));
        task
    }

    /// A task of this terminal once it has ended.
    pub(crate) fn ended(&self, task: &Value) -> Sent {
        let id = task["id"].as_str().unwrap();
        let task = self.gateway.ended(self.session, id);
        let output = self.gateway.control("GET", &format!("/sessions/{}/tasks/{id}/output", self.session), None);
        Sent { task, text: output.json()["text"].as_str().unwrap().to_owned() }
    }

    pub(crate) fn send(&self, body: Value) -> Sent {
        self.ended(&self.start(body))
    }

    /// Types a line, and follows the terminal for as long as it takes until it has put out
    /// `answer`. Write the line so that its echo does not have the answer in it.
    pub(crate) fn type_until(&self, line: &str, answer: &str) -> String {
        let wait = json!({ "idleMs": 200, "timeoutMs": 500 });
        let mut text = self.send(json!({ "text": line, "wait": wait })).text;
        eventually(&format!("{answer:?} is put out"), || {
            if !text.contains(answer) {
                text.push_str(&self.send(json!({ "text": "", "enter": false, "wait": wait })).text);
            }
            text.contains(answer).then_some(())
        });
        text
    }

    /// Follows the terminal until it has put out `answer`.
    pub(crate) fn hear(&self, answer: &str) -> String {
        let mut text = String::new();
        eventually(&format!("{answer:?} is put out"), || {
            let sent = self.send(json!({ "text": "", "enter": false, "wait": { "idleMs": 100, "timeoutMs": 500 } }));
            text.push_str(&sent.text);
            text.contains(answer).then_some(())
        });
        text
    }

    pub(crate) fn kill(&self, task: &Value) {
        let path = format!("/sessions/{}/tasks/{}/kill", self.session, task["id"].as_str().unwrap());
        assert_eq!(self.gateway.control("POST", &path, None).status, 202);
    }

    /// Reads a live task's output until it has `part` in it.
    pub(crate) fn read_until(&self, task: &Value, part: &str) {
        let path = format!("/sessions/{}/tasks/{}/output", self.session, task["id"].as_str().unwrap());
        let mut text = String::new();
        eventually(&format!("{part:?} is put out"), || {
            text.push_str(self.gateway.control("GET", &path, None).json()["text"].as_str().unwrap());
            text.contains(part).then_some(())
        });
    }
}
