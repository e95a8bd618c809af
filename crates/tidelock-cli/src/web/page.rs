//! The pages, made from `page.html`. Its template escapes all that it shows.

use std::time::Duration;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};
use tidelock::Escaped;

use crate::exit::{Failure, Outcome};
use crate::top::text::brief;
use crate::web::doctor::{self, Found};
use crate::web::sampler::Seen;
use crate::web::view::{Shows, View};

/// The end of the name is what makes the template escape for HTML.
const NAME: &str = "page.html";

/// A page that misses this many looks is marked as old.
const MISSED: u32 = 3;

/// All pages are one template.
#[derive(Debug)]
pub(super) struct Pages {
    templates: Environment<'static>,
    store: String,
    every: Duration,
    /// Whether locks can be unlocked on the page.
    writes: bool,
}

impl Pages {
    /// `store`: its URL, without a password.
    pub(super) fn new(store: String, every: Duration, writes: bool) -> Outcome<Self> {
        let mut templates = Environment::new();
        // A wrong name in the template is an error and no empty text.
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        // The only filter of the template: all those of the library would add a fifth of a megabyte to the program.
        templates.add_filter("length", |list: &Value| list.len());
        templates
            .add_template(NAME, include_str!("page.html"))
            .map_err(Failure::internal)?;
        Ok(Self {
            templates,
            store: Escaped(store).to_string(),
            every,
            writes,
        })
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
            self.render(context! {
                nonce => nonce,
                title => "doctor",
                store => &*self.store,
                events => "",
                is_all => false,
                writes => self.writes,
                lock => (),
                every_seconds => (),
                late_ms => (),
                age => (),
                age_ms => (),
                at => (),
                trouble => (),
                shows => Serde(shows),
            })
        })
    }

    /// The part of a page that follows the store.
    pub(super) fn part(&self, view: &View, seen: &Seen) -> Outcome<String> {
        self.page(view, seen, None)
    }

    fn page(&self, view: &View, seen: &Seen, nonce: Option<&str>) -> Outcome<String> {
        let picture = seen.picture.as_ref();
        let age = picture.map(|(_, taken)| taken.elapsed());
        let trouble = seen.trouble.as_deref().map(|why| Escaped(why).to_string());
        let values = context! {
            nonce => nonce,
            title => view.title(),
            store => &*self.store,
            events => view.at("/events"),
            is_all => *view == View::All,
            writes => self.writes,
            lock => view.lock().filter(|_| self.writes).map(|name| context! { name, shown => Escaped(name).to_string() }),
            every_seconds => self.every.as_secs().max(1),
            late_ms => u64::try_from((self.every * MISSED).as_millis()).unwrap_or(u64::MAX),
            age => age.map(brief),
            age_ms => age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            at => picture.map(|(picture, _)| humantime::format_rfc3339_seconds(picture.at).to_string()),
            trouble => trouble,
            shows => picture.map(|(picture, _)| Serde(Shows::of(view, picture, seen))),
        };
        self.render(values)
    }

    fn render(&self, values: Value) -> Outcome<String> {
        let template = self
            .templates
            .get_template(NAME)
            .map_err(Failure::internal)?;
        template.render(values).map_err(Failure::internal)
    }
}

#[cfg(test)]
mod tests;
