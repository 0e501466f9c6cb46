//! Who makes tasks.

mod bell;
mod exit;
mod group;
mod leader;
pub mod pty;
mod refusal;
pub mod shell;
