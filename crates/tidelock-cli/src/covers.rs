//! Reports the store a command uses and its scope. A lock in a store that the other users do not share protects
//! nothing.

use std::borrow::Cow;
use std::fmt;
use std::io::IsTerminal;

use serde_json::{Value, json};

use crate::args::StoreArgs;
use crate::exit::{Outcome, say};
use crate::{secret, store};

/// A store's URL without its password, for display. Only for a store that a client is connected to: in an invalid URL
/// we cannot tell the password from the rest.
#[derive(Debug)]
pub(crate) struct Shown {
    url: String,
    covers: Cow<'static, str>,
}

impl Shown {
    pub(crate) fn of(args: &StoreArgs) -> Outcome<Self> {
        let url = store::url(args)?;
        Ok(Self {
            covers: covers(args.store.as_deref()).into(),
            url: secret::shown(&url),
        })
    }

    /// The store of a line that was recorded. `None`: the line names none.
    pub(crate) fn of_json(store: &Value) -> Option<Self> {
        Some(Self {
            url: store["url"].as_str()?.to_owned(),
            covers: store["covers"].as_str()?.to_owned().into(),
        })
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({ "url": self.url, "covers": self.covers })
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.url, self.covers)
    }
}

/// The users that a lock in this store excludes. `None`: no store was named.
fn covers(named: Option<&str>) -> &'static str {
    let Some(url) = named else {
        return "this user on this machine";
    };
    match url.split_once(':') {
        Some(("sqlite", "machine")) => "the users of this machine who share its store",
        Some(("sqlite", _)) => "all who use this file on this machine",
        _ => "all who use this server, on any machine",
    }
}

/// Whether progress messages have a reader: a person at a terminal, or a user who passed `-v`.
pub(crate) fn is_watched(args: &StoreArgs) -> bool {
    args.verbose > 0 || std::io::stderr().is_terminal()
}

/// Prints the store of a command that acquires or breaks a lock. Other commands print it only with `-v`.
pub(crate) fn tell(args: &StoreArgs) -> Outcome<()> {
    if is_watched(args) {
        say(format!("store: {}", Shown::of(args)?));
    }
    Ok(())
}

/// The same for commands that only read: prints the store only with `-v`.
pub(crate) fn tell_if_asked(args: &StoreArgs) -> Outcome<()> {
    if args.verbose > 0 {
        say(format!("store: {}", Shown::of(args)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_said_to_cover_whom_it_excludes() {
        for (url, covered) in [
            (None, "this user on this machine"),
            (Some("sqlite:machine"), "users of this machine"),
            (Some("sqlite:/var/lib/shop/locks.db"), "this file"),
            (Some("sqlite:machine.db"), "this file"),
            (Some("redis://10.0.0.1"), "any machine"),
            (Some("etcd://[2001:db8::1]:2379"), "any machine"),
        ] {
            let text = covers(url);
            assert!(text.contains(covered), "{url:?}: {text}");
        }
    }
}
