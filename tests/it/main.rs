//! What the program does, seen from outside: the real binary, real sockets, real processes.

mod support;

mod main_job;
mod pwsh;
mod terminals;
mod terminals_end;
