//! The `tasklight` program: `tasklight help` tells what it does.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::carry_out(cli::args::Arguments::parse())
}
