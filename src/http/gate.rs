//! What a request to the control API must show before anything of it is looked at.
//!
//! Promises:
//! - A request that a page sent (it bears an `Origin`) is refused, whatever else it bears.
//! - Where a token is asked for, every path needs it, and the right one is let in at once, however
//!   many wrong ones come meanwhile.
//! - A wrong or missing token costs its sender [`PENALTY`] for each try on a connection. At most
//!   [`MAX_PENALISED`] are held so; one beyond is answered at once and its connection closed, so
//!   that a flood holds no more memory than that. What keeps the door shut is the token's length.

use std::{net::SocketAddr, time::Duration};

use hyper::{HeaderMap, Request, header};
use tokio::{sync::Semaphore, time::sleep};

use super::{host::Hosts, problem::Problem};
use crate::token::SecretToken;

/// How long the answer to a wrong or missing token is held back.
const PENALTY: Duration = Duration::from_secs(1);
/// How many such answers are held back at once.
const MAX_PENALISED: usize = 64;

/// The gate of one way to the control API.
#[derive(Debug)]
pub(crate) struct Gate {
    token: Option<SecretToken>,
    hosts: Option<Hosts>,
    penalised: Semaphore,
}

/// What a request shows of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Right,
    Wrong,
    Nothing,
}

impl Gate {
    /// For a Unix socket, where who may connect is settled by the file's mode.
    pub(crate) fn of_unix() -> Self {
        Self::new(None, None)
    }

    /// For TCP, where anybody may connect.
    pub(crate) fn of_tcp(token: SecretToken, hosts: Hosts) -> Self {
        Self::new(Some(token), Some(hosts))
    }

    /// Asks for a token and for no name, since the server around it knows its names.
    pub(crate) fn of_service(token: Option<SecretToken>) -> Self {
        Self::new(token, None)
    }

    fn new(token: Option<SecretToken>, hosts: Option<Hosts>) -> Self {
        Self { token, hosts, penalised: Semaphore::new(MAX_PENALISED) }
    }

    /// Lets a request in, or says why not. `peer` is for the log.
    pub(crate) async fn admit<B>(&self, request: &Request<B>, peer: Option<SocketAddr>) -> Result<(), Problem> {
        if request.headers().contains_key(header::ORIGIN) {
            return Err(Problem::FromAPage);
        }
        if let Some(hosts) = &self.hosts {
            hosts.check(request)?;
        }
        let Some(token) = &self.token else { return Ok(()) };
        let shown = shown(token, request.headers());
        if shown == Shown::Right {
            return Ok(());
        }
        let Ok(_place) = self.penalised.try_acquire() else {
            return Err(Problem::Unauthorized { offered: shown == Shown::Wrong, close: true });
        };
        tracing::warn!(peer = peer.map(tracing::field::display), ?shown, "no valid control token");
        sleep(PENALTY).await;
        Err(Problem::Unauthorized { offered: shown == Shown::Wrong, close: false })
    }
}

/// Reads `Authorization: Bearer TOKEN` (RFC 6750 §2.1); the scheme's case is free (RFC 9110 §11.1).
fn shown(token: &SecretToken, headers: &HeaderMap) -> Shown {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) = value else { return Shown::Nothing };
    let (scheme, credentials) = value.as_bytes().split_at_checked(b"Bearer ".len()).unwrap_or_default();
    let right = scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(credentials.trim_ascii()) && more.is_none();
    if right { Shown::Right } else { Shown::Wrong }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn gate() -> Gate {
        Gate::of_service(Some(SecretToken::new(TOKEN).unwrap()))
    }

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_token_is_let_in_at_once_and_any_other_waits() {
        let gate = gate();
        for (authorization, right) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer  0123456789abcdef", true),
            ("Bearer 0123456789abcdeg", false),
            ("Bearer", false),
            ("Bearer0123456789abcdef", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("", false),
        ] {
            let start = Instant::now();
            let admitted = gate.admit(&request(&[("authorization", authorization)]), None).await;
            assert_eq!(admitted.is_ok(), right, "{authorization}");
            assert_eq!(start.elapsed(), if right { Duration::ZERO } else { PENALTY }, "{authorization}");
        }
        let twice = [("authorization", "Bearer 0123456789abcdef"), ("authorization", "Bearer x")];
        assert!(gate.admit(&request(&twice), None).await.is_err());
        let start = Instant::now();
        let nothing = gate.admit(&request(&[]), None).await;
        assert!(matches!(nothing, Err(Problem::Unauthorized { offered: false, close: false })));
        assert_eq!(start.elapsed(), PENALTY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_wrong_tokens_holds_a_bounded_number_and_never_the_right_one() {
        let gate = Arc::new(gate());
        let tries: Vec<_> = (0..MAX_PENALISED + 10)
            .map(|_| {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move { gate.admit(&request(&[("authorization", "Bearer x")]), None).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let start = Instant::now();
        assert!(gate.admit(&request(&[("authorization", "Bearer 0123456789abcdef")]), None).await.is_ok());
        assert_eq!(start.elapsed(), Duration::ZERO);
        let mut closed = 0;
        for held in tries {
            match held.await.unwrap() {
                Err(Problem::Unauthorized { offered: true, close }) => closed += usize::from(close),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(closed, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_refused_even_with_the_token() {
        let headers = [("authorization", "Bearer 0123456789abcdef"), ("origin", "null")];
        assert!(matches!(gate().admit(&request(&headers), None).await, Err(Problem::FromAPage)));
        assert!(matches!(Gate::of_unix().admit(&request(&[("origin", "x")]), None).await, Err(Problem::FromAPage)));
        assert!(Gate::of_unix().admit(&request(&[]), None).await.is_ok());
    }
}
