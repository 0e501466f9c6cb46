//! Requests to a control API that may not be there, or go away in the middle of an answer.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::Value;

use crate::support::{PATIENCE, http::request};

/// Asks once. None: nobody answered, or not to the end.
pub(crate) fn ask(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let body = body.map(Value::to_string);
    let headers: &[(&str, &str)] = if body.is_some() { &[("content-type", "application/json")] } else { &[] };
    let mut connection = UnixStream::connect(socket).ok()?;
    connection.set_read_timeout(Some(PATIENCE)).ok()?;
    connection.write_all(&request(method, path, headers, body.as_deref().unwrap_or_default())).ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    // A part of a document is none; an answer without a body is whole.
    let value = if body.is_empty() { Value::Null } else { serde_json::from_str(body).ok()? };
    Some((status, value))
}
