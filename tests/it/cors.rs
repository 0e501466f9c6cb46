//! Pages of other origins: who may read what, and that each answer says it once.

use std::process::Stdio;

use crate::support::{
    Gateway,
    http::{Answer, over_tcp, request},
    sse::Stream,
    tasklight,
};

const PRODUCT: &str = "https://product.example";

fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    over_tcp(gateway.address, &request(method, path, headers, ""))
}

/// A stream's header by name; once at most.
fn header<'a>(stream: &'a Stream, name: &str) -> Option<&'a str> {
    let mut values = stream.head.lines().filter_map(|line| line.split_once(": ")).filter(|(other, _)| *other == name);
    let value = values.next().map(|(_, value)| value);
    assert_eq!(values.next(), None, "{name} is there twice");
    value
}

#[test]
fn without_the_flag_no_page_of_another_origin_reads_a_list() {
    let gateway = Gateway::start();
    let asks = [("origin", PRODUCT), ("accept", "application/json")];
    let list = ask(&gateway, "GET", "/sessions/demo/tasks", &asks);
    assert_eq!((list.status, list.header("access-control-allow-origin"), list.header("vary")), (200, None, None));
    let stream = Stream::with(gateway.address, "demo", &[("origin", PRODUCT)]);
    assert!(!stream.head.contains("access-control"), "{}", stream.head);
    assert!(!stream.head.contains("vary"), "{}", stream.head);
    let preflight = [("origin", PRODUCT), ("access-control-request-method", "GET")];
    let refused = ask(&gateway, "OPTIONS", "/sessions/demo/tasks", &preflight);
    assert!(refused.problem(403)["title"].as_str().unwrap().contains("--allow-origin"));
    assert_eq!(refused.header("access-control-allow-origin"), None);
}

#[test]
fn an_allowed_page_reads_stream_list_head_and_errors_and_no_other_page_does() {
    let gateway = Gateway::with(&["--allow-origin", "HTTP://localhost:3000", "--allow-origin", PRODUCT]);
    for (origin, told) in [
        (Some(PRODUCT), Some(PRODUCT)),
        (Some("http://localhost:3000"), Some("http://localhost:3000")),
        (Some("http://localhost:3001"), None),
        (Some("null"), None),
        (None, None),
    ] {
        let origin = origin.map(|origin| ("origin", origin));
        let with = |more: &[(&'static str, &'static str)]| origin.into_iter().chain(more.iter().copied()).collect();
        let check = |answer: &Answer| {
            assert_eq!(answer.header("access-control-allow-origin"), told, "{origin:?} {answer:?}");
            assert_eq!(answer.header("vary"), Some("origin"), "{answer:?}");
            assert_eq!(answer.header("access-control-allow-credentials"), None);
        };
        let plain: Vec<_> = with(&[]);
        let stream = Stream::with(gateway.address, "demo", &plain);
        assert_eq!(header(&stream, "access-control-allow-origin"), told);
        assert_eq!(header(&stream, "vary"), Some("origin"));

        let json: Vec<_> = with(&[("accept", "application/json")]);
        check(&ask(&gateway, "GET", "/sessions/demo/tasks", &json));
        check(&ask(&gateway, "HEAD", "/sessions/demo/tasks", &plain));
        let neither: Vec<_> = with(&[("accept", "image/png")]);
        for (answer, status) in [
            (ask(&gateway, "GET", "/sessions/demo/tasks", &neither), 406),
            (ask(&gateway, "GET", "/sessions/%00/tasks", &plain), 400),
            (ask(&gateway, "GET", "/nothing", &plain), 404),
            (ask(&gateway, "PUT", "/sessions/demo/tasks", &plain), 405),
        ] {
            answer.problem(status);
            check(&answer);
        }
    }
}

#[test]
fn a_star_allows_all_and_does_not_vary() {
    let gateway = Gateway::with(&["--allow-origin", "*"]);
    for origin in ["null", PRODUCT] {
        let stream = Stream::with(gateway.address, "demo", &[("origin", origin)]);
        assert_eq!(header(&stream, "access-control-allow-origin"), Some("*"));
        assert_eq!(header(&stream, "vary"), None);
    }
}

#[test]
fn a_preflight_lets_a_page_resume_with_last_event_id() {
    let gateway = Gateway::with(&["--allow-origin", PRODUCT]);
    let asks = |origin| {
        [
            ("origin", origin),
            ("access-control-request-method", "GET"),
            ("access-control-request-headers", "last-event-id"),
            ("access-control-request-private-network", "true"),
        ]
    };
    // A path that is wrong as well, so that the page can read what is wrong with it.
    for path in ["/sessions/demo/tasks", "/sessions/%00/tasks"] {
        let granted = ask(&gateway, "OPTIONS", path, &asks(PRODUCT));
        assert_eq!((granted.status, granted.body.as_str()), (204, ""));
        assert_eq!(granted.header("access-control-allow-origin"), Some(PRODUCT));
        assert_eq!(granted.header("access-control-allow-methods"), Some("GET, HEAD"));
        assert_eq!(granted.header("access-control-allow-headers"), Some("Last-Event-ID"));
        assert_eq!(granted.header("access-control-max-age"), Some("600"));
        assert_eq!(granted.header("access-control-allow-private-network"), None);
        assert_eq!(granted.header("vary"), Some("origin"));
    }
    let refused = ask(&gateway, "OPTIONS", "/sessions/demo/tasks", &asks("https://other.example"));
    assert!(refused.problem(403)["detail"].as_str().unwrap().contains("https://other.example"));
    assert_eq!(refused.header("access-control-allow-origin"), None);
    assert_eq!(refused.header("vary"), Some("origin"));
    let no_preflight = ask(&gateway, "OPTIONS", "/sessions/demo/tasks", &[("origin", PRODUCT)]);
    no_preflight.problem(405);
    assert_eq!(no_preflight.header("access-control-allow-origin"), Some(PRODUCT));
}

#[test]
fn the_widgets_files_are_for_pages_of_every_origin() {
    for flags in [&[][..], &["--allow-origin", PRODUCT][..]] {
        let gateway = Gateway::with(flags);
        let tag = ask(&gateway, "GET", "/widget/format.js", &[]).header("etag").unwrap().to_owned();
        let fresh: &[(&str, &str)] = &[("origin", "https://other.example")];
        let has_it: &[(&str, &str)] = &[("origin", "https://other.example"), ("if-none-match", &tag)];
        for (headers, status) in [(fresh, 200), (has_it, 304), (&[], 200)] {
            let file = ask(&gateway, "GET", "/widget/format.js", headers);
            assert_eq!(file.status, status);
            assert_eq!(file.header("access-control-allow-origin"), Some("*"));
            assert_eq!(file.header("vary"), None);
        }
        let file = ask(&gateway, "GET", "/widget/format.js", fresh);
        assert_eq!(file.header("cross-origin-resource-policy"), Some("cross-origin"));
        let missing = ask(&gateway, "GET", "/widget/none.js", fresh);
        missing.problem(404);
        assert_eq!(missing.header("access-control-allow-origin"), Some("*"));
    }
}

#[test]
fn origins_come_by_variable_too_and_a_bad_one_is_told_at_the_start() {
    let gateway = Gateway::with_variable("TASKLIGHT_ALLOW_ORIGIN", "https://a.example,https://b.example");
    for origin in ["https://a.example", "https://b.example"] {
        let stream = Stream::with(gateway.address, "demo", &[("origin", origin)]);
        assert_eq!(header(&stream, "access-control-allow-origin"), Some(origin));
    }
    for (bad, reason) in [("https://a.example/", "'/'"), ("null", "sandboxed"), ("a.example", "scheme://host")] {
        let refused = tasklight().args(["serve", "--allow-origin", bad]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert!(stderr.contains("--allow-origin") && stderr.contains(reason), "{stderr}");
    }
}
