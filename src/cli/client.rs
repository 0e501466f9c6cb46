//! Requests to the control API.

use std::{io, os::unix::fs::MetadataExt, path::PathBuf, pin::Pin};

use http_body_util::{BodyExt, Full};
pub(super) use hyper::Method;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tasklight::{ControlAddress, SecretToken};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::task::AbortOnDropHandle;

use super::args::{ControlArguments, TokenError};

/// Who asks the gateway at one control address.
pub(super) struct Client {
    address: ControlAddress,
    /// None for a Unix socket, which asks for none.
    token: Option<SecretToken>,
}

/// A connection that is open.
pub(super) struct Link<'a> {
    client: &'a Client,
    sender: http1::SendRequest<Full<Bytes>>,
    driver: AbortOnDropHandle<()>,
}

/// What a request carries.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    None,
    Json(&'a Value),
    Text(&'a str),
}

/// A good answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
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
    #[error("{words}")]
    Refused { status: StatusCode, words: String },
    #[error("the gateway does not answer")]
    Late,
    #[error("the gateway is gone")]
    Ended,
    #[error("the gateway's answer cannot be understood: {0}")]
    Garbled(String),
}

impl ClientError {
    /// Whether asking again later would not help.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Foreign { .. } | Self::NoToken { .. } => true,
            Self::Refused { status, .. } => status.is_client_error(),
            Self::Unreachable { .. } | Self::Late | Self::Ended | Self::Garbled(_) => false,
        }
    }
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

    /// Sends one request on a connection of its own.
    pub(super) async fn send(&self, method: Method, path: &str, body: Content<'_>) -> Result<Answer, ClientError> {
        self.open().await?.send(method, path, body).await
    }

    /// Opens a connection for several requests, one after another. All of them reach the same
    /// gateway: one that was started again answers on a new connection only.
    pub(super) async fn open(&self) -> Result<Link<'_>, ClientError> {
        if let (address @ ControlAddress::Tcp { .. }, None) = (&self.address, &self.token) {
            return Err(ClientError::NoToken { address: address.clone() });
        }
        let (sender, connection) = http1::handshake(TokioIo::new(self.connect().await?)).await.map_err(garbled)?;
        // Its end shows in the answers.
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        Ok(Link { client: self, sender, driver })
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

impl Link<'_> {
    /// Sends a request and awaits its answer.
    pub(super) async fn send(&mut self, method: Method, path: &str, body: Content<'_>) -> Result<Answer, ClientError> {
        let mut request = self.request(method, path);
        if let Some(content_type) = body.content_type() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let answer = self.answer(request, body.into()).await?;
        let status = answer.status();
        Ok(Answer { status, body: whole(answer).await? })
    }

    /// Asks for a stream, which is the last thing on its connection, as one who had it before: so
    /// there is an answer even where there is nothing.
    pub(super) async fn resume(mut self, path: &str) -> Result<Stream, ClientError> {
        let request = self.request(Method::GET, path);
        let request = request.header(header::ACCEPT, "text/event-stream").header("last-event-id", "0");
        let answer = self.answer(request, Full::default()).await?;
        Ok(Stream { body: answer.into_body(), _sender: self.sender, _driver: self.driver })
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder().method(method).uri(path);
        match (&self.client.address, &self.client.token) {
            (ControlAddress::Unix(_), _) | (_, None) => request.header(header::HOST, "localhost"),
            (address @ ControlAddress::Tcp { .. }, Some(token)) => {
                request.header(header::HOST, address.to_string()).header(header::AUTHORIZATION, token.authorization())
            }
        }
    }

    async fn answer(
        &mut self,
        request: hyper::http::request::Builder,
        body: Full<Bytes>,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = request.body(body).map_err(|error| ClientError::Garbled(error.to_string()))?;
        self.sender.ready().await.map_err(garbled)?;
        let answer = self.sender.send_request(request).await.map_err(garbled)?;
        let status = answer.status();
        if status.is_success() { Ok(answer) } else { Err(refused(&whole(answer).await?, status)) }
    }
}

/// A stream's bytes, as they come.
pub(super) struct Stream {
    body: Incoming,
    _sender: http1::SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl Stream {
    /// The next bytes; none at the end. Safe to drop: what was not returned was not taken.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(bytes) = frame.map_err(garbled)?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Content<'_> {
    fn content_type(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Json(_) => Some("application/json"),
            Self::Text(_) => Some("text/plain; charset=utf-8"),
        }
    }
}

impl From<Content<'_>> for Full<Bytes> {
    fn from(content: Content<'_>) -> Self {
        match content {
            Content::None => Self::default(),
            Content::Json(value) => Self::from(value.to_string()),
            Content::Text(text) => Self::from(text.to_owned()),
        }
    }
}

async fn whole(answer: Response<Incoming>) -> Result<String, ClientError> {
    let body = answer.into_body().collect().await.map_err(garbled)?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err passes it")]
fn garbled(error: hyper::Error) -> ClientError {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    ClientError::Garbled(format!("{error}{}", cause.unwrap_or_default()))
}

fn refused(body: &str, status: StatusCode) -> ClientError {
    let words = match serde_json::from_str::<Problem>(body) {
        Ok(Problem { title, detail, .. }) if detail.is_empty() => title,
        Ok(Problem { detail, field: Some(field), .. }) => format!("{field}: {detail}"),
        Ok(Problem { detail, field: None, .. }) => detail,
        Err(_) => return ClientError::Garbled(status.to_string()),
    };
    ClientError::Refused { status, words }
}

/// A good answer's body as a value.
pub(super) fn parsed<T: DeserializeOwned>(body: &str) -> Result<T, ClientError> {
    serde_json::from_str(body).map_err(|error| ClientError::Garbled(error.to_string()))
}
