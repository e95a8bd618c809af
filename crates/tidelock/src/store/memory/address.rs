//! Parses `memory:NAME?like=STORE`.

use crate::error::{Error, ErrorKind, Result};
use crate::store::url::{UrlDialect, UrlOption, UrlSyntax};

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Empty: a store of its own for each client.
    pub(crate) name: String,
    /// The store whose abilities this one has.
    pub(crate) like: String,
}

/// `T`: the name of the other store.
pub(crate) const SYNTAX: UrlSyntax<Option<String>> = UrlSyntax {
    forms: "memory:, memory:NAME?like=redis",
    dialect: UrlDialect::Plain,
    options: &[UrlOption::new(
        "like",
        "the scheme of a URL, `redis-plain` or `postgres-session`",
        "none",
        "has exactly the abilities of that store",
    )],
    set: |like, _, text| {
        *like = Some(text.to_owned());
        Ok(())
    },
    unsupported: &[],
};

impl Address {
    /// Reads what follows `memory:`. The name is taken literally.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains('#') || query.contains('?') {
            // With one of them in the name it would be another store than without.
            return Err(Error::new(ErrorKind::InvalidOptions).because(
                "memory: has no # in its name, and one ? at most (memory:NAME?like=redis)",
            ));
        }
        let like = SYNTAX.read(&format!("memory:?{query}"), |_, like| Ok(like))?;
        Ok(Self {
            name: name.to_owned(),
            like: like.unwrap_or_else(|| "memory".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_the_store_that_it_is_like() {
        let read = |rest| Address::parse(rest).map(|it| (it.name, it.like)).ok();
        let is = |name: &str, like: &str| Some((name.to_owned(), like.to_owned()));
        assert_eq!(read(""), is("", "memory"));
        assert_eq!(read("shop"), is("shop", "memory"));
        assert_eq!(read("?like=redis"), is("", "redis"));
        assert_eq!(
            read("a b//c@d?like=redis-plain"),
            is("a b//c@d", "redis-plain")
        );
        for refused in [
            "shop#",
            "?like=a#b",
            "?like=a?b",
            "?likes=redis",
            "?like=a&like=b",
            "?redis",
        ] {
            assert_eq!(read(refused), None, "{refused}");
        }
    }
}
