//! Children when something runs out: memory, descriptors, the disk.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Gateway, eventually};

#[test]
fn a_gibibyte_of_output_leaves_memory_flat() {
    let gateway = Gateway::start();
    let before = gateway.memory();
    gateway.run("demo", "head -c 1G /dev/zero");
    let mut most = 0;
    let task = loop {
        most = most.max(gateway.memory());
        let task = gateway.list("demo")[0].clone();
        if task["finishedAt"].is_u64() {
            break task;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(task["status"], "completed", "{task}");
    println!("memory {before} KiB, at most {most} KiB");
    assert!(most < before + 8 * 1024, "{before} KiB, then {most} KiB");
    let read = gateway.control("GET", "/sessions/demo/tasks/bash-1/output", None).json();
    let notice = format!("[{} bytes of older output are gone]\n", (1 << 30) - 256 * 1024);
    assert!(read["text"].as_str().unwrap().starts_with(&notice));
}

/// Lets a process open descriptors below this number only; none is as many as it may.
fn limit_descriptors(pid: u32, below: Option<u64>) {
    let hard = || {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let soft = below.unwrap_or_else(hard);
    let done = Command::new("prlimit").args(["--pid", &pid.to_string(), &format!("--nofile={soft}:")]).status();
    assert!(done.unwrap().success());
}

#[test]
fn without_descriptors_a_start_is_503_and_nothing_leaks() {
    let gateway = Gateway::start();
    gateway.run("demo", "true");
    gateway.ended("demo", "bash-1");
    let open = || {
        let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let before = open();
    // From just enough for the request itself to enough for the command too.
    let free: Vec<_> = (0..1_000).filter(|number| !before.contains(number)).take(14).collect();
    let mut statuses = Vec::new();
    for last in free {
        limit_descriptors(gateway.pid(), Some(last + 1));
        let start = json!({"command": "exec sleep 277.125"});
        let answer = gateway.control("POST", "/sessions/other/tasks", Some(start));
        limit_descriptors(gateway.pid(), None);
        if answer.status != 201 {
            let problem = answer.problem(503);
            assert_eq!(problem["type"], "urn:tasklight:problem:system");
            assert_eq!(answer.header("retry-after"), Some("5"));
            assert_eq!(gateway.list("other"), json!([]), "nothing is registered");
            assert!(gateway.children("sleep 277.125").is_empty(), "nothing runs");
        }
        statuses.push(answer.status);
        assert_eq!(gateway.control("DELETE", "/sessions/other", None).status, 204);
        gateway.has_none_left("sleep 277.125");
        eventually("every descriptor comes back", || (open().len() <= before.len()).then_some(()));
    }
    println!("with few to many descriptors: {statuses:?}");
    assert!(statuses.starts_with(&[503]) && statuses.ends_with(&[201]), "{statuses:?}");
    gateway.run("demo", "echo again");
    assert_eq!(gateway.ended("demo", "bash-1")["status"], "completed");
}

/// A small disk of its own; gone when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(place: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"]).arg(place);
        mount.stderr(std::process::Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then(|| Self(place.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_fills_up_costs_the_file_and_serves_again_when_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let Some(_disk) = Disk::mount(place.path()) else {
        println!("skipped: only root can mount a disk");
        return;
    };
    let gateway = Gateway::with(&["--spill-dir", place.path().to_str().unwrap(), "--max-settled-tasks", "1"]);
    let text_of = |command: &str| -> String {
        let task = gateway.run("demo", command);
        let id = task["id"].as_str().unwrap();
        assert_eq!(gateway.ended("demo", id)["status"], "completed");
        let read: Value = gateway.control("GET", &format!("/sessions/demo/tasks/{id}/output"), None).json();
        read["text"].as_str().unwrap().lines().next().unwrap_or_default().to_owned()
    };
    let notice = text_of("seq 1 400000");
    assert!(notice.ends_with("bash-1.log is incomplete, since it could not be written]"), "{notice}");
    assert!(gateway.log().contains("No space left on device"));
    // The next end takes the first one's file away, and there is room.
    text_of("true");
    eventually("there is room", || {
        let folders = fs::read_dir(place.path()).unwrap().map(|folder| folder.unwrap().path());
        folders.map(|folder| fs::read_dir(folder).unwrap().count()).sum::<usize>().eq(&0).then_some(())
    });
    let notice = text_of("seq 1 100000");
    assert!(notice.contains("; all of it is in ") && notice.ends_with("bash-3.log]"), "{notice}");
}
