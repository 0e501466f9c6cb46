//! Who makes tasks.

mod exit;
pub mod external;
mod group;
pub mod shell;
