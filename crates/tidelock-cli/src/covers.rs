//! Which store a command works on, and whom its locks exclude: a lock in a store that the others do not use protects nothing.

use std::fmt;
use std::io::IsTerminal;

use serde_json::{Value, json};

use crate::args::StoreArgs;
use crate::exit::{Outcome, say};
use crate::{secret, store};

/// A store, as it is shown to people: without its password. Only of one that a client is connected to: in a URL that cannot be
/// read nobody knows which part of it is the password.
pub(crate) struct Shown {
    url: String,
    covers: &'static str,
}

impl Shown {
    pub(crate) fn of(args: &StoreArgs) -> Outcome<Self> {
        let url = store::url(args)?;
        Ok(Self {
            covers: covers(args.store.as_deref()),
            url: secret::shown(&url),
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

/// Whom a lock in this store excludes. `None`: no store was named.
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

/// Whether news go to somebody who looks: a person at a terminal, or whoever has asked for them.
pub(crate) fn is_watched(args: &StoreArgs) -> bool {
    args.verbose > 0 || std::io::stderr().is_terminal()
}

/// Says on which store a command works that takes or breaks a lock. Others say it with `-v`.
pub(crate) fn tell(args: &StoreArgs) -> Outcome<()> {
    if is_watched(args) {
        say(format!("store: {}", Shown::of(args)?));
    }
    Ok(())
}

/// For those that only look.
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
