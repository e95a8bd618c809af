//! What each store of this build can do, by the name after `memory:?like=`.

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Capabilities, memory};

/// A store, and what it declares.
#[derive(Debug)]
pub(crate) struct Abilities {
    /// The name after `like=`: the URL's scheme, and what the URL adds to it.
    pub(crate) name: &'static str,
    pub(crate) url: &'static str,
    pub(crate) can: Capabilities,
    /// What its plain locks can do, if it has such locks.
    pub(crate) plain: Option<Capabilities>,
}

impl Abilities {
    const fn new(name: &'static str, url: &'static str, can: Capabilities) -> Self {
        Self {
            name,
            url,
            can,
            plain: None,
        }
    }
}

/// The stores of this build.
pub(crate) const ABILITIES: &[Abilities] = &[
    Abilities::new("memory", "memory:", memory::CAPABILITIES),
    #[cfg(feature = "sqlite")]
    Abilities::new("sqlite", "sqlite:", crate::store::sqlite::CAPABILITIES),
    #[cfg(feature = "redis")]
    Abilities {
        plain: Some(crate::store::redis::Layout::Plain.capabilities()),
        ..Abilities::new(
            "redis",
            "redis:",
            crate::store::redis::Layout::Redisson.capabilities(),
        )
    },
    #[cfg(feature = "redis")]
    Abilities {
        plain: Some(crate::store::redis::Layout::Plain.capabilities()),
        ..Abilities::new(
            "redis-plain",
            "redis:…?locks=plain",
            crate::store::redis::Layout::Plain.capabilities(),
        )
    },
    #[cfg(feature = "postgres")]
    Abilities::new(
        "postgres",
        "postgres:",
        crate::store::postgres::CAPABILITIES,
    ),
    #[cfg(feature = "postgres")]
    Abilities::new(
        "postgres-session",
        "postgres:…?locks=session",
        crate::store::postgres::session::CAPABILITIES,
    ),
    #[cfg(feature = "mysql")]
    Abilities::new("mysql", "mysql:", crate::store::mysql::CAPABILITIES),
    #[cfg(feature = "zookeeper")]
    Abilities::new(
        "zookeeper",
        "zookeeper:",
        crate::store::zookeeper::CAPABILITIES,
    ),
    #[cfg(feature = "etcd")]
    Abilities::new("etcd", "etcd:", crate::store::etcd::CAPABILITIES),
    #[cfg(feature = "memcached")]
    Abilities::new(
        "memcached",
        "memcached:",
        crate::store::memcached::CAPABILITIES,
    ),
];

/// The store that has URLs of this scheme: schemes that differ only in how the server is reached are one store.
pub(crate) fn store_of(scheme: &str) -> &str {
    match scheme {
        "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => "redis",
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        "etcds" => "etcd",
        other => other,
    }
}

/// The abilities of the store with this name or scheme.
///
/// # Errors
/// [`ErrorKind::InvalidOptions`] if this build has no such store.
pub(crate) fn find(name: &str) -> Result<&'static Abilities> {
    let store = store_of(name);
    ABILITIES
        .iter()
        .find(|one| one.name == store)
        .ok_or_else(|| {
            let known: Vec<&str> = ABILITIES.iter().map(|one| one.name).collect();
            Error::new(ErrorKind::InvalidOptions).because(format!(
                "the store's URL cannot be used: the option like is no store of this build ({}); each other store is a cargo feature (memory:NAME?like=redis)",
                known.join(", ")
            ))
        })
}
