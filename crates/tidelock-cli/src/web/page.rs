//! The pages, made from `page.html`. Its template escapes all that it shows.

use std::time::Duration;

use askama::Template;
use tidelock::Escaped;

use crate::exit::{Failure, Outcome};
use crate::top::text::brief;
use crate::web::doctor::{self, Found};
use crate::web::sampler::Seen;
use crate::web::view::{Shows, View};

/// A page that misses this many looks is marked as old.
const MISSED: u32 = 3;

/// All pages are one template. The end of its name is what makes it escape for HTML.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    /// Allows the style and the script of a whole page. `None`: only the part that follows the store.
    nonce: Option<&'a str>,
    title: String,
    store: &'a str,
    /// The address of the events. Empty: the page does not follow the store.
    events: String,
    is_all: bool,
    /// Whether locks can be unlocked on the page.
    writes: bool,
    /// The lock that the page can unlock.
    lock: Option<Unlockable<'a>>,
    /// For browsers that run no script.
    every_seconds: Option<u64>,
    taken: Option<Taken>,
    /// Why the store does not show its locks.
    trouble: Option<String>,
    /// `None`: the store has not answered yet.
    shows: Option<Shows>,
}

struct Unlockable<'a> {
    name: &'a str,
    /// The same without characters that cannot be seen.
    shown: String,
}

/// When the picture was taken.
struct Taken {
    at: humantime::Rfc3339Timestamp,
    age: String,
    age_ms: u64,
    /// From this age on it is marked as old.
    late_ms: u64,
}

/// What all pages have in common.
#[derive(Debug)]
pub(super) struct Pages {
    store: String,
    every: Duration,
    writes: bool,
}

impl Pages {
    /// `store`: its URL, without a password.
    pub(super) fn new(store: String, every: Duration, writes: bool) -> Self {
        Self {
            store: Escaped(store).to_string(),
            every,
            writes,
        }
    }

    /// A whole page, and the policy that allows its style and its script and nothing else.
    pub(super) fn whole(&self, view: &View, seen: &Seen) -> Outcome<(String, String)> {
        Self::framed(|nonce| self.page(view, seen, Some(nonce)))
    }

    fn framed(page: impl FnOnce(&str) -> Outcome<String>) -> Outcome<(String, String)> {
        // Random, so that text of a store cannot contain it.
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let page = page(&nonce)?;
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Ok((page, policy))
    }

    /// The page of the doctor. It does not follow the store.
    pub(super) fn doctor(&self, found: &Found) -> Outcome<(String, String)> {
        let shows = doctor::shows(found);
        Self::framed(|nonce| {
            render(&Page {
                nonce: Some(nonce),
                title: "doctor".to_owned(),
                store: &self.store,
                events: String::new(),
                is_all: false,
                writes: self.writes,
                lock: None,
                every_seconds: None,
                taken: None,
                trouble: None,
                shows: Some(shows),
            })
        })
    }

    /// The part of a page that follows the store.
    pub(super) fn part(&self, view: &View, seen: &Seen) -> Outcome<String> {
        self.page(view, seen, None)
    }

    fn page(&self, view: &View, seen: &Seen, nonce: Option<&str>) -> Outcome<String> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let picture = seen.picture.as_ref();
        let taken = picture.map(|(picture, taken)| Taken {
            at: humantime::format_rfc3339_seconds(picture.at),
            age: brief(taken.elapsed()),
            age_ms: millis(taken.elapsed()),
            late_ms: millis(self.every * MISSED),
        });
        let lock = view.lock().filter(|_| self.writes);
        let trouble = seen.trouble.as_deref();
        render(&Page {
            nonce,
            title: view.title(),
            store: &self.store,
            events: view.at("/events"),
            is_all: *view == View::All,
            writes: self.writes,
            lock: lock.map(|name| Unlockable {
                name,
                shown: Escaped(name).to_string(),
            }),
            every_seconds: Some(self.every.as_secs().max(1)),
            taken,
            trouble: trouble.map(|why| Escaped(why).to_string()),
            shows: picture.map(|(picture, _)| Shows::of(view, picture, seen)),
        })
    }
}

fn render(page: &Page<'_>) -> Outcome<String> {
    page.render().map_err(Failure::internal)
}

#[cfg(test)]
mod tests;
