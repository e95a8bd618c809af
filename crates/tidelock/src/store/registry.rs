//! The only list of stores: URL scheme → constructor.

use crate::error::{Error, ErrorKind, Result};
use crate::store::lazy::StoreOutline;
#[cfg(feature = "testing")]
use crate::store::url;
use crate::store::{Env, Store, abilities, memory};

/// The URLs of the stores in this build, with their options.
#[cfg(feature = "testing")]
pub(crate) const URL_OPTIONS: &[url::UrlForm] = &[
    memory::address::SYNTAX.form("memory"),
    #[cfg(feature = "sqlite")]
    url::UrlForm::literal("sqlite", "sqlite:PATH, sqlite:machine"),
    #[cfg(feature = "redis")]
    crate::store::redis::address::url::SERVER.form("redis"),
    #[cfg(feature = "redis")]
    crate::store::redis::address::url::SOCKET.form("redis"),
    #[cfg(feature = "redis")]
    crate::store::redis::address::url::SENTINEL.form("redis"),
    #[cfg(feature = "redis")]
    crate::store::redis::address::url::CLUSTER.form("redis"),
    #[cfg(feature = "postgres")]
    crate::store::postgres::options::SYNTAX.form("postgres"),
    #[cfg(feature = "mysql")]
    crate::store::mysql::address::SYNTAX.form("mysql"),
    #[cfg(feature = "zookeeper")]
    crate::store::zookeeper::address::SYNTAX.form("zookeeper"),
    #[cfg(feature = "etcd")]
    crate::store::etcd::address::SYNTAX.form("etcd"),
    #[cfg(feature = "memcached")]
    crate::store::memcached::address::SYNTAX.form("memcached"),
];

/// A store: its cargo feature and whether this build has it (`None`: always there), its name, and the forms of its URLs.
type StoreEntry = (
    Option<(&'static str, bool)>,
    &'static str,
    &'static [&'static str],
);

#[rustfmt::skip] // a table, with one row a line
const STORES: &[StoreEntry] = &[
    (None, "memory", &["memory: (one process only)"]),
    (Some(("sqlite", cfg!(feature = "sqlite"))), "SQLite", &["sqlite:PATH", "sqlite:machine"]),
    (Some(("redis", cfg!(feature = "redis"))), "Redis", &["redis://", "rediss://", "redis+unix:", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"]),
    (Some(("postgres", cfg!(feature = "postgres"))), "PostgreSQL", &["postgres://", "postgresql://"]),
    (Some(("mysql", cfg!(feature = "mysql"))), "MySQL", &["mysql://", "mariadb://"]),
    (Some(("zookeeper", cfg!(feature = "zookeeper"))), "ZooKeeper", &["zookeeper://"]),
    (Some(("etcd", cfg!(feature = "etcd"))), "etcd", &["etcd://", "etcds://"]),
    (Some(("memcached", cfg!(feature = "memcached"))), "memcached", &["memcached://"]),
];

/// Opens the store that a URL names.
#[allow(
    clippy::unused_async,
    reason = "a build may have no store but `memory:`"
)]
pub(crate) async fn connect(text: &str, env: &Env) -> Result<Store> {
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    match scheme {
        "memory" => {
            let address = memory::address::Address::parse(rest)?;
            let like = abilities::find(&address.like)?;
            memory::open(&address.name, like.can, like.plain, env)
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

/// Checks a URL, and tells what its store can do. Sends nothing.
pub(crate) fn outline(text: &str, env: &Env) -> Result<StoreOutline> {
    let _ = env; // `memory:` and `sqlite:` do not need it, and a build may have no other stores
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    match scheme {
        "memory" => outline_of(&memory::address::Address::parse(rest)?.like),
        #[cfg(feature = "memcached")]
        "memcached" => {
            crate::store::memcached::target(text, env)?;
            outline_of(scheme)
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            crate::store::sqlite::target(rest)?;
            outline_of(scheme)
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            crate::store::mysql::target(text, env)?;
            outline_of(scheme)
        }
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => {
            crate::store::etcd::target(text, env)?;
            outline_of(scheme)
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => {
            outline_of_redis(&crate::store::redis::target(text, env)?)
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let target = crate::store::postgres::target(text, env)?;
            outline_of(if target.session_locks {
                "postgres-session"
            } else {
                scheme
            })
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => {
            crate::store::zookeeper::target(text, env)?;
            outline_of(scheme)
        }
        _ => Err(unknown(scheme)),
    }
}

/// Like [`outline`], for servers that are described without a URL.
#[cfg(feature = "redis")]
pub(crate) fn outline_topology(
    topology: &crate::redis::Topology,
    env: &Env,
) -> Result<StoreOutline> {
    outline_of_redis(&crate::store::redis::target_of(topology, env)?)
}

#[cfg(feature = "redis")]
fn outline_of_redis(target: &crate::store::redis::address::Address) -> Result<StoreOutline> {
    let layout = if target.plain_locks {
        "redis-plain"
    } else {
        "redis"
    };
    outline_of(layout)
}

/// The outline of a store with this name or scheme.
fn outline_of(name: &str) -> Result<StoreOutline> {
    let abilities = abilities::find(name)?;
    Ok(StoreOutline {
        label: abilities.name,
        can: abilities.can,
        plain: abilities.plain,
    })
}

/// Opens the store on servers that are described without a URL.
#[cfg(feature = "redis")]
pub(crate) async fn connect_topology(
    topology: &crate::redis::Topology,
    env: &Env,
) -> Result<Store> {
    crate::store::redis::connect_topology(topology, env).await
}

/// The error for a URL scheme without a store in this build.
fn unknown(scheme: &str) -> Error {
    unknown_among(STORES, scheme)
}

/// As [`unknown`], if these are the stores.
fn unknown_among(stores: &[StoreEntry], scheme: &str) -> Error {
    let error = Error::new(ErrorKind::InvalidOptions);
    let is_of = |form: &str| form.split(':').next() == Some(scheme);
    for (feature, name, forms) in stores {
        if let Some((feature, false)) = feature
            && forms.iter().any(|form| is_of(form))
        {
            return error.because(format!(
                "this build has no {name}: add the cargo feature `{feature}` of tidelock"
            ));
        }
    }
    let present = stores
        .iter()
        .filter(|(feature, ..)| feature.is_none_or(|(_, present)| present));
    let forms: Vec<&str> = present.flat_map(|(.., forms)| *forms).copied().collect();
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let why = match scheme {
        "" => "the store's URL does not begin with a scheme".to_owned(),
        _ if scheme.chars().all(is_usual) => format!("no store has the URL scheme {scheme:?}"),
        // It may be a password.
        _ => "no store has the URL scheme of this URL".to_owned(),
    };
    error.because(format!("{why}; use {}", forms.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::{Background, Clock, Timers};

    /// Several schemes may belong to one store.
    #[tokio::test]
    async fn a_url_is_that_of_the_store_of_its_scheme() {
        let (background, _) = Background::start(Clock::Simulated).unwrap();
        let timers = Timers::new(Clock::Simulated);
        let env = Env::of_limits(timers, background, Duration::from_secs(1));
        for (url, store) in [
            ("memory:", "memory"),
            ("memory:till?like=memory", "memory"),
            #[cfg(feature = "sqlite")]
            ("sqlite:locks.db", "sqlite"),
            #[cfg(feature = "redis")]
            ("redis://127.0.0.1", "redis"),
            #[cfg(feature = "redis")]
            ("rediss://127.0.0.1", "redis"),
            #[cfg(feature = "redis")]
            ("redis+unix:///run/redis.sock", "redis"),
            #[cfg(feature = "redis")]
            ("redis+sentinel://127.0.0.1/shop", "redis"),
            #[cfg(feature = "redis")]
            ("rediss+sentinel://127.0.0.1/shop", "redis"),
            #[cfg(feature = "redis")]
            ("redis+cluster://127.0.0.1", "redis"),
            #[cfg(feature = "redis")]
            ("rediss+cluster://127.0.0.1", "redis"),
            #[cfg(feature = "redis")]
            ("rediss://127.0.0.1?locks=plain", "redis-plain"),
            #[cfg(feature = "redis")]
            ("memory:?like=rediss+cluster", "redis"),
            #[cfg(feature = "postgres")]
            ("postgres://127.0.0.1/shop", "postgres"),
            #[cfg(feature = "postgres")]
            ("postgresql://127.0.0.1/shop", "postgres"),
            #[cfg(feature = "postgres")]
            ("postgres://127.0.0.1/a?locks=session", "postgres-session"),
            #[cfg(feature = "mysql")]
            ("mysql://127.0.0.1/shop", "mysql"),
            #[cfg(feature = "mysql")]
            ("mariadb://127.0.0.1/shop", "mysql"),
            #[cfg(feature = "zookeeper")]
            ("zookeeper://127.0.0.1", "zookeeper"),
            #[cfg(feature = "etcd")]
            ("etcd://127.0.0.1", "etcd"),
            #[cfg(feature = "etcd")]
            ("etcds://127.0.0.1", "etcd"),
            #[cfg(feature = "memcached")]
            ("memcached://127.0.0.1", "memcached"),
        ] {
            let read = outline(url, &env).unwrap();
            let expected = abilities::find(store).unwrap();
            assert_eq!(read.label, store, "{url}");
            assert_eq!((read.can, read.plain), (expected.can, expected.plain));
        }
    }

    #[test]
    fn only_a_store_that_was_left_out_is_offered_as_a_feature() {
        let stores: &[StoreEntry] = &[
            (None, "memory", &["memory:"]),
            (Some(("redis", false)), "Redis", &["redis://", "rediss://"]),
            (Some(("etcd", true)), "etcd", &["etcd://"]),
        ];
        for (scheme, told) in [
            (
                "rediss",
                "this build has no Redis: add the cargo feature `redis` of tidelock",
            ),
            (
                "git+ssh",
                "no store has the URL scheme \"git+ssh\"; use memory:, etcd://",
            ),
            (
                "redis:",
                "no store has the URL scheme of this URL; use memory:, etcd://",
            ),
            (
                "etcd",
                "no store has the URL scheme \"etcd\"; use memory:, etcd://",
            ),
        ] {
            let told = format!("invalid option: {told}");
            assert_eq!(unknown_among(stores, scheme).to_string(), told);
        }
    }

    #[test]
    fn an_unknown_scheme_lists_the_stores_of_this_build() {
        let message = unknown("mongodb").to_string();
        assert!(message.contains("memory:"), "{message}");
        for (feature, _, forms) in STORES {
            let present = feature.is_none_or(|(_, present)| present);
            for form in *forms {
                assert_eq!(message.contains(form), present, "{form}: {message}");
            }
        }
    }

    #[test]
    fn a_store_that_was_left_out_names_its_feature() {
        for (feature, name, forms) in STORES {
            if let Some((feature, false)) = feature {
                for form in *forms {
                    let message = unknown(form.split(':').next().unwrap()).to_string();
                    let told = format!(
                        "invalid option: this build has no {name}: add the cargo feature `{feature}` of tidelock"
                    );
                    assert_eq!(message, told);
                }
            }
        }
    }

    #[test]
    fn what_is_no_scheme_is_not_shown() {
        let message = unknown("hunter2@10.0.0.1").to_string();
        assert!(!message.contains("hunter2"), "{message}");
        // `connect` passes this on for a text without a colon.
        let message = unknown("").to_string();
        assert!(
            message.contains("does not begin with a scheme"),
            "{message}"
        );
    }
}
