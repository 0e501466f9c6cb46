//! One connection, for as long as hyper has it.
//!
//! Promises:
//! - A peer that takes longer than its time to send the head of a request, the first or the next, is dropped.
//! - At the gateway's end the request that is being answered is, and none after it.
//! - A request sets no timer: one is set once in a while for all that come meanwhile.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use tokio::{
    task::coop::unconstrained,
    time::{Instant, Sleep, sleep},
};

use crate::{
    http::{
        handoff::{Answer, Course, Handoff},
        socket::Socket,
        stream::StreamPlan,
    },
    shutdown::{Phase, Shutdown},
    traffic::Traffic,
};

/// Why a connection ended before its peer had all it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("its socket cannot be waited for")]
    Socket(#[from] io::Error),
    #[error("no whole request came in time")]
    Silent,
}

/// One of the two sides of the gateway, as one connection sees it.
pub(super) trait Side: Send + Sync + 'static {
    fn traffic(&self) -> &Arc<Traffic>;
    fn answer(&self, request: &mut Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Requests and answers by hyper, until one asks for a stream, which is returned; none when the
/// connection ended. `patience` is how long the head of a request may take.
pub(super) async fn connection<S: Socket>(
    http: http1::Builder,
    socket: S,
    patience: Duration,
    side: &impl Side,
    shutdown: Shutdown,
) -> Result<Option<(S, StreamPlan)>, Cut> {
    let handoff = Handoff::new();
    let service = service_fn(|mut request| {
        let handoff = &handoff;
        async move {
            handoff.asked();
            match side.answer(&mut request).await {
                Answer::Whole(answer) => {
                    handoff.answered();
                    Ok::<_, Infallible>(answer)
                }
                Answer::Stream(plan) => {
                    handoff.offer(plan);
                    // hyper goes before this answer would be due.
                    std::future::pending().await
                }
            }
        }
    });
    let mut connection = http.serve_connection(handoff.lend(socket)?, service);
    let timer = pin!(sleep(patience));
    let mut alarm = Alarm::new(timer);
    let mut ending = shutdown.until(Phase::Ending);
    let left = poll_fn(|cx| {
        loop {
            let polled = Pin::new(&mut connection).poll(cx);
            let course = handoff.course();
            if let Course::Stream(plan) = course {
                return Poll::Ready(Ok(Some(plan)));
            }
            if let Poll::Ready(end) = polled {
                return Poll::Ready(end.map(|()| None).map_err(Cut::from));
            }
            if let Course::Awaited(since) = course
                && alarm.poll_past(since + patience, cx).is_ready()
            {
                return Poll::Ready(Err(Cut::Silent));
            }
            ready!(ending.poll_once(cx));
            Pin::new(&mut connection).graceful_shutdown();
        }
    });
    let Some(plan) = left.await? else { return Ok(None) };
    Ok(Some((connection.into_parts().io.into_socket()?, plan)))
}

/// A timer for a deadline that moves on often and is seldom reached: while it is set, only a moment
/// that is no later than the deadline is certain, and there it is set anew. For one task.
struct Alarm<'a> {
    /// Not polled while it is set.
    sleep: Pin<&'a mut Sleep>,
    set: bool,
}

impl<'a> Alarm<'a> {
    fn new(sleep: Pin<&'a mut Sleep>) -> Self {
        Self { sleep, set: false }
    }

    /// Ready when the deadline is past, which is the same as in the last call or later. Else the task is
    /// woken by then, if not before.
    fn poll_past(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.set && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        self.set = true;
        self.sleep.as_mut().reset(deadline);
        // A task that had its share would be told "later" here, and the timer not whom to wake.
        pin!(unconstrained(self.sleep.as_mut())).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Wake, Waker},
    };

    use tokio::{task::coop::consume_budget, time::advance};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moves_on_is_met_to_the_moment_and_seldom_wakes_before() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let timer = pin!(sleep(SECOND));
        let mut alarm = Alarm::new(timer);
        let mut deadline = Instant::now();
        for _ in 0..50 {
            deadline = Instant::now() + 2 * SECOND;
            assert!(alarm.poll_past(deadline, &mut cx).is_pending());
            advance(SECOND / 10).await;
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        while woken.0.load(Ordering::Relaxed) < 4 {
            assert!(Instant::now() < deadline);
            assert!(alarm.poll_past(deadline, &mut cx).is_pending());
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(Instant::now(), deadline);
        assert!(alarm.poll_past(deadline, &mut cx).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_had_its_share_is_woken_at_its_deadline_all_the_same() {
        let timer = pin!(sleep(SECOND));
        let mut alarm = Alarm::new(timer);
        let deadline = Instant::now() + SECOND;
        let mut share_taken = false;
        poll_fn(|cx| {
            if !std::mem::replace(&mut share_taken, true) {
                while pin!(consume_budget()).poll(cx).is_ready() {}
            }
            alarm.poll_past(deadline, cx)
        })
        .await;
        assert_eq!(Instant::now(), deadline);
    }
}
