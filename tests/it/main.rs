//! What the program does, seen from outside: the real binary, real sockets, real processes.

mod support;

mod control_stream;
mod done;
mod main_job;
mod metrics;
mod mux;
