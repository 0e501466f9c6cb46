//! The page and the widget's files: what they say of themselves, and that a client which has them
//! is not sent them again.

use crate::support::{
    Gateway,
    http::{Answer, over_tcp, request},
};

fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    over_tcp(gateway.address, &request(method, path, headers, ""))
}

#[test]
fn the_page_is_at_the_root_and_runs_nothing_but_its_own_files() {
    let gateway = Gateway::start();
    let page = ask(&gateway, "GET", "/?session=demo", &[]);
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    assert_eq!(page.header("access-control-allow-origin"), None);
    let policy: Vec<_> = page.header("content-security-policy").unwrap().split("; ").collect();
    assert!(policy.contains(&"default-src 'self'"), "{policy:?}");
    assert!(policy.contains(&"frame-ancestors 'self'"), "{policy:?}");
    assert!(!policy.iter().any(|rule| rule.contains("unsafe")), "{policy:?}");

    let files = page.body.split(['"']).filter(|text| text.starts_with("widget/"));
    let mut found = 0;
    for file in files {
        assert_eq!(ask(&gateway, "GET", &format!("/{file}"), &[]).status, 200, "{file}");
        found += 1;
    }
    assert!(found >= 3, "{}", page.body);
}

#[test]
fn every_module_that_a_module_imports_is_there() {
    let gateway = Gateway::start();
    let mut wanted = vec!["session-tasks.js".to_owned(), "page.js".to_owned()];
    let mut seen = Vec::new();
    while let Some(name) = wanted.pop() {
        if seen.contains(&name) {
            continue;
        }
        let module = ask(&gateway, "GET", &format!("/widget/{name}"), &[]);
        assert_eq!(module.status, 200, "{name}");
        assert_eq!(module.header("content-type"), Some("text/javascript; charset=utf-8"), "{name}");
        assert_eq!(module.header("x-content-type-options"), Some("nosniff"), "{name}");
        let imports = module.body.lines().filter(|line| line.starts_with("import "));
        wanted.extend(imports.map(|line| line.split("'./").nth(1).unwrap().split('\'').next().unwrap().to_owned()));
        seen.push(name);
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
}

#[test]
fn each_kind_of_file_has_its_type() {
    let gateway = Gateway::start();
    for (path, content_type) in [
        ("/widget/page.css", "text/css; charset=utf-8"),
        ("/widget/favicon.svg", "image/svg+xml"),
        ("/widget/session-tasks.d.ts", "text/plain; charset=utf-8"),
        ("/favicon.ico", "image/svg+xml"),
    ] {
        let file = ask(&gateway, "GET", path, &[]);
        assert_eq!((file.status, file.header("content-type")), (200, Some(content_type)), "{path}");
    }
}

#[test]
fn a_client_that_has_a_file_is_told_so_instead_of_sent_it() {
    let gateway = Gateway::start();
    for path in ["/", "/favicon.ico", "/widget/session-tasks.js"] {
        let first = ask(&gateway, "GET", path, &[]);
        let tag = first.header("etag").unwrap();
        assert!(tag.starts_with('"'), "a strong one: {tag}");

        let again = ask(&gateway, "GET", path, &[("if-none-match", tag)]);
        assert_eq!(again.status, 304, "{path}");
        assert_eq!(again.body, "");
        assert_eq!(again.header("etag"), Some(tag));
        assert_eq!(again.header("cache-control"), Some("no-cache"));
        assert_eq!(again.header("content-type"), None);

        let weakened = format!("\"other\", W/{tag}");
        assert_eq!(ask(&gateway, "HEAD", path, &[("if-none-match", &weakened)]).status, 304, "{path}");
        assert_eq!(ask(&gateway, "GET", path, &[("if-none-match", "\"other\"")]).body, first.body);
    }
}

#[test]
fn head_tells_what_get_would_send() {
    let gateway = Gateway::start();
    let mut bytes = Vec::new();
    let mut socket = crate::support::http::connect(gateway.address);
    std::io::Write::write_all(&mut socket, &request("HEAD", "/widget/format.js", &[], "")).unwrap();
    std::io::Read::read_to_end(&mut socket, &mut bytes).unwrap();
    let head = String::from_utf8(bytes).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "no body: {head}");
    let file = ask(&gateway, "GET", "/widget/format.js", &[]);
    assert!(head.contains(&format!("content-length: {}\r\n", file.body.len())), "{head}");
    assert!(head.contains(&format!("etag: {}\r\n", file.header("etag").unwrap())), "{head}");
}

#[test]
fn what_is_not_there_is_a_problem_and_files_are_only_looked_at() {
    let gateway = Gateway::start();
    for path in [
        "/widget/",
        "/widget",
        "/widget/none.js",
        "/widget/..%2fCargo.toml",
        "/widget/../src/lib.rs",
        "/index.html",
        "/widget/index.html",
        "/widget/Page.js",
    ] {
        ask(&gateway, "GET", path, &[]).problem(404);
    }
    for path in ["/", "/favicon.ico", "/widget/page.js"] {
        let answer = ask(&gateway, "POST", path, &[]);
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    }
}
