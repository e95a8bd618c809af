//! The only list of stores: URL scheme → constructor.

use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "testing")]
use crate::store::Capabilities;
use crate::store::{Env, Store, memory, url};

/// The capabilities of the stores in this build, by URL scheme.
#[cfg(feature = "testing")]
pub(crate) const ABILITIES: &[(&str, Capabilities)] = &[
    ("memory:", memory::CAPABILITIES),
    #[cfg(feature = "sqlite")]
    ("sqlite:", crate::store::sqlite::CAPABILITIES),
    #[cfg(feature = "redis")]
    (
        "redis:",
        crate::store::redis::Layout::Redisson.capabilities(),
    ),
    #[cfg(feature = "redis")]
    (
        "redis:…?locks=plain",
        crate::store::redis::Layout::Plain.capabilities(),
    ),
    #[cfg(feature = "postgres")]
    ("postgres:", crate::store::postgres::CAPABILITIES),
    #[cfg(feature = "postgres")]
    (
        "postgres:…?locks=session",
        crate::store::postgres::session::CAPABILITIES,
    ),
    #[cfg(feature = "mysql")]
    ("mysql:", crate::store::mysql::CAPABILITIES),
    #[cfg(feature = "zookeeper")]
    ("zookeeper:", crate::store::zookeeper::CAPABILITIES),
    #[cfg(feature = "etcd")]
    ("etcd:", crate::store::etcd::CAPABILITIES),
    #[cfg(feature = "memcached")]
    ("memcached:", crate::store::memcached::CAPABILITIES),
];

/// The options of the stores' URLs, by store. All forms of Redis have `locks`.
#[cfg(feature = "testing")]
pub(crate) const URL_OPTIONS: &[(&str, &[url::UrlOption])] = &[
    #[cfg(feature = "redis")]
    ("redis", crate::store::redis::address::url::SOCKET.options),
    #[cfg(feature = "redis")]
    ("redis", crate::store::redis::address::url::SENTINEL.options),
    #[cfg(feature = "redis")]
    ("redis", crate::store::redis::address::url::CLUSTER.options),
    #[cfg(feature = "postgres")]
    ("postgres", crate::store::postgres::options::SYNTAX.options),
    #[cfg(feature = "mysql")]
    ("mysql", crate::store::mysql::address::SYNTAX.options),
    #[cfg(feature = "zookeeper")]
    (
        "zookeeper",
        crate::store::zookeeper::address::SYNTAX.options,
    ),
];

/// Opens the store that a URL names.
pub(crate) async fn connect(text: &str, env: &Env) -> Result<Store> {
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    match scheme {
        "memory" => {
            url::no_options(scheme, rest)?;
            Ok(memory::open(rest, env))
        }
        #[cfg(feature = "memcached")]
        "memcached" => crate::store::memcached::connect(text, env).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => crate::store::sqlite::open(rest, env).await,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => crate::store::mysql::connect(text, env).await,
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => crate::store::etcd::connect(text, env).await,
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => crate::store::redis::connect(text, env).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => crate::store::postgres::connect(text, env).await,
        #[cfg(feature = "zookeeper")]
        "zookeeper" => crate::store::zookeeper::connect(text, env).await,
        _ => Err(unknown(scheme)),
    }
}

/// Opens the store on servers that are described without a URL.
#[cfg(feature = "redis")]
pub(crate) async fn connect_topology(
    topology: &crate::redis::Topology,
    env: &Env,
) -> Result<Store> {
    crate::store::redis::connect_topology(topology, env).await
}

fn unknown(scheme: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(format!(
        "no store has the URL scheme {scheme:?}; use memory:, sqlite:PATH, redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster://, \
         postgres://, mysql://, mariadb://, zookeeper://, etcd://, etcds:// and memcached:// \
         (a store may be missing because its cargo feature is off)"
    ))
}
