//! Reads the URLs of all stores: `scheme://[user[:password]@]host[:port],…[/path][?option=value&…]`.
//!
//! A store declares its options as a table ([`UrlOption`]), and this file does the rest. No error contains the URL or
//! the value of an option, because either may be a part of a password: an unescaped `/`, `?` or `&` in a password ends
//! it early, and the rest of it stands where a path or an option is expected.
#![cfg_attr(
    not(all(
        feature = "etcd",
        feature = "memcached",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    )),
    allow(dead_code, reason = "each store uses a part of it")
)]

mod host;
mod refusal;

use std::path::PathBuf;

pub(crate) use self::host::{UrlHost, host};
pub(crate) use self::refusal::{UrlRefusal, UrlResult, decode};
use crate::error::{Error, ErrorKind, Result};

/// The URLs of a store. `T` collects the values of the options.
pub(crate) struct UrlSyntax<T> {
    /// The forms of such a URL. Every error shows them.
    pub(crate) forms: &'static str,
    pub(crate) dialect: UrlDialect,
    pub(crate) options: &'static [UrlOption],
    /// Stores a decoded value of the option with this name.
    pub(crate) set: fn(&mut T, &'static str, &str) -> UrlResult<()>,
    /// An unknown option whose name contains one of these words is refused with `Unsupported`.
    pub(crate) unsupported: &'static [&'static str],
}

/// An option in the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UrlOption {
    pub(crate) name: &'static str,
    /// The accepted values. The error for any other value shows them.
    pub(crate) value: &'static str,
    /// What holds without the option, in words. For the documentation.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for a test"))]
    pub(crate) default: &'static str,
    /// One line for the documentation.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for a test"))]
    pub(crate) meaning: &'static str,
    /// The value is a user or a password, which is never shown. Other values are refused if they contain an unescaped
    /// `@`, because they would be the rest of a password and could be shown as a file name.
    login: bool,
}

/// A kind of URL, for the documentation.
#[cfg(feature = "testing")]
pub(crate) struct UrlForm {
    /// The cargo feature of the store.
    pub(crate) store: &'static str,
    pub(crate) forms: &'static str,
    pub(crate) options: &'static [UrlOption],
}

#[cfg(feature = "testing")]
impl UrlForm {
    /// A URL that is taken literally, so it has no options.
    pub(crate) const fn literal(store: &'static str, forms: &'static str) -> Self {
        Self {
            store,
            forms,
            options: &[],
        }
    }
}

#[cfg(feature = "testing")]
impl<T> UrlSyntax<T> {
    pub(crate) const fn form(&self, store: &'static str) -> UrlForm {
        UrlForm {
            store,
            forms: self.forms,
            options: self.options,
        }
    }
}

impl UrlOption {
    pub(crate) const fn new(
        name: &'static str,
        value: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            name,
            value,
            default,
            meaning,
            login: false,
        }
    }

    /// A user or a password.
    pub(crate) const fn login(name: &'static str, meaning: &'static str) -> Self {
        Self {
            login: true,
            ..Self::new(name, "a text", "none", meaning)
        }
    }
}

/// The stores' drivers disagree about three characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlDialect {
    /// `#` is refused; in an option `+` is a space. The login ends at the last `@` before the path.
    Web,
    /// `#` and `+` have no special meaning.
    Plain,
    /// Like `Plain`, but the login ends at the first `@`, so that a password may contain `/` and `?`.
    Libpq,
}

/// The page with the options of all stores.
const OPTIONS_PAGE: &str = "https://docs.rs/tidelock/latest/tidelock/url_options";

/// The parts of a URL.
pub(crate) struct UrlParts<'a> {
    pub(crate) scheme: &'a str,
    /// `None` if it is empty.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    hosts: Vec<UrlHost>,
    /// With its leading slash and its escapes; see [`decode`].
    pub(crate) path: &'a str,
}

impl<T: Default> UrlSyntax<T> {
    /// Parses a URL. `build` makes the store's address from the parts and the values of the options.
    pub(crate) fn read<A>(
        &self,
        text: &str,
        build: impl FnOnce(UrlParts<'_>, T) -> UrlResult<A>,
    ) -> Result<A> {
        let parsed = self
            .split(text)
            .and_then(|(parts, values)| build(parts, values));
        parsed.map_err(|refusal| self.refused(refusal))
    }

    /// Refuses a user without a password, for a store that needs both or none. Not for a client with credentials: these may
    /// have the password.
    pub(crate) fn check_login(&self, user: Option<&str>, password: Option<&str>) -> Result<()> {
        if user.is_some() && password.is_none() {
            return Err(self.refused("a user needs a password: user:password@host".into()));
        }
        Ok(())
    }

    fn refused(&self, UrlRefusal { kind, why }: UrlRefusal) -> Error {
        let forms = self.forms;
        Error::new(kind).because(format!("the store's URL cannot be used: {why} ({forms})"))
    }

    fn split<'a>(&self, text: &'a str) -> UrlResult<(UrlParts<'a>, T)> {
        if text.contains(char::is_control) {
            return Err("a control character is written with a %, such as %0A".into());
        }
        let (scheme, rest) = text
            .split_once(':')
            .ok_or("it is no URL: the scheme is missing")?;
        if self.dialect == UrlDialect::Web && rest.contains('#') {
            return Err("the part after # means nothing here; write %23 for a #".into());
        }
        // Only the URL of a socket has no authority.
        let (login, authority, rest) = match rest.strip_prefix("//") {
            Some(rest) => self.authority(rest)?,
            None => (None, "", rest),
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_local = login.is_none() && authority.is_empty();
        if authority.contains('@') || path.contains('@') && !is_local {
            return Err(
                "write %2F for a / and %40 for an @ in a password, and %40 for an @ in the path"
                    .into(),
            );
        }
        let login = login.unwrap_or_default();
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let parts = UrlParts {
            scheme,
            user: Some(decode(user)?).filter(|user| !user.is_empty()),
            password: password.map(decode).transpose()?,
            hosts: match authority {
                "" => Vec::new(),
                hosts => hosts.split(',').map(host).collect::<UrlResult<_>>()?,
            },
            path,
        };
        Ok((parts, self.values(query)?))
    }

    /// Splits the part behind `//` into login, hosts, and path with query.
    fn authority<'a>(&self, rest: &'a str) -> UrlResult<(Option<&'a str>, &'a str, &'a str)> {
        let (first, rest) = match rest.split_once('@') {
            Some((login, rest)) if self.dialect == UrlDialect::Libpq => (Some(login), rest),
            _ => (None, rest),
        };
        if let Some(login) = first {
            // The rest of the password would be read as a host, a database or an option. Without a login, the `@` is
            // in an option.
            let is_option = |pair: &str| {
                let name = pair
                    .split('=')
                    .next()
                    .and_then(crate::store::percent::decode);
                self.options
                    .iter()
                    .any(|option| Some(option.name) == name.as_deref())
            };
            let mut options = login.split(['?', '&']).skip(1);
            if login.contains(':') && rest.contains('@') || options.any(is_option) {
                return Err(
                    "write %40 for an @ in a password or an option, and %3F for a ? in a password"
                        .into(),
                );
            }
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        Ok(match (first, authority.rsplit_once('@')) {
            (None, Some((login, hosts))) => (Some(login), hosts, rest),
            _ => (first, authority, rest),
        })
    }

    fn values(&self, query: &str) -> UrlResult<T> {
        let mut values = T::default();
        let mut given: Vec<&UrlOption> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = self.decode_option(name)?;
            let Some(option) = self.options.iter().find(|option| option.name == name) else {
                // The name may be the rest of a password with an unescaped `?` or `&`.
                let may_be_shown = pair.contains('=')
                    && !query.contains('@')
                    && !given.iter().any(|option| option.login);
                return Err(self.unknown(&name, may_be_shown));
            };
            if given.iter().any(|other| other.name == name) {
                return Err(format!("the option {name} is given twice").into());
            }
            if value.contains('@') && !option.login {
                return Err(format!(
                    "write %3F for a ? in a password, and %40 for an @ in the option {name}"
                )
                .into());
            }
            let value = self.decode_option(value)?;
            (self.set)(&mut values, option.name, &value).map_err(|refusal| UrlRefusal {
                why: match &*refusal.why {
                    "" => format!("the option {name} is {}", option.value),
                    why => format!("the option {name} is {}; {why}", option.value),
                },
                ..refusal
            })?;
            given.push(option);
        }
        Ok(values)
    }

    fn decode_option(&self, text: &str) -> UrlResult<String> {
        if self.dialect == UrlDialect::Web {
            decode(&text.replace('+', " "))
        } else {
            decode(text)
        }
    }

    fn unknown(&self, name: &str, may_be_shown: bool) -> UrlRefusal {
        let names: Vec<&str> = self.options.iter().map(|option| option.name).collect();
        let known = match &*names {
            [] => "it has no options".to_owned(),
            names => format!("its options are {} ({OPTIONS_PAGE})", names.join(", ")),
        };
        let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let unknown = if may_be_shown && name.len() <= 32 && name.chars().all(is_usual) {
            format!("{name} is none of its options")
        } else {
            "it has an unknown option (write %3F for a ? in a password, and %26 for an &)"
                .to_owned()
        };
        // Other libraries have an option for it.
        let is_path = matches!(name, "db" | "database" | "dbname")
            && ["/db", "/database"]
                .iter()
                .any(|part| self.forms.contains(part));
        let path = if is_path {
            "; the database is the path of the URL"
        } else {
            ""
        };
        let unsupported = self.unsupported.iter().any(|word| name.contains(word));
        UrlRefusal {
            kind: if unsupported {
                ErrorKind::Unsupported
            } else {
                ErrorKind::InvalidOptions
            },
            why: format!("{unknown}{path}; {known}"),
        }
    }
}

impl UrlParts<'_> {
    /// All hosts, perhaps none.
    pub(crate) fn all_hosts(&self) -> &[UrlHost] {
        &self.hosts
    }

    /// All hosts, at least one.
    pub(crate) fn hosts(&self) -> UrlResult<&[UrlHost]> {
        match &*self.hosts {
            [] => Err("the host is missing".into()),
            hosts => Ok(hosts),
        }
    }

    /// The only host.
    pub(crate) fn host(&self) -> UrlResult<&UrlHost> {
        match self.hosts()? {
            [host] => Ok(host),
            _ => Err("it has more than one host".into()),
        }
    }

    /// Whether the URL has neither host nor login.
    pub(crate) fn is_local(&self) -> bool {
        self.hosts.is_empty() && self.user.is_none() && self.password.is_none()
    }

    /// User and password, for a store that needs both or none: see [`UrlSyntax::check_login`]. A password without a user is
    /// for the user without a name.
    pub(crate) fn login(&self) -> (Option<String>, Option<String>) {
        let user = match (&self.user, &self.password) {
            (None, Some(_)) => Some(String::new()),
            (user, _) => user.clone(),
        };
        (user, self.password.clone())
    }
}

/// Stores the path of a file.
pub(crate) fn file(slot: &mut Option<PathBuf>, path: &str) -> UrlResult<()> {
    if path.is_empty() {
        return Err(UrlRefusal::value());
    }
    *slot = Some(PathBuf::from(path));
    Ok(())
}

/// Refuses options in a URL that is a literal text: the text with an option would name another store than without.
#[cfg(feature = "sqlite")]
pub(crate) fn no_options(scheme: &str, rest: &str) -> Result<()> {
    if rest.contains(['?', '#']) {
        return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
            "{scheme}: has no options, and with ? or # in it the text would name another store than without"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
