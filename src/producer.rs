//! Who makes tasks.

mod bell;
mod exit;
mod group;
pub mod in_process;
pub mod shell;
