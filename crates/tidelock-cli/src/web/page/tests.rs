use std::sync::Arc;
use std::time::Duration;

use tidelock::{Finding, Severity};
use tokio::time::Instant;

use super::*;
use crate::top::leaders::Task;
use crate::top::picture::Picture;
use crate::top::sample::{evil, picture};

/// Names that do harm on a page that shows them as they are.
const HOSTILE: [&str; 8] = [
    "<img src=x onerror=alert(1)>",
    "\"><script>alert(1)</script>",
    "' onfocus='alert(1)' autofocus='",
    "</script><script>alert(1)</script>",
    "</title></style></main><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}{#",
    "&lt;b&gt;&amp;\r\n\ndata: x\u{202e}\u{0}",
];

fn pages() -> Pages {
    Pages::new("redis://cache-1".to_owned(), Duration::from_secs(2), true)
}

fn seen(picture: Picture) -> Seen {
    let mut seen = Seen::default();
    let now = Instant::now();
    Arc::make_mut(&mut seen.timeline).add(&picture, now);
    seen.picture = Some((Arc::new(picture), now));
    seen
}

/// The picture, and all that others wrote in it is this text.
fn hostile(text: &str) -> Picture {
    let mut hostile = picture();
    for lock in &mut hostile.locks {
        lock.name = text.to_owned();
        lock.kind = text.to_owned();
        for holder in &mut lock.holders {
            holder.who = text.to_owned();
            holder.owner = Some(text.to_owned());
        }
        for one in &mut lock.waiting {
            one.who = text.to_owned();
            one.client = text.to_owned();
        }
    }
    for process in &mut hostile.processes {
        process.who = text.to_owned();
        process.client = text.to_owned();
    }
    for row in &mut hostile.tasks {
        row.name = text.to_owned();
        row.who = text.to_owned();
        row.client = text.to_owned();
        match &mut row.task {
            Task::Candidate { identity, .. } => *identity = text.to_owned(),
            Task::Job { slot, state, .. } => (*slot, *state) = (text.to_owned(), text.to_owned()),
        }
    }
    hostile
}

fn views(name: &str) -> [View; 3] {
    [
        View::All,
        View::Lock(name.to_owned()),
        View::Process(name.to_owned()),
    ]
}

/// The elements of a page, without their texts and the values of their attributes.
fn elements(page: &str) -> Vec<String> {
    let mut elements = Vec::new();
    let mut rest = page;
    while let Some((_, tag)) = rest.split_once('<') {
        let mut quoted = false;
        let end = tag.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, after) = tag.split_at(end.expect("a tag has an end"));
        let odd = tag.split('"').step_by(2);
        elements.push(odd.collect::<String>());
        rest = after;
    }
    elements
}

/// Whatever text others wrote, the page has the elements and attributes that it has with harmless text.
#[test]
fn no_text_of_the_store_becomes_a_part_of_the_page() {
    let pages = pages();
    for text in HOSTILE {
        // A colon divides an owner into its client and a number.
        let is_tame = |c: char| c.is_ascii_alphanumeric() || c == ':';
        let tame: String = text.replace(|c| !is_tame(c), "x");
        for (view, same) in views(text).into_iter().zip(views(&tame)) {
            let shown = pages.part(&view, &seen(hostile(text))).unwrap();
            let harmless = pages.part(&same, &seen(hostile(&tame))).unwrap();
            assert_eq!(elements(&shown), elements(&harmless), "{text}: {shown}");
            let (whole, _) = pages.whole(&view, &seen(hostile(text))).unwrap();
            assert_eq!(whole.matches("<script").count(), 1, "{whole}");
            assert_eq!(whole.matches("</script").count(), 1, "{whole}");
            assert!(!whole.contains("href=\"javascript:"), "{whole}");
        }
        let findings = |text: &str| Ok([Finding::new(Severity::Advice, text, text, text)].into());
        let (shown, _) = pages.doctor(&findings(text)).unwrap();
        let (harmless, _) = pages.doctor(&findings(&tame)).unwrap();
        assert_eq!(elements(&shown), elements(&harmless), "{text}: {shown}");
        let (shown, _) = pages.doctor(&Err(text.into())).unwrap();
        let (harmless, _) = pages.doctor(&Err((*tame).into())).unwrap();
        assert_eq!(elements(&shown), elements(&harmless), "{text}: {shown}");
        let mut trouble = seen(picture());
        trouble.trouble = Some(text.into());
        let shown = pages.part(&View::All, &trouble).unwrap();
        trouble.trouble = Some("harmless".into());
        let harmless = pages.part(&View::All, &trouble).unwrap();
        assert_eq!(elements(&shown), elements(&harmless), "{text}: {shown}");
    }
}

#[test]
fn characters_that_cannot_be_seen_are_shown_escaped() {
    for view in views(crate::top::sample::EVIL) {
        let page = pages().part(&view, &seen(evil())).unwrap();
        assert!(page.contains("evil\\n"), "{page}");
        for unseen in ['\u{1b}', '\u{9b}', '\u{202e}'] {
            assert!(!page.contains(unseen), "{page}");
        }
    }
}

#[test]
fn the_address_of_a_lock_leads_to_it() {
    let names = ["order:42", "a/b", "..", ".", "a&lock=b", "%2e", "ü +", ""];
    for name in HOSTILE.into_iter().chain(names) {
        for view in views(name) {
            let at = view.at("/");
            let query = at.split_once('?').map(|(_, query)| query);
            assert_eq!(View::of(query), view, "{at}");
            let is_harmless = |c: char| c.is_ascii_alphanumeric() || "/?=%+-._*".contains(c);
            assert!(at.chars().all(is_harmless), "{at}");
        }
    }
}

#[test]
fn a_page_says_who_holds_and_who_waits() {
    let pages = pages();
    let page = |view: View| pages.part(&view, &seen(picture())).unwrap();
    let all = page(View::All);
    for part in [
        "href=\"/?lock=order%3Astock%3A42\">order:stock:42</a>",
        "shop 1.9 (4121 on web-3)</a>",
        "job (77 on job-1): process gone, free in 9s",
        "class=\"contended\"",
        "class=\"gone\"",
        ">2+<",
        "<dt>waiters</dt><dd>6+</dd>",
        "26s 300ms",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let lock = page(View::Lock("order:stock:42".to_owned()));
    for part in ["<h1>order:stock:42</h1>", "process=b\"", "<dd>88121</dd>"] {
        assert!(lock.contains(part), "{part}: {lock}");
    }
    let java = page(View::Lock("invoice\n7".to_owned()));
    assert!(java.contains("? who tells nothing"), "{java}");
    for part in [
        "<caption>Elections, and jobs that run once</caption>",
        "web-3: shop 1.9 (4121 on web-3)</a>",
        ">running: process gone<",
        ">2026-11-23T12:00:00Z<",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let process = page(View::Process("b".to_owned()));
    assert!(
        process.contains("billing</a>") && !process.contains("report</a>"),
        "{process}"
    );
    for part in [
        "<h1>shop 1.9 (88 on web-1)</h1>",
        "lock=order",
        "connected since",
    ] {
        assert!(process.contains(part), "{part}: {process}");
    }
    let free = page(View::Lock("free".to_owned()));
    assert!(free.contains("nobody is known to hold this lock"), "{free}");
}

#[test]
fn a_page_without_a_picture_says_so() {
    let pages = pages();
    let mut nothing = Seen::default();
    let page = pages.part(&View::All, &nothing).unwrap();
    assert!(page.contains("has not answered yet"), "{page}");
    nothing.trouble = Some("it hangs".into());
    let page = pages.part(&View::All, &nothing).unwrap();
    assert!(page.contains("it hangs"), "{page}");
    let mut old = seen(picture());
    old.trouble = Some("it hangs".into());
    let page = pages.part(&View::All, &old).unwrap();
    assert!(
        page.contains("it hangs") && page.contains("ago, at "),
        "{page}"
    );
    assert!(page.contains("order:stock:42"), "the last picture: {page}");
}

#[test]
fn the_policy_allows_the_style_and_the_script_of_this_page_only() {
    let pages = pages();
    let (page, policy) = pages.whole(&View::All, &seen(picture())).unwrap();
    let nonce = policy.split("'nonce-").nth(1).unwrap();
    let nonce = nonce.split('\'').next().unwrap();
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    for forbidden in ["unsafe", "http:", "https:", "data:", "*"] {
        assert!(!policy.contains(forbidden), "{policy}");
    }
    assert!(policy.contains("default-src 'none'") && policy.contains("base-uri 'none'"));
    for inline in [
        " style=",
        " onclick=",
        "href=\"http",
        "src=",
        "@import",
        "url(",
    ] {
        assert!(!page.contains(inline), "{inline}");
    }
    let (_, other) = pages.whole(&View::All, &seen(picture())).unwrap();
    assert_ne!(policy, other, "a nonce is used once");
}
