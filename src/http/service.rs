//! The two sides as hyper services, for a server that is not ours.
//!
//! Promise: they answer as the gateway does, path by path. Never here: connections and their
//! limits, TLS, and the names a server goes by. Those are the matter of the server around them.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{self, Frame, Incoming, SizeHint},
    service::Service,
};

use super::{Whole, control::Control, gate::Gate, handoff::Answer, observe::Observe, stream_body::StreamBody};
use crate::{shutdown::Shutdown, token::SecretToken, traffic::Traffic};

/// What browsers may ask for: it can look and nothing else. Clones are the same service.
///
/// It answers `/sessions/{session}/tasks` and `/mux`, and has the page at `/` and the widget below
/// `/widget/`; a server that has it below another path takes
/// that off first. It does not check the `Host` header: a server on a loopback address should, or any page
/// can have its own name lead there and read the lists (DNS rebinding).
///
/// A stream is a body that lasts until [`Mounted`](crate::Mounted) is shut down or dropped, so a
/// graceful shutdown of the server around it waits for that.
#[derive(Debug, Clone)]
pub struct ObserveService {
    observe: Arc<Observe>,
    traffic: Arc<Traffic>,
    shutdown: Shutdown,
}

impl ObserveService {
    pub(crate) fn new(observe: Arc<Observe>, traffic: Arc<Traffic>, shutdown: Shutdown) -> Self {
        Self { observe, traffic, shutdown }
    }

    /// Answers one request; its body means nothing.
    pub fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        response(self.observe.answer(request, None), &self.traffic, &self.shutdown)
    }
}

impl<B> Service<Request<B>> for ObserveService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(&request)))
    }
}

/// What producers and agents may ask for, which includes running commands. Clones are the same
/// service.
///
/// It refuses what a page sent, and asks for the token if [`Settings`](crate::config::Settings) has
/// one. Without a token, mount it only where nobody else can connect.
///
/// Its streams are bodies like those of [`ObserveService`]. The gateway's own sockets tell whether a
/// reader of ended tasks took every notice before it left; a body cannot, so a reader that comes back
/// without the last id that it holds may be told of an end again.
#[derive(Debug, Clone)]
pub struct ControlService {
    control: Arc<Control>,
    gate: Arc<Gate>,
}

impl ControlService {
    pub(crate) fn new(control: Arc<Control>, token: Option<SecretToken>) -> Self {
        Self { control, gate: Arc::new(Gate::of_service(token)) }
    }

    /// Answers one request.
    pub async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let answer = match self.gate.admit(&request, None).await {
            Ok(()) => self.control.answer(&mut request).await,
            Err(problem) => Whole::from(problem).into(),
        };
        response(answer, &self.control.traffic, &self.control.shutdown)
    }
}

impl Service<Request<Incoming>> for ControlService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

fn response(answer: Answer, traffic: &Arc<Traffic>, shutdown: &Shutdown) -> Response<Body> {
    match answer {
        Answer::Whole(answer) => answer.map(Body::whole),
        Answer::Stream(mut plan) => {
            let headers = std::mem::take(&mut plan.headers);
            let body = StreamBody::new(plan, traffic, shutdown.clone());
            let mut answer = Response::new(Body(Inner::Stream(body)));
            *answer.headers_mut() = headers;
            answer
        }
    }
}

/// The body of an answer: whole, or a stream that goes on.
#[derive(Debug)]
pub struct Body(Inner);

#[derive(Debug)]
enum Inner {
    Whole(Full<Bytes>),
    Stream(StreamBody),
}

impl Body {
    fn whole(body: Full<Bytes>) -> Self {
        Self(Inner::Whole(body))
    }
}

impl body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Whole(body) => Pin::new(body).poll_frame(cx),
            Inner::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(body) => body.is_end_stream(),
            Inner::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(body) => body.size_hint(),
            Inner::Stream(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::*;
    use crate::http::admission::Admission;
    use crate::{
        hub::Hub,
        id::{Kind, Scope},
        producer::in_process,
        registry::{NewTask, Registry},
        shutdown::{self, Phase},
        task::Label,
    };

    fn hold(registry: &Registry) -> in_process::HeldTask {
        let task = NewTask { kind: Kind::bash(), label: Label::new("make").unwrap() };
        in_process::held(registry, &Scope::Unowned, task).unwrap()
    }

    fn stream(service: &ObserveService) -> Body {
        let request = Request::get("/sessions/demo/tasks").body(()).unwrap();
        let answer = service.answer(&request);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert!(!answer.headers().contains_key("connection"), "HTTP/2 has none");
        answer.into_body()
    }

    async fn text(body: &mut Body) -> String {
        let frame = body.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    }

    fn of(registry: &Registry) -> (Arc<Hub>, crate::shutdown::ShutdownTrigger, ObserveService) {
        let hub = Arc::new(Hub::new(Some(registry.observer()), registry.clock(), Duration::from_secs(15)));
        let (trigger, shutdown) = shutdown::channel();
        let observe =
            Arc::new(Observe { hub: Arc::clone(&hub), allow_origins: Vec::new(), admission: Admission::default() });
        (hub, trigger, ObserveService::new(observe, Arc::default(), shutdown))
    }

    #[tokio::test]
    async fn a_body_shows_what_a_stream_shows_and_a_slow_reader_skips_what_it_missed() {
        let registry = Registry::default();
        let (_hub, trigger, service) = of(&registry);
        let mut body = stream(&service);
        let head = text(&mut body).await;
        assert!(head.starts_with("retry: ") && head.ends_with("\n: session demo\n\n"), "{head}");
        for _ in 0..50 {
            drop(hold(&registry));
        }
        let _live = hold(&registry);
        let newest = text(&mut body).await;
        assert!(newest.starts_with("id: ") && newest.ends_with("}]\n\n"), "{newest}");
        assert!(newest.contains("bash-51"), "{newest}");
        drop(hold(&registry));
        trigger.enter(Phase::Ending);
        assert!(text(&mut body).await.contains("bash-52"), "what came before the end is told before it");
        assert!(body.frame().await.is_none());
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn a_body_that_is_dropped_unsubscribes_and_a_head_never_subscribes() {
        let registry = Registry::default();
        let (hub, _trigger, service) = of(&registry);
        let mut body = stream(&service);
        text(&mut body).await;
        assert_eq!(hub.watched(), 1);
        drop(body);
        assert_eq!(hub.watched(), 0);
        let answer = service.answer(&Request::head("/sessions/demo/tasks").body(()).unwrap());
        assert!(answer.body().is_end_stream());
        assert_eq!(hub.watched(), 0);
    }
}
