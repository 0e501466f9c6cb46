//! The main job: a command runs in the background, and `curl -N` shows it live.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Gateway, eventually, wait};

fn fields(task: &Value) -> BTreeSet<&str> {
    task.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn curl_opened_before_the_task_sees_its_start_its_end_and_the_empty_list() {
    let gateway = Gateway::start();
    let mut curl = Command::new("curl").args(["-sN", &gateway.url("demo")]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("retry: "));
    assert_eq!(lines.next().unwrap(), ": session demo");
    let mut event = move || -> (String, Value) {
        let id = lines.find(|line| line.starts_with("id:")).unwrap();
        let data = lines.next().unwrap();
        assert_eq!(lines.next().unwrap(), "", "one data line an event");
        let data = data.strip_prefix("data: ").unwrap();
        (id, serde_json::from_str(data).unwrap())
    };

    gateway.run("demo", "sleep 1; exit 3");
    let (id, started) = event();
    assert!(id.strip_prefix("id: ").unwrap().parse::<u64>().unwrap() > 1_700_000_000_000);
    assert_eq!(started.as_array().unwrap().len(), 1);
    assert_eq!(fields(&started[0]), BTreeSet::from(["id", "kind", "label", "startedAt", "status"]));
    assert_eq!(started[0]["id"], "bash-1");
    assert_eq!(started[0]["kind"], "bash");
    assert_eq!(started[0]["label"], "sleep 1; exit 3");
    assert_eq!(started[0]["status"], "running");

    let (_, ended) = event();
    let all = BTreeSet::from(["detail", "finishedAt", "id", "kind", "label", "startedAt", "status"]);
    assert_eq!(fields(&ended[0]), all);
    assert_eq!(ended[0]["status"], "failed");
    assert_eq!(ended[0]["detail"], "exit code: 3");
    let took = ended[0]["finishedAt"].as_u64().unwrap() - ended[0]["startedAt"].as_u64().unwrap();
    assert!((1_000..20_000).contains(&took), "{took} ms");

    assert_eq!(gateway.control("DELETE", "/sessions/demo", None).status, 204);
    assert_eq!(event(), ("id:".to_owned(), json!([])));

    gateway.signal("TERM");
    assert!(wait(&mut curl).success());
    eventually("the log tells of each step", || {
        let log = gateway.log();
        ["started task=bash-1 session=demo", "settled task=bash-1", "disposed session=demo", "draining", "ended"]
            .iter()
            .all(|step| log.contains(step))
            .then_some(())
    });
}
