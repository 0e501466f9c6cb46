//! Why a process cannot start, as far as its caller can do something about it: each refusal names
//! the field to correct. What only the operator can mend is a [`LaunchError::System`].

use std::{collections::BTreeMap, io, path::Path};

use crate::registry::LaunchError;

/// Whether a process can start in that folder; none is where the gateway runs.
pub(super) fn enterable(cwd: Option<&Path>) -> Result<(), LaunchError> {
    let Some(cwd) = cwd else { return Ok(()) };
    let problem = match cwd.metadata() {
        _ if !cwd.is_absolute() => format!("{} is not an absolute path", cwd.display()),
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => format!("{} is not a directory", cwd.display()),
        Err(error) => format!("{} cannot be entered: {error}", cwd.display()),
    };
    Err(LaunchError::Field { field: "cwd", problem })
}

/// What an error means to whoever asked for `program` by the field `asked_by`.
pub(super) fn of_spawn(
    error: io::Error,
    program: &Path,
    asked_by: &'static str,
    env: &BTreeMap<String, String>,
) -> LaunchError {
    let program = program.display();
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound && env.contains_key("PATH") {
        // A program is looked for by the PATH that it gets itself, if it gets one.
        return LaunchError::Field { field: "env.PATH", problem: format!("{program} is in none of these folders") };
    }
    if kind == io::ErrorKind::NotFound {
        let problem = format!("{program} is not installed where the gateway runs");
        return LaunchError::Field { field: asked_by, problem };
    }
    if kind == io::ErrorKind::ArgumentListTooLong {
        let problem = "the command and its environment are longer than the system allows".into();
        return LaunchError::Field { field: "command", problem };
    }
    LaunchError::System { action: "start the process", source: error }
}
