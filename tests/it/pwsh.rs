//! Commands for PowerShell, where it is installed and where it is not.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use serde_json::json;

use crate::support::Gateway;

/// A folder to be the whole PATH: bash, and nothing else yet.
fn path_with_bash() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|bash| Path::new(bash).exists()).unwrap();
    symlink(bash, folder.path().join("bash")).unwrap();
    folder
}

/// A `pwsh` that shows its arguments and ends as the last one says.
fn install_pwsh(folder: &Path) {
    let pwsh = folder.join("pwsh");
    fs::write(&pwsh, "#!/bin/bash\nprintf '<%s>\\n' \"$@\"\neval \"${@: -1}\"\n").unwrap();
    fs::set_permissions(&pwsh, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn without_pwsh_a_start_is_refused_and_leaves_nothing_behind() {
    let path = path_with_bash();
    let gateway = Gateway::with_variables(&[], &[("PATH", path.path().to_str().unwrap())]);
    let body = json!({ "kind": "pwsh", "command": "Get-Date" });
    let problem = gateway.control("POST", "/sessions/demo/tasks", Some(body.clone())).problem(422);
    assert_eq!(problem["field"], "kind");
    assert!(problem["detail"].as_str().unwrap().contains("pwsh is not installed"), "{problem}");
    assert_eq!(gateway.list("demo"), json!([]));
    let start = gateway.cli(&["start", "--session", "demo", "--kind", "pwsh", "Get-Date"]);
    assert_eq!(start.status.code(), Some(1));
    assert!(String::from_utf8(start.stderr).unwrap().contains("pwsh is not installed"));

    install_pwsh(path.path());
    let task = gateway.control("POST", "/sessions/demo/tasks", Some(body)).json();
    assert_eq!(task["id"], "pwsh-1", "no id was used up");
}

#[test]
fn pwsh_runs_a_command_as_bash_does() {
    let path = path_with_bash();
    install_pwsh(path.path());
    let gateway = Gateway::with_variables(&[], &[("PATH", path.path().to_str().unwrap())]);
    let body = json!({ "kind": "pwsh", "command": "echo $GREETING; exit 3", "env": { "GREETING": "hi" } });
    let task = gateway.control("POST", "/sessions/demo/tasks", Some(body)).json();
    assert_eq!((&task["kind"], &task["label"]), (&json!("pwsh"), &json!("echo $GREETING; exit 3")));
    let task = gateway.ended("demo", "pwsh-1");
    assert_eq!((&task["status"], &task["detail"]), (&json!("failed"), &json!("exit code: 3")));
    let output = gateway.control("GET", "/sessions/demo/tasks/pwsh-1/output", None).json();
    assert_eq!(output["text"], "<-NoProfile>\n<-NonInteractive>\n<-Command>\n<echo $GREETING; exit 3>\nhi\n");

    let start = gateway.cli(&["start", "--session", "demo", "--kind", "pwsh", "--", "echo", "a b"]);
    assert_eq!(String::from_utf8(start.stdout).unwrap(), "pwsh-2\n");
    assert_eq!(gateway.ended("demo", "pwsh-2")["label"], "& echo 'a b'");
}

#[test]
fn a_shell_that_the_commands_own_path_hides_is_blamed_on_that() {
    let gateway = Gateway::start();
    let body = json!({ "command": "true", "env": { "PATH": "/nowhere" } });
    let problem = gateway.control("POST", "/sessions/demo/tasks", Some(body)).problem(422);
    assert_eq!(problem["field"], "env.PATH");
    let body = json!({ "command": "true", "kind": "zsh" });
    assert_eq!(gateway.control("POST", "/sessions/demo/tasks", Some(body)).problem(422)["field"], "kind");
}
