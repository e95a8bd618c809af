//! The options in a URL's query that tidelock handles itself. The rest goes to the driver. No error message repeats a
//! value: it may be part of a password.

use std::path::PathBuf;

use crate::error::Result;
use crate::store::tls::Check;
use crate::store::{TlsFiles, percent};

use crate::store::postgres::address::invalid;

/// The options that tidelock handles itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) table: Option<String>,
    /// `true`: the server's advisory locks. `false`: rows with leases.
    pub(crate) session_locks: bool,
    /// How the server's certificate is checked. `None`: plain text.
    pub(crate) tls: Option<Check>,
    pub(crate) files: TlsFiles,
}

impl Options {
    /// Removes our options from a URL. Returns the remaining URL and the options.
    pub(crate) fn take(url: &str) -> Result<(String, Self)> {
        let mut own = Self::default();
        let Some((base, query)) = url.split_once('?') else {
            return Ok((url.to_owned(), own));
        };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            if !own.set(pair)? {
                rest.push(pair);
            }
        }
        let url = if rest.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", rest.join("&"))
        };
        Ok((url, own))
    }

    /// Stores one option. Returns `false` if the option belongs to the driver.
    fn set(&mut self, pair: &str) -> Result<bool> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // We decode the key as the driver does. Otherwise the driver would read an escaped `sslmode` that we ignore.
        let key = percent::decode(key).ok_or_else(|| invalid(ESCAPES))?;
        let file = |value| path(value).map(Some);
        match &*key {
            "table" => self.table = Some(value.to_owned()),
            "locks" => self.session_locks = kind(value)?,
            "sslmode" => self.tls = check(value)?,
            "sslrootcert" => self.files.ca = file(value)?,
            "sslcert" => self.files.cert = file(value)?,
            "sslkey" => self.files.key = file(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

const ESCAPES: &str = "a % is followed by two hexadecimal digits; write %25 for a %";

fn kind(locks: &str) -> Result<bool> {
    match locks {
        "rows" => Ok(false),
        "session" => Ok(true),
        _ => Err(invalid("locks is rows or session")),
    }
}

/// Stricter than libpq: `require` verifies the server, and the modes that fall back to plain text are errors.
fn check(mode: &str) -> Result<Option<Check>> {
    match mode {
        "disable" => Ok(None),
        "require" | "verify-full" => Ok(Some(Check::Everything)),
        "verify-ca" => Ok(Some(Check::AnyName)),
        "prefer" | "allow" => Err(invalid(
            "sslmode=prefer and sslmode=allow would send in plain text what was to be encrypted, without a word; \
             write verify-full, or disable",
        )),
        _ => Err(invalid(
            "sslmode is disable, require, verify-ca or verify-full",
        )),
    }
}

/// An error names a file that cannot be read. So we reject a value with an `@`: it may be the rest of a password.
fn path(value: &str) -> Result<PathBuf> {
    match percent::decode(value) {
        Some(path) if !path.is_empty() && !value.contains('@') => Ok(path.into()),
        Some(_) => Err(invalid(
            "the name of a PEM file is missing, or has an @; write %40",
        )),
        None => Err(invalid(ESCAPES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_taken_out_of_the_url() {
        let (url, own) = Options::take("postgres://h/d?table=t&keepalives=0").unwrap();
        assert_eq!(url, "postgres://h/d?keepalives=0");
        assert_eq!(own.table.as_deref(), Some("t"));
        assert_eq!((own.tls, own.session_locks), (None, false));
        let (_, own) = Options::take("postgres://h/d?locks=session").unwrap();
        assert!(own.session_locks);
        assert_eq!(Options::take("postgres://h/d").unwrap().1.table, None);
        assert_eq!(
            Options::take("postgres://h/d?table=t").unwrap().0,
            "postgres://h/d"
        );
        let (url, own) = Options::take(
            "postgres://h/d?sslmode=verify-ca&sslrootcert=/a%20b/ca.pem&sslcert=c&sslkey=k",
        )
        .unwrap();
        assert_eq!(url, "postgres://h/d");
        assert_eq!(own.tls, Some(Check::AnyName));
        let files = TlsFiles {
            ca: Some("/a b/ca.pem".into()),
            cert: Some("c".into()),
            key: Some("k".into()),
        };
        assert_eq!(own.files, files);
    }

    #[test]
    fn what_asks_for_tls_gets_it_or_an_error() {
        for (mode, check) in [
            ("sslmode=disable", None),
            ("sslmode=require", Some(Check::Everything)),
            ("sslmode=verify-full", Some(Check::Everything)),
            ("%73slmode=require", Some(Check::Everything)),
            ("sslmode=verify-ca", Some(Check::AnyName)),
        ] {
            let (_, own) = Options::take(&format!("postgres://h/d?{mode}")).unwrap();
            assert_eq!(own.tls, check, "{mode}");
        }
        for bad in [
            "sslmode=prefer",
            "sslmode=allow",
            "sslmode=hunter2",
            "sslrootcert=hunter2@h",
            "sslcert=",
            "locks=hunter2",
        ] {
            let error = Options::take(&format!("postgres://h/d?{bad}")).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
