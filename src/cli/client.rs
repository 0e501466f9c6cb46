//! One request to the control socket.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use http_body_util::{BodyExt, Full};
pub(super) use hyper::Method;
use hyper::{Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::net::UnixStream;

/// Who asks the gateway at one control socket.
pub(super) struct Client {
    socket: PathBuf,
}

/// Why a request had no good answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no gateway answers at {}: {source}; start one with `tasklight serve`", socket.display())]
    Unreachable { socket: PathBuf, source: io::Error },
    #[error("{} belongs to another user; name your gateway's socket with --control", socket.display())]
    Foreign { socket: PathBuf },
    /// What was wrong, in the gateway's words.
    #[error("{0}")]
    Refused(String),
    #[error("the gateway's answer cannot be understood: {0}")]
    Garbled(String),
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    #[serde(default)]
    detail: String,
    field: Option<String>,
}

impl Client {
    pub(super) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Sends a request and returns the body of a good answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<String, ClientError> {
        let garbled = |error: hyper::Error| ClientError::Garbled(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect().await?)).await.map_err(garbled)?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "tasklight");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request =
            request.body(Full::<bytes::Bytes>::from(body)).map_err(|error| ClientError::Garbled(error.to_string()))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(garbled)?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(garbled)?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            if status.is_success() { Ok(body) } else { Err(refused(&body, status)) }
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // The gateway closed the connection, maybe behind its answer.
            _ = connection => exchange.await,
        }
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        let unreachable = |source| ClientError::Unreachable { socket: self.socket.clone(), source };
        // In a folder that all can write to, somebody else could wait for commands and variables.
        let owner = std::fs::metadata(&self.socket).map_err(unreachable)?.uid();
        if owner != rustix::process::geteuid().as_raw() && owner != 0 {
            return Err(ClientError::Foreign { socket: self.socket.clone() });
        }
        UnixStream::connect(&self.socket).await.map_err(unreachable)
    }
}

fn refused(body: &str, status: hyper::StatusCode) -> ClientError {
    match serde_json::from_str::<Problem>(body) {
        Ok(Problem { title, detail, .. }) if detail.is_empty() => ClientError::Refused(title),
        Ok(Problem { detail, field: Some(field), .. }) => ClientError::Refused(format!("{field}: {detail}")),
        Ok(Problem { detail, field: None, .. }) => ClientError::Refused(detail),
        Err(_) => ClientError::Garbled(status.to_string()),
    }
}

/// A good answer's body as a value.
pub(super) fn parsed<T: DeserializeOwned>(body: &str) -> Result<T, ClientError> {
    serde_json::from_str(body).map_err(|error| ClientError::Garbled(error.to_string()))
}
