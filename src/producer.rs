//! Who makes tasks.

mod bell;
mod exit;
pub mod external;
mod group;
pub mod in_process;
mod leader;
pub mod pty;
mod refusal;
pub mod shell;

pub use self::exit::Exit;
