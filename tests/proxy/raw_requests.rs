//! nginx and the gateway never disagree on how many requests a connection carries: whatever nginx
//! takes for one request and forwards, the gateway answers once.

use crate::{
    proxies::{Proxy, Way},
    support::{
        Gateway,
        raw::{cases, exchange, with_marker},
    },
    tap::Tap,
};

fn as_many_answers_as_forwarded_requests(way: Way) {
    let gateway = Gateway::start();
    let tap = Tap::before(gateway.address);
    let proxy = Proxy::start(way, tap.address);
    let cases = cases();
    for case in &cases {
        exchange(proxy.address, &with_marker(case));
    }
    let forwarded = proxy.quit();
    assert!(forwarded > cases.len() / 2, "{forwarded} of {} were forwarded", cases.len());
    assert_eq!(tap.answers(), forwarded);
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn the_shipped_configuration_of_nginx_and_the_gateway_count_the_same_requests() {
    as_many_answers_as_forwarded_requests(Way::Shipped);
}

#[test]
#[ignore = "needs nginx: scripts/test-proxy"]
fn a_bare_proxy_pass_and_the_gateway_count_the_same_requests() {
    as_many_answers_as_forwarded_requests(Way::Bare);
}
