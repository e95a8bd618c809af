//! `tidelock web` on a file: what the page shows, and to whom.

use std::io::Write;

use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Bench, Run};
use crate::browser::Web;

/// A lock of this name would run a script on a page that showed it as it is.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

fn held(bench: &Bench) -> Run {
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    holder
}

/// The address of the first link that contains this.
#[track_caller]
fn link(page: &str, part: &str) -> String {
    let mut links = page.split("href=\"").skip(1);
    let link = links.find_map(|link| link.split('"').next().filter(|link| link.contains(part)));
    link.expect("a link").to_owned()
}

/// The names of an object's fields.
fn fields<'a>(object: &'a Value, part: &str) -> Vec<&'a String> {
    let object = object.pointer(part).expect(part).as_object();
    object.unwrap().keys().collect()
}

#[test]
fn the_page_shows_a_lock_with_its_waiter_and_their_processes() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let _waiter = bench.run(&[], "true");
    let web = Web::start(&bench, &[]);
    let is_known = |shows: &str| shows.contains("<dt>waiters</dt><dd>1</dd>");
    web.events("").until(|event| is_known(&event.shows));
    let mut lock = web.events("?lock=job");
    let lock = lock.until(|event| event.shows.matches("process=").count() == 2);
    assert!(lock.shows.contains("<h1>job</h1>"), "{}", lock.shows);
    let process = web.get(&link(&lock.shows, "process="));
    assert_eq!(link(&process.body, "lock="), "/?lock=job");
    // Without a script the whole page shows the same.
    let page = web.get("/").body;
    assert_eq!(link(&page, "lock="), "/?lock=job");
    assert!(is_known(&page), "{page}");
    assert!(page.contains("http-equiv=\"refresh\""), "{page}");
}

#[test]
fn the_api_has_the_shape_of_top() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let web = Web::start(&bench, &[]);
    web.events("")
        .until(|event| event.shows.contains("lock=job"));
    let shown = web.json();
    let top = bench.output(&["top", "--once", "--json"]).stdout;
    let top: Value = serde_json::from_slice(&top).unwrap();
    for part in ["", "/locks/0", "/locks/0/holders/0", "/processes/0"] {
        assert_eq!(fields(&shown, part), fields(&top, part), "{part}");
    }
    assert_eq!(shown["store"], top["store"]);
    assert_eq!(shown["locks"][0]["name"], "job");
}

#[test]
fn the_stream_and_the_metrics_have_the_figures_of_the_api() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let _waiter = bench.run(&[], "true");
    let web = Web::start(&bench, &[]);
    let mut stream = web.stream("/api/events");
    let shown = loop {
        let (_, data) = stream.next_data().expect("the stream goes on");
        let shown: Value = serde_json::from_str(&data).unwrap();
        if shown["locks"][0]["waiters"] == 1 {
            break shown;
        }
    };
    let again = web.json();
    assert_eq!(fields(&shown, ""), fields(&again, ""));
    assert_eq!(shown["store"], again["store"]);
    let figures = web.get("/metrics");
    assert!(figures.head.contains("text/plain; version=0.0.4"));
    for line in ["tidelock_store_up 1", "tidelock_store_waiters 1"] {
        let mut lines = figures.body.lines();
        assert!(lines.any(|shown| shown == line), "{}", figures.body);
    }
}

#[test]
fn a_proxy_is_asked_to_pass_each_event_on_at_once() {
    let bench = Bench::with_a_store();
    let web = Web::start(&bench, &[]);
    for path in ["/events", "/api/events"] {
        let (head, _events) = web.stream_with_head(path);
        assert!(head.contains("\r\nx-accel-buffering: no\r\n"), "{head}");
    }
}

#[test]
fn a_lock_has_a_timeline_and_keeps_it_when_it_is_free() {
    let bench = Bench::new();
    let holder = held(&bench);
    let web = Web::start(&bench, &[]);
    let mut lock = web.events("?lock=job");
    lock.until(|event| event.shows.contains("class=\"now\""));
    holder.signal(Signal::TERM);
    let is_over = |shows: &str| shows.contains("<rect") && shows.contains(" ago</td>");
    let shown = lock.until(|event| is_over(&event.shows)).shows;
    assert!(shown.contains("nobody is known to hold"), "{shown}");
}

#[test]
fn the_doctor_is_a_page_that_does_not_ask_again_by_itself() {
    let bench = Bench::with_a_store();
    let web = Web::start(&bench, &[]);
    let page = web.get("/doctor");
    let said = bench.output(&["doctor", "--json"]).stdout;
    let said = String::from_utf8(said).unwrap();
    for finding in said.lines() {
        let finding: Value = serde_json::from_str(finding).unwrap();
        let subject = finding["subject"].as_str().unwrap();
        assert!(page.body.contains(&format!(">{subject}</td>")), "{subject}");
    }
    assert!(!page.body.contains("http-equiv"), "{}", page.body);
    assert!(page.body.contains("data-events=\"\""), "{}", page.body);
}

#[test]
fn the_name_of_a_lock_is_text_on_the_page() {
    let bench = Bench::new();
    let run = ["run", HOSTILE, "--", "sh", "-c", "echo in; read line"];
    let mut holder = Run::start(bench.tidelock(&run));
    assert_eq!(holder.line(), "in");
    let web = Web::start(&bench, &[]);
    let mut all = web.events("");
    let shown = all.until(|event| event.shows.contains("onerror")).shows;
    let lock = web.get(&link(&shown, "lock="));
    let page = web.get("/");
    for page in [&shown, &lock.body, &page.body] {
        assert!(!page.contains("<img"), "{page}");
        let text = "&#60;img src=x onerror=alert(1)&#62;&#34;&#39;&#38;";
        assert!(page.contains(text), "{page}");
    }
    assert_eq!(web.json()["locks"][0]["name"], HOSTILE);
    let policy = "content-security-policy: default-src 'none'; script-src 'nonce-";
    assert!(page.head.contains(policy), "{}", page.head);
}

#[test]
fn a_request_for_an_unknown_host_or_of_another_site_is_refused() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let web = Web::start(&bench, &["--host", "locks.internal"]);
    for path in [
        "/",
        "/?lock=job",
        "/events",
        "/doctor",
        "/metrics",
        "/api/locks",
        "/api/events",
        "/healthz",
        "/x",
    ] {
        let first = format!("GET {path} HTTP/1.0");
        let absolute = format!("GET http://evil.example{path} HTTP/1.0");
        for lines in [
            &[&*first][..],
            &[&first, "Host: evil.example"],
            &[&first, "Host: localhost.evil.example:80"],
            &[&first, "Host: localhost", "Host: evil.example"],
            &[&absolute, "Host: localhost"],
        ] {
            let answer = web.ask(lines);
            assert_eq!(answer.status, 421, "{lines:?}: {}", answer.head);
            assert!(!answer.body.contains("job"), "{lines:?}: {}", answer.body);
        }
    }
    let status = |path: &str, lines: &[&str]| {
        let first = format!("GET {path} HTTP/1.0");
        web.ask(&[&[&*first], lines].concat()).status
    };
    for host in ["Host: localhost", "Host: [::1]:80", "Host: LOCKS.internal"] {
        assert_eq!(status("/", &[host]), 200, "{host}");
    }
    let foreign = ["Host: localhost", "Sec-Fetch-Site: cross-site"];
    assert_eq!(status("/events", &foreign), 403);
    let followed = [foreign[0], foreign[1], "Sec-Fetch-Mode: navigate"];
    assert_eq!(status("/", &followed), 200, "a link in a chat");
    let goes_to = |what| [followed[0], followed[1], followed[2], what];
    let tab = goes_to("Sec-Fetch-Dest: document");
    assert_eq!(status("/?lock=job", &tab), 200, "a link in a chat");
    for path in ["/", "/doctor"] {
        let frame = goes_to("Sec-Fetch-Dest: iframe");
        assert_eq!(status(path, &frame), 403, "{path} in a frame");
    }
    for path in ["/events", "/api/events", "/api/locks"] {
        assert_eq!(status(path, &followed), 403, "{path} is no page");
        assert_eq!(status(path, &tab), 403, "{path} is no page");
    }
}

#[test]
fn the_page_only_reads() {
    let bench = Bench::with_a_store();
    let web = Web::start(&bench, &[]);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for path in [
            "/",
            "/?lock=job",
            "/events",
            "/doctor",
            "/metrics",
            "/api/locks",
            "/api/events",
            "/healthz",
        ] {
            let first = format!("{method} {path} HTTP/1.0");
            let answer = web.ask(&[&first, "Host: localhost", "Content-Length: 0"]);
            assert_eq!(answer.status, 405, "{first}: {}", answer.head);
        }
    }
    let healthy = web.get("/healthz");
    assert_eq!((healthy.status, &*healthy.body), (200, "ok\n"));
}

/// The number of an event counts the looks at the store, whoever wanted them.
#[test]
fn all_tabs_see_the_same_looks_at_the_store() {
    let bench = Bench::with_a_store();
    let web = Web::start(&bench, &[]);
    let mut first = web.events("");
    let seen = first.until(|event| event.number >= 4);
    let mut tabs: Vec<_> = (0..6).map(|_| web.events("?lock=job")).collect();
    tabs.push(first);
    for tab in &mut tabs {
        let next = tab.next().unwrap();
        assert!(next.number >= seen.number, "{} looks", next.number);
        tab.until(|event| event.number >= seen.number + 3);
    }
}

/// They have more connections than the server may have files.
#[test]
fn clients_that_send_nothing_keep_nobody_from_the_page() {
    let bench = Bench::with_a_store();
    let web = Web::start(&bench, &[]);
    web.limit_files(64);
    let mut silent: Vec<_> = (0..60).map(|_| web.connect()).collect();
    for stream in silent.iter_mut().step_by(2) {
        stream.write_all(b"GET / HT").unwrap();
    }
    assert_eq!(web.get("/healthz").status, 200);
}

#[test]
fn a_signal_ends_the_page_with_open_streams() {
    for signal in [Signal::TERM, Signal::INT] {
        let bench = Bench::with_a_store();
        let mut web = Web::start(&bench, &[]);
        let mut tabs = [web.events(""), web.events("?lock=job")];
        for tab in &mut tabs {
            tab.next().unwrap();
        }
        let ended = web.end_by(signal);
        assert_eq!(ended.code(), Some(0), "{signal:?}");
        for mut tab in tabs {
            while tab.next().is_some() {}
        }
    }
}
