//! An idle stream outlives every proxy's idle limit.
//!
//! Answers the kind of report in PostHog/posthog#64616 (an idle stream is cut at 60 s).

use std::{thread, time::Duration};

use crate::{
    curl::Curl,
    proxies::{Proxy, Way},
    support::Gateway,
};

/// More than twice the usual limit of 60 s.
const IDLE: Duration = Duration::from_secs(130);

#[test]
#[ignore = "needs nginx, HAProxy and Caddy: scripts/test-proxy"]
fn a_stream_that_was_idle_for_130_s_goes_on_behind_each_proxy() {
    let gateway = Gateway::start();
    gateway.run("demo", "sleep 600");
    let proxies = Way::ALL.map(|way| (way, Proxy::start(way, gateway.address)));
    let mut streams = proxies.each_ref().map(|(way, proxy)| {
        let mut stream = Curl::open(&proxy.url("demo"), way.curl_flags(), IDLE.as_secs() + 60);
        stream.until(|list| list[0]["status"] == "running");
        (way, stream)
    });

    thread::sleep(IDLE);

    gateway.run("demo", "exit 0");
    for (way, stream) in &mut streams {
        stream.until(|list| list[1]["status"] == "completed");
        let beats = stream.comments.iter().filter(|comment| comment.is_empty()).count();
        assert!(beats >= 7, "{way:?}: a sign of life every 15 s, not {beats} in {IDLE:?}");
    }
}
