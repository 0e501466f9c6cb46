//! One request to the control API.

use std::{io, os::unix::fs::MetadataExt, path::PathBuf, pin::Pin};

use http_body_util::{BodyExt, Full};
pub(super) use hyper::Method;
use hyper::{Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use tasklight::{ControlAddress, SecretToken};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use super::args::{ControlArguments, TokenError};

/// Who asks the gateway at one control address.
pub(super) struct Client {
    address: ControlAddress,
    /// None for a Unix socket, which asks for none.
    token: Option<SecretToken>,
}

/// A connection of either sort.
type Connection = Pin<Box<dyn Duplex>>;

trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// Why a request had no good answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no gateway answers at {address}: {source}; start one with `tasklight serve`")]
    Unreachable { address: ControlAddress, source: io::Error },
    #[error("{} belongs to another user; name your gateway's socket with --control", socket.display())]
    Foreign { socket: PathBuf },
    #[error("{address} needs the gateway's token; name its file with --control-token-file")]
    NoToken { address: ControlAddress },
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
    pub(super) fn new(control: &ControlArguments) -> Result<Self, TokenError> {
        let address = control.first();
        let token = match &address {
            ControlAddress::Unix(_) => None,
            ControlAddress::Tcp { .. } => control.token()?,
        };
        Ok(Self { address, token })
    }

    /// Sends a request and returns the body of a good answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<String, ClientError> {
        let garbled = |error: hyper::Error| ClientError::Garbled(error.to_string());
        let mut request = Request::builder().method(method).uri(path);
        match (&self.address, &self.token) {
            (ControlAddress::Unix(_), _) => request = request.header(header::HOST, "localhost"),
            (address @ ControlAddress::Tcp { .. }, Some(token)) => {
                request = request.header(header::HOST, address.to_string());
                request = request.header(header::AUTHORIZATION, token.authorization());
            }
            (address @ ControlAddress::Tcp { .. }, None) => {
                return Err(ClientError::NoToken { address: address.clone() });
            }
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request =
            request.body(Full::<bytes::Bytes>::from(body)).map_err(|error| ClientError::Garbled(error.to_string()))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect().await?)).await.map_err(garbled)?;
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

    async fn connect(&self) -> Result<Connection, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.address.clone(), source };
        match &self.address {
            ControlAddress::Unix(socket) => {
                // In a folder that all can write to, somebody else could wait for commands and
                // variables.
                let owner = std::fs::metadata(socket).map_err(unreachable)?.uid();
                if owner != rustix::process::geteuid().as_raw() && owner != 0 {
                    return Err(ClientError::Foreign { socket: socket.clone() });
                }
                Ok(Box::pin(UnixStream::connect(socket).await.map_err(unreachable)?))
            }
            ControlAddress::Tcp { host, port } => {
                Ok(Box::pin(TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?))
            }
        }
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
