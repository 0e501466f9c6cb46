//! What a command puts out, whatever it is: in order, bounded, whole characters, and on disk if asked.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Gateway, eventually, tasklight, terminal::Terminal};

const TAIL: usize = 256 * 1024;

/// Runs a command to its end and reads all of its output at once.
fn output_of(gateway: &Gateway, command: &str) -> String {
    let task = gateway.run("demo", command);
    let id = task["id"].as_str().unwrap();
    gateway.ended("demo", id);
    read(gateway, id)
}

fn read(gateway: &Gateway, id: &str) -> String {
    let read: Value = gateway.control("GET", &format!("/sessions/demo/tasks/{id}/output"), None).json();
    read["text"].as_str().unwrap().to_owned()
}

/// The notice in front, if there is one, and the rest.
fn split(text: &str) -> (&str, &str) {
    if text.starts_with('[') { text.split_once('\n').unwrap() } else { ("", text) }
}

/// What `seq 1 LAST` prints.
fn counted(last: usize) -> String {
    let mut text = String::new();
    for n in 1..=last {
        text.push_str(&format!("{n}\n"));
    }
    text
}

#[test]
fn of_several_mebibytes_the_tail_is_kept_and_the_rest_is_counted() {
    let gateway = Gateway::start();
    let text = output_of(&gateway, "seq 1 800000");
    let whole = counted(800_000);
    let (notice, tail) = split(&text);
    assert_eq!(tail.len(), TAIL);
    assert!(whole.ends_with(tail));
    assert_eq!(notice, format!("[{} bytes of older output are gone]", whole.len() - TAIL));
}

#[test]
fn one_line_without_an_end_is_output_like_any_other() {
    let gateway = Gateway::start();
    let text = output_of(&gateway, "head -c 5000000 /dev/zero | tr '\\0' x");
    assert_eq!(split(&text), (&*format!("[{} bytes of older output are gone]", 5_000_000 - TAIL), &*"x".repeat(TAIL)));
}

#[test]
fn characters_are_whole_wherever_the_tail_is_cut() {
    for tail in ["1000", "1001", "1002", "1003"] {
        let gateway = Gateway::with(&["--output-tail", tail]);
        let text = output_of(&gateway, "for i in {1..300}; do printf 🦀; done; for i in {1..300}; do printf é; done");
        let (notice, rest) = split(&text);
        assert!(!rest.contains('\u{fffd}') && rest.ends_with('é'), "{tail}: {rest}");
        assert_eq!(notice, format!("[{} bytes of older output are gone]", 1_800 - rest.len()));
    }
}

#[test]
fn half_a_character_is_not_read_until_its_other_half_is_there() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("go");
    gateway.run("demo", &format!(r"mkfifo {0}; printf 'a\xf0\x9f'; read < {0}; printf '\xa6\x80b'", fifo.display()));
    let first = gateway.control("GET", "/sessions/demo/tasks/bash-1/output?wait=30s", None).json();
    assert_eq!(first["text"], "a");
    fs::write(fifo, "\n").unwrap();
    gateway.ended("demo", "bash-1");
    assert_eq!(read(&gateway, "bash-1"), "🦀b");
}

#[test]
fn bytes_that_are_no_text_are_shown_and_stop_nothing() {
    let gateway = Gateway::start();
    assert_eq!(
        output_of(&gateway, r"printf 'a\xff\x00\xc3b\xed\xa0\x80c\n'"),
        "a\u{fffd}\0\u{fffd}b\u{fffd}\u{fffd}\u{fffd}c\n"
    );
    let noise = output_of(&gateway, "head -c 3000000 /dev/urandom; echo; echo the end");
    assert!(noise.ends_with("\nthe end\n"));
    assert!(noise.starts_with('['));
    let continuation = output_of(&gateway, r"head -c 1000000 /dev/zero | tr '\0' '\200'; echo end");
    assert!(continuation.ends_with("\u{fffd}end\n"));
}

#[test]
fn both_streams_stand_in_the_order_of_arrival() {
    let gateway = Gateway::start();
    let text = output_of(&gateway, "for i in {1..2000}; do echo o$i; echo e$i >&2; done");
    let expected = (1..=2_000).fold(String::new(), |text, n| text + &format!("o{n}\ne{n}\n"));
    assert_eq!(text, expected);
}

/// A gateway that keeps whole outputs, and the folder.
fn spilling(flags: &[&str]) -> (Gateway, tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("outputs");
    let gateway = Gateway::with(&[&["--spill-dir", folder.to_str().unwrap()], flags].concat());
    (gateway, place, folder)
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn files_below(folder: &std::path::Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())).collect()
}

#[test]
fn a_whole_output_is_in_the_file_that_the_read_names() {
    let (mut gateway, _place, folder) = spilling(&[]);
    assert_eq!(output_of(&gateway, "echo small"), "small\n");
    assert!(files_below(&folder).is_empty(), "what fits in memory needs no file");

    let text = output_of(&gateway, "echo first; seq 1 800000; head -c 1000000 /dev/urandom | tee /dev/stderr | md5sum");
    let (notice, _) = split(&text);
    let path = notice.split_once("; all of it is in ").unwrap().1.strip_suffix(']').unwrap();
    let path = PathBuf::from(path);
    assert!(path.starts_with(&folder));
    assert_eq!((mode(&path), mode(path.parent().unwrap()), mode(&folder)), (0o600, 0o700, 0o700));
    let whole = fs::read(&path).unwrap();
    let counted = counted(800_000);
    assert!(whole.starts_with(format!("first\n{counted}").as_bytes()));
    assert_eq!(
        whole.len(),
        "first\n".len() + counted.len() + 1_000_000 + "d41d8cd98f00b204e9800998ecf8427e  -\n".len()
    );

    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    eventually("the file goes with its record", || (!path.exists()).then_some(()));
    output_of(&gateway, "seq 1 100000");
    assert_eq!(files_below(&folder).len(), 1);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_whole_of_what_a_terminal_put_out_is_in_a_file_too() {
    let (gateway, _place, _folder) = spilling(&[]);
    let sent = Terminal::open(&gateway, "demo", "read -r; seq 1 300000").send(json!({ "text": "" }));
    let (notice, _) = split(&sent.text);
    let path = notice.split_once("; all of it is in ").unwrap().1.strip_suffix(']').unwrap();
    let whole = String::from_utf8(fs::read(path).unwrap()).unwrap();
    assert!(whole == format!("\n{}", counted(300_000)).replace('\n', "\r\n"), "{} bytes", whole.len());
}

#[test]
fn a_read_while_the_task_runs_names_a_file_that_has_all_up_to_then() {
    let (gateway, _place, folder) = spilling(&[]);
    gateway.run("demo", "seq 1 300000; echo done; sleep 60");
    let mut text = String::new();
    while !text.ends_with("done\n") {
        text = gateway.control("GET", "/sessions/demo/tasks/bash-1/output?wait=30s", None).json()["text"]
            .as_str()
            .unwrap()
            .to_owned();
    }
    eventually("there is one file", || {
        let files = files_below(&folder);
        let whole = counted(300_000) + "done\n";
        (files.len() == 1 && fs::read(&files[0]).unwrap() == whole.as_bytes()).then_some(())
    });
}

#[test]
fn a_file_that_reached_its_limit_is_named_as_a_beginning() {
    let (gateway, _place, _folder) = spilling(&["--spill-limit", "300000"]);
    let text = output_of(&gateway, "seq 1 800000");
    let (notice, tail) = split(&text);
    let path = notice.split_once("; the first 300000 bytes of it are in ").unwrap().1.strip_suffix(']').unwrap();
    let whole = counted(800_000);
    assert_eq!(fs::read(path).unwrap(), &whole.as_bytes()[..300_000]);
    assert!(whole.ends_with(tail));
}

#[test]
fn a_file_goes_when_its_record_makes_room_for_a_newer_one() {
    let (gateway, _place, folder) = spilling(&["--max-settled-tasks", "1"]);
    output_of(&gateway, "seq 1 100000");
    assert_eq!(files_below(&folder)[0].file_name().unwrap(), "bash-1.log");
    output_of(&gateway, "seq 1 100000");
    eventually("only the newer one is left", || {
        let files = files_below(&folder);
        (files.len() == 1 && files[0].ends_with("bash-2.log")).then_some(())
    });
}

#[test]
fn a_disk_that_cannot_be_written_costs_the_file_and_not_the_task() {
    let (gateway, _place, folder) = spilling(&[]);
    let own = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    fs::remove_dir(&own).unwrap();
    let task = gateway.run("demo", "seq 1 800000; echo the end; exit 3");
    let ended = gateway.ended("demo", task["id"].as_str().unwrap());
    assert_eq!(ended["detail"], "exit code: 3");
    let text = read(&gateway, "bash-1");
    let (notice, tail) = split(&text);
    assert!(notice.ends_with("bash-1.log is incomplete, since it could not be written]"), "{notice}");
    assert!(tail.ends_with("800000\nthe end\n"));
    let log = gateway.log();
    assert_eq!(log.matches("an output file is incomplete").count(), 1, "{log}");
}

#[test]
fn a_full_disk_is_told_where_the_file_is_named() {
    let (gateway, _place, folder) = spilling(&[]);
    let own = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    // A device that is always full (full(4)) stands where the file would be.
    std::os::unix::fs::symlink("/dev/full", own.join("bash-1.log")).unwrap();
    let text = output_of(&gateway, "seq 1 800000");
    assert!(split(&text).0.ends_with("is incomplete, since it could not be written]"));
    assert!(split(&text).1.ends_with("\n800000\n"));
    assert!(gateway.log().contains("No space left on device"));
}

#[test]
fn a_disk_that_hangs_holds_up_neither_a_kill_nor_the_gateways_end() {
    let (mut gateway, _place, folder) = spilling(&[]);
    let own = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    // Opening a pipe that nobody reads never returns (fifo(7)).
    assert!(Command::new("mkfifo").arg(own.join("bash-1.log")).status().unwrap().success());
    gateway.run("demo", "yes");
    eventually("the file is given up", || gateway.log().contains("the disk is too slow").then_some(()));
    gateway.control("POST", "/sessions/demo/tasks/bash-1/kill", None);
    assert_eq!(gateway.ended("demo", "bash-1")["detail"], "signal: SIGTERM");
    assert!(split(&read(&gateway, "bash-1")).0.ends_with("is incomplete, since it could not be written]"));
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn what_a_killed_gateway_left_is_removed_by_the_next() {
    let (mut gateway, _place, folder) = spilling(&[]);
    output_of(&gateway, "seq 1 100000");
    gateway.signal("KILL");
    gateway.wait();
    assert_eq!(files_below(&folder).len(), 1);
    let next = Gateway::with(&["--spill-dir", folder.to_str().unwrap()]);
    assert_eq!(files_below(&folder).len(), 0);
    let beside = Gateway::with(&["--spill-dir", folder.to_str().unwrap()]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "gateways that live leave each other alone");
    assert!(next.log().contains("removing the output files of a dead gateway"));
    drop(beside);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_folder_that_others_can_enter_is_refused_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut serve = tasklight();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--control"]).arg(place.path().join("s"));
    let refused = serve.arg("--spill-dir").arg(&folder).stdin(Stdio::null()).output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(message.contains("it has mode 755, and outputs are nobody else's business; chmod 700 it"), "{message}");
}
