//! A password in a store's URL, well-formed or not, appears in no message at any verbosity, and not in the environment
//! of the command.

use anyhow::{Result, ensure};
use testkit::servers::{
    Cluster, EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, Sentinels,
    ZooKeeperServer,
};

use crate::{ended, tidelock};

const SECRET: &str = "hunter2";

/// Passwords written without regard to characters that are special in a URL.
const WRITTEN: [&str; 8] = [
    "hunter2",
    "%68unter2",
    "1/hunter2",
    "a#hunter2",
    "a?hunter2",
    "a@hunter2",
    "x@y/hunter2",
    "a:hunter2",
];

fn tells_nothing(url: &str) -> Result<()> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let place = rest.split_once('@').map_or(rest, |(_, place)| place);
    for password in WRITTEN {
        for login in [format!("me:{password}"), format!(":{password}")] {
            let url = format!("{scheme}://{login}@{place}");
            let mut command = tidelock(&url, &["-vv", "run", "--wait", "1s", "job", "--", "env"])?;
            command
                .env("TIDELOCK_RESPONSE_TIMEOUT_MS", "500")
                .env("RUST_BACKTRACE", "0");
            let said = ended(command)?;
            for text in [&said.out, &said.err] {
                ensure!(!text.contains(SECRET), "{url}: {text}");
            }
            ensure!(!said.err.contains("panicked"), "{url}: {}", said.err);
        }
    }
    Ok(())
}

macro_rules! stores {
    ($($name:ident: $server:ident)*) => {$(
        #[test]
        fn $name() -> Result<()> {
            tells_nothing(&$server::start()?.url())
        }
    )*};
}

stores! {
    redis_tells_no_secret: RedisServer
    sentinels_tell_no_secret: Sentinels
    a_cluster_tells_no_secret: Cluster
    postgres_tells_no_secret: PostgresServer
    mysql_tells_no_secret: MariaDb
    zookeeper_tells_no_secret: ZooKeeperServer
    etcd_tells_no_secret: EtcdServer
    memcached_tells_no_secret: MemcachedServer
}
