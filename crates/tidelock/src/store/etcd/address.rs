//! Parses the store's URL: addresses, prefix and login. No message ever contains the URL, because it may hold a
//! password.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::error::{Error, ErrorKind, Result};

/// The parts of a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) places: Vec<MemberAddress>,
    /// Prefix of every key.
    pub(crate) prefix: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// The address of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
}

impl Address {
    /// Reads `etcd://[user:password@]host[:port],…[/prefix]` or `etcds://…`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| invalid("// is missing"))?;
        let tls = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(invalid("its scheme is neither etcd nor etcds")),
        };
        if rest.contains(['?', '#']) {
            return Err(invalid("it has no options; write %3F for ? and %23 for #"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // A bare `/` in a password would make the rest of the password the prefix of all keys, and the user a host.
        if path.contains('@') {
            return Err(invalid(
                "write %2F for a / in a password, and %40 for an @ in the prefix",
            ));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login {
            Some(login) => {
                let (user, password) = login
                    .split_once(':')
                    .ok_or_else(|| invalid("a user needs a password: user:password@host"))?;
                (Some(decode(user)?), Some(decode(password)?))
            }
            None => (None, None),
        };
        Ok(Self {
            places: hosts
                .split(',')
                .map(|host| address(host, tls))
                .collect::<Result<_>>()?,
            prefix: decode(path)?,
            user,
            password,
        })
    }
}

/// Parses `host`, `host:port` or `[ipv6]:port`.
fn address(text: &str, tls: bool) -> Result<MemberAddress> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(invalid("a host is missing"));
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| invalid("a port is no number"))?,
        None => 2379,
    };
    Ok(MemberAddress {
        host: decode(host)?,
        port,
        tls,
    })
}

fn decode(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| invalid("it is not UTF-8"))
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "the store's URL cannot be used: {why} (etcd://user:password@host:port,host:port/prefix, etcds://…)"
    ))
}

impl fmt::Display for MemberAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Shows the addresses only, never the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.places.iter().map(ToString::to_string))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_members_prefix_and_user() {
        let target = Address::parse("etcds://me:p%40ss@a,b:7,[::1]:9//shop/locks").unwrap();
        let places: Vec<String> = target.places.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["etcds://a:2379", "etcds://b:7", "etcds://[::1]:9"]);
        assert_eq!(target.prefix, "/shop/locks");
        assert_eq!(target.user.as_deref(), Some("me"));
        assert_eq!(target.password.as_deref(), Some("p@ss"));
        assert_eq!(Address::parse("etcd://h").unwrap().prefix, "");
        assert!(!format!("{target:?}").contains("p@ss"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_the_password() {
        for url in [
            "etcd:hunter2",
            "etcd://u:hunter2@",
            "etcd://u:hunter2@h,/p",
            "etcd://u:hunter2@h:x",
            "etcd://u:hunter2@h/p?hunter2",
            "etcd://hunter2@h",
            "etcd://u:1/hunter2@h",
            "etcd://u:hunter2%ff@h",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
