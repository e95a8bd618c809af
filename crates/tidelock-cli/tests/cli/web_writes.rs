//! What `tidelock web --write` changes, and for whom.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bench::{Bench, PATIENCE, Run};
use crate::browser::{Answer, Web};

const TOKEN: &str = "sesame-sesame-sesame";

fn held(bench: &Bench) -> Run {
    let mut holder = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(holder.line(), "in");
    holder
}

/// A page that may write, and knows [`TOKEN`].
fn writing(bench: &Bench) -> Web {
    let file = bench.path("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let file = file.to_str().unwrap().to_owned();
    Web::start(bench, &["--write", "--write-token-file", &file])
}

/// Sends a request with these headers.
fn send(web: &Web, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let first = format!("{method} {path} HTTP/1.0");
    let length = format!("Content-Length: {}", body.len());
    let lines = [&[&*first, &*length], headers].concat();
    web.ask_with(&lines, body)
}

fn unlock(web: &Web, headers: &[&str], body: &Value) -> Answer {
    send(web, "POST", "/api/unlock", headers, &body.to_string())
}

/// The request that unlocks the lock as it is held now.
fn request(bench: &Bench) -> Value {
    let shown = bench.output(&["show", "job", "--json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    let owner = &shown["holders"][0]["owner"];
    json!({ "name": "job", "owners": [owner], "token": shown["token"].to_string() })
}

fn is_held(bench: &Bench) -> bool {
    let shown = bench.output(&["show", "job", "--json"]).stdout;
    serde_json::from_slice::<Value>(&shown).unwrap()["locked"] == true
}

const HOST: &str = "Host: localhost";

fn header(token: &str) -> String {
    format!("X-Tidelock-Write: {token}")
}

#[test]
fn a_lock_is_unlocked_by_who_has_the_token_if_it_is_held_as_expected() {
    let bench = Bench::new();
    let first = held(&bench);
    let mut web = writing(&bench);
    let key = header(TOKEN);
    let headers = [HOST, &*key];
    let former = request(&bench);
    first.signal(Signal::TERM);
    first.end();
    let free = unlock(&web, &headers, &former);
    assert_eq!(free.status, 409, "{}", free.body);
    assert!(free.body.contains("was free"), "{}", free.body);
    let _second = held(&bench);
    let changed = unlock(&web, &headers, &former);
    assert_eq!(changed.status, 409, "{}", changed.body);
    assert!(changed.body.contains("not unlocked"), "{}", changed.body);
    let mut other_token = request(&bench);
    other_token["token"] = json!("1");
    assert_eq!(unlock(&web, &headers, &other_token).status, 409);
    assert!(is_held(&bench));
    let seen = send(&web, "GET", "/api/holder?lock=job", &headers, "");
    let seen: Value = serde_json::from_str(&seen.body).unwrap();
    let asked = json!({ "name": seen["name"], "owners": seen["owners"], "token": seen["token"] });
    assert_eq!(asked, request(&bench));
    let done = unlock(&web, &headers, &asked);
    assert_eq!(
        (done.status, is_held(&bench)),
        (200, false),
        "{}",
        done.body
    );
    web.end_by(Signal::TERM);
    let said = web.said();
    for line in ["was free", "not unlocked", "owner ", "job: unlocked"] {
        assert!(said.contains(line), "no line {line}: {said}");
    }
    assert!(!said.contains(TOKEN), "{said}");
}

#[test]
fn an_unlock_that_is_under_way_at_the_end_gets_its_line() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let mut web = writing(&bench);
    let asked = request(&bench).to_string();
    // Nobody else can write to the file until this connection is dropped.
    let busy = rusqlite::Connection::open(bench.path("locks.db")).unwrap();
    busy.busy_timeout(PATIENCE).unwrap();
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    let key = header(TOKEN);
    let length = format!("Content-Length: {}", asked.len());
    let lines = ["POST /api/unlock HTTP/1.0", HOST, &*key, &*length];
    let _answer = web.send(&lines, &asked);
    // The server has seen that request when it has answered these.
    for _ in 0..10 {
        assert_eq!(web.get("/healthz").status, 200);
    }
    web.end_by(Signal::TERM);
    drop(busy);
    let said = web.said();
    let line = said.lines().find(|line| line.contains(" unlock, owner "));
    let line = line.unwrap_or_else(|| panic!("no line: {said}"));
    assert!(line.contains(": job: "), "{line}");
    assert!(!line.contains("is closed"), "{line}");
}

#[test]
fn a_write_is_refused_without_the_token_or_for_an_unknown_host() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let mut web = writing(&bench);
    let (key, wrong, longer) = (
        header(TOKEN),
        header("sesame-sesame-sesamE"),
        header(&format!("{TOKEN}0")),
    );
    let asked = request(&bench);
    for (headers, status) in [
        (&[HOST][..], 403),
        (&[HOST, "X-Tidelock-Write:"], 403),
        (&[HOST, &wrong], 403),
        (&[HOST, &longer], 403),
        (&[HOST, &key, &key], 403),
        (&["Host: evil.example", &key], 421),
        (&[&key], 421),
        (&[HOST, "Sec-Fetch-Site: cross-site", &key], 403),
    ] {
        let refused = unlock(&web, headers, &asked);
        assert_eq!(refused.status, status, "{headers:?}: {}", refused.body);
        assert!(is_held(&bench), "{headers:?}");
        let seen = send(&web, "GET", "/api/holder?lock=job", headers, "");
        assert_eq!(seen.status, status, "{headers:?}: {}", seen.body);
        assert!(!seen.body.contains("owners"), "{headers:?}: {}", seen.body);
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let refused = send(
            &web,
            method,
            "/api/unlock",
            &[HOST, &key],
            &asked.to_string(),
        );
        assert_eq!(refused.status, 405, "{method}: {}", refused.body);
    }
    for bad in [
        json!({}),
        json!({ "name": "job", "owners": [] }),
        json!({ "name": "job" }),
    ] {
        assert_eq!(unlock(&web, &[HOST, &key], &bad).status, 400, "{bad}");
    }
    assert!(is_held(&bench));
    web.end_by(Signal::TERM);
    let said = web.said();
    assert!(said.contains("a write was refused: wrong token"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
}

#[test]
fn a_page_without_write_unlocks_nothing() {
    let bench = Bench::new();
    let _holder = held(&bench);
    let web = Web::start(&bench, &[]);
    for token in ["", TOKEN] {
        let refused = unlock(&web, &[HOST, &header(token)], &request(&bench));
        assert_eq!(refused.status, 403, "{}", refused.body);
        assert!(refused.body.contains("--write"), "{}", refused.body);
    }
    // Nor does it wait for what a client that may not write has announced.
    let announced = ["POST /api/unlock HTTP/1.0", HOST, "Content-Length: 9"];
    assert_eq!(web.ask(&announced).status, 403);
    assert!(is_held(&bench));
    for path in ["/", "/?lock=job", "/doctor"] {
        let page = web.get(path).body;
        assert!(!page.contains("id=\"unlock"), "{path}: {page}");
    }
}

#[test]
fn a_token_that_could_be_guessed_is_refused() {
    let bench = Bench::with_a_store();
    let file = bench.path("token");
    let named = file.to_str().unwrap();
    let listen = ["web", "--listen", "127.0.0.1:0"];
    for text in ["", "short\n"] {
        std::fs::write(&file, text).unwrap();
        let flags = ["--write", "--write-token-file", named];
        assert_eq!(bench.code(&[&listen[..], &flags].concat()), 64, "{text:?}");
    }
    let flags = ["--write-token-file", named];
    assert_eq!(
        bench.code(&[&listen[..], &flags].concat()),
        64,
        "without --write"
    );
}
