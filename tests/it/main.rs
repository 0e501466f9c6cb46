//! What the program does, seen from outside: the real binary, real sockets, real processes.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::format_push_string,
    clippy::print_stdout,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and says its figures"
)]

mod support;

mod assets;
mod children;
mod children_exhausted;
mod children_hostile;
mod cli;
mod control;
mod control_over_tcp;
mod control_stream;
mod cors;
mod done;
mod embedded;
mod external;
mod host_names;
mod limits;
mod load;
mod main_job;
mod metrics;
mod mux;
mod openapi;
mod output;
mod pwsh;
mod raw_requests;
mod registry;
mod run;
mod shutdown;
mod slow_and_gone;
mod stream;
mod terminals;
mod terminals_end;
mod watch;
