//! Who makes tasks.

mod exit;
mod group;
pub mod shell;
