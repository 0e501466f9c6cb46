//! The real binary behind the real nginx, HAProxy and Caddy. `scripts/test-proxy` installs them and
//! runs this; a plain `cargo test` builds it and leaves it out.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::format_push_string,
    reason = "a test fails by panicking, and says its figures"
)]

#[allow(dead_code, reason = "shared with tests/it, which uses all of it")]
#[path = "../it/support/mod.rs"]
mod support;

mod curl;
mod proxies;
mod tap;

mod ends;
mod idle;
mod limits;
mod live;
mod raw_requests;
