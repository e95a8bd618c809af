//! Parses the store's URL: addresses, prefix and login.

use std::fmt;

use crate::error::Result;
use crate::store::url::{UrlDialect, UrlHost, UrlSyntax, decode};

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

pub(crate) const SYNTAX: UrlSyntax<()> = UrlSyntax {
    forms: "etcd://user:password@host:port,host:port/prefix, etcds://…",
    dialect: UrlDialect::Web,
    options: &[],
    set: |(), _, _| Ok(()),
    unsupported: &[],
};

impl Address {
    pub(crate) fn is_secured(&self) -> bool {
        self.places.iter().any(|place| place.tls)
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        SYNTAX.read(text, |url, ()| {
            let tls = match url.scheme {
                "etcd" => false,
                "etcds" => true,
                _ => return Err("its scheme is neither etcd nor etcds".into()),
            };
            let (user, password) = url.login();
            let member = |host: &UrlHost| MemberAddress {
                host: host.host.clone(),
                port: host.port.unwrap_or(2379),
                tls,
            };
            Ok(Self {
                places: url.hosts()?.iter().map(member).collect(),
                prefix: decode(url.path.strip_prefix('/').unwrap_or(url.path))?,
                user,
                password,
            })
        })
    }
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
    use crate::error::ErrorKind;

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
    fn a_mistaken_url_is_refused_without_showing_the_password() {
        for url in [
            "etcd:hunter2",
            "etcd://u:hunter2@",
            "etcd://u:hunter2@h,/p",
            "etcd://u:hunter2@h:x",
            "etcd://u:hunter2@h/p?hunter2",
            "etcd://u:1/hunter2@h",
            "etcd://u:hunter2%ff@h",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
