//! The stores of the run, their servers, and what each server says of itself.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use testkit::servers::{
    Cluster, EtcdServer, Independents, MariaDb, MemcachedServer, PostgresServer, RedisServer,
    ZooKeeperServer,
};

use super::judge::Build;
use crate::samples::{
    CHANNELS, CONNECTIONS, DETAILS, ENDLESS, KEYS, LOCKS, MARKS, OTHERS, Samples, number,
};

/// What a store keeps, where it is not sorted by its kind.
pub(super) const ROWS: &str = "rows";
pub(super) const NODES: &str = "nodes";
pub(super) const ITEMS: &str = "items";
pub(super) const FILES: &str = "files, MiB";

/// The permission to read nobody else's transactions is not needed: the rows are counted, all tables together.
const COUNT_ROWS: &str = "SELECT coalesce(sum((xpath('/row/c/text()', query_to_xml(format('select count(*) as c \
                          from %I', tablename), false, true, '')))[1]::text::int), 0) FROM pg_tables \
                          WHERE schemaname = 'public' AND tablename NOT LIKE '%_clients'";

const COUNT_CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                                 AND pid <> pg_backend_pid()";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis,
    Plain,
    Cluster,
    Redlock,
    Postgres,
    Mariadb,
    Zookeeper,
    Etcd,
    Memcached,
}

impl Store {
    pub(crate) const ALL: [Self; 11] = [
        Self::Memory,
        Self::Sqlite,
        Self::Redis,
        Self::Plain,
        Self::Cluster,
        Self::Redlock,
        Self::Postgres,
        Self::Mariadb,
        Self::Zookeeper,
        Self::Etcd,
        Self::Memcached,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Plain => "plain keys",
            Self::Cluster => "cluster",
            Self::Redlock => "redlock",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Zookeeper => "zookeeper",
            Self::Etcd => "etcd",
            Self::Memcached => "memcached",
        }
    }

    /// Each process has such a store for itself.
    pub(crate) fn is_private(self) -> bool {
        self == Self::Memory
    }

    /// The mean pause of a task between two rounds, in microseconds. The cheap stores carry most of the acquisitions, and
    /// leave the others their share of the machine.
    pub(crate) fn pause(self) -> f64 {
        match self {
            Self::Memory => 2_500.0,
            Self::Redis => 40_000.0,
            Self::Plain | Self::Cluster => 100_000.0,
            Self::Sqlite => 200_000.0,
            Self::Redlock | Self::Memcached | Self::Etcd | Self::Zookeeper => 500_000.0,
            Self::Postgres | Self::Mariadb => 1_500_000.0,
        }
    }

    /// The kinds that a build must leave out, because of a bug of its library that would stop all others.
    pub(crate) fn leaves_out(self, build: Build) -> Option<&'static str> {
        match (self, build) {
            // It forgets the node of the first part, so that name is held until the session ends.
            (Self::Zookeeper, Build::Older) => Some("multi"),
            _ => None,
        }
    }
}

/// The servers of one store.
#[derive(Debug)]
enum Servers {
    None,
    File(TempDir),
    Redis(RedisServer),
    Plain(RedisServer),
    Cluster(Cluster),
    Majority(Independents),
    Postgres(PostgresServer),
    Mariadb(MariaDb),
    Zookeeper(ZooKeeperServer),
    Etcd(EtcdServer),
    Memcached(MemcachedServer),
}

/// A store that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) store: Store,
    servers: Servers,
}

impl Running {
    pub(crate) fn start(store: Store) -> Result<Self> {
        let servers = match store {
            Store::Memory => Servers::None,
            Store::Sqlite => Servers::File(testkit::scratch()?),
            Store::Redis => Servers::Redis(RedisServer::start()?),
            Store::Plain => Servers::Plain(RedisServer::start()?),
            Store::Cluster => {
                // Longer than a busy machine may hold up a node: there is no replica that could take over.
                let nodes = Cluster::builder().replicas(0);
                Servers::Cluster(nodes.node_timeout(Duration::from_secs(30)).start()?)
            }
            Store::Redlock => Servers::Majority(Independents::start(3)?),
            Store::Postgres => Servers::Postgres(PostgresServer::start()?),
            Store::Mariadb => Servers::Mariadb(MariaDb::start()?),
            Store::Zookeeper => Servers::Zookeeper(ZooKeeperServer::start()?),
            // Without this it keeps each revision of each key, and its memory grows with every acquisition.
            Store::Etcd => Servers::Etcd(
                EtcdServer::builder()
                    .args([
                        "--auto-compaction-mode=revision",
                        "--auto-compaction-retention=1000",
                    ])
                    .start()?,
            ),
            Store::Memcached => Servers::Memcached(MemcachedServer::start()?),
        };
        Ok(Self { store, servers })
    }

    /// The addresses for the processes; several form a majority.
    pub(crate) fn urls(&self) -> Vec<String> {
        match &self.servers {
            Servers::None => vec!["memory:".to_owned()],
            Servers::File(dir) => vec![format!("sqlite:{}", file(dir).display())],
            Servers::Redis(server) => vec![server.url()],
            Servers::Plain(server) => vec![format!("{}?locks=plain", server.url())],
            Servers::Cluster(cluster) => vec![cluster.url()],
            Servers::Majority(servers) => servers.urls(),
            Servers::Postgres(server) => vec![server.url()],
            Servers::Mariadb(server) => vec![server.url()],
            Servers::Zookeeper(server) => vec![format!("{}/soak", server.url())],
            Servers::Etcd(server) => vec![format!("{}/soak", server.url())],
            Servers::Memcached(server) => vec![server.url()],
        }
    }

    /// The name and version of the server.
    pub(crate) fn version(&self) -> Result<String> {
        Ok(match &self.servers {
            Servers::None | Servers::File(_) => format!("tidelock's {}", self.store.name()),
            Servers::Redis(server) | Servers::Plain(server) => server.version()?,
            Servers::Cluster(cluster) => {
                let node = cluster.nodes().first().context("no nodes")?;
                format!("{}, three primaries", node.version()?)
            }
            Servers::Majority(servers) => {
                let node = servers.nodes().first().context("no servers")?;
                format!("{}, three of them", node.version()?)
            }
            Servers::Postgres(server) => server.version()?,
            Servers::Mariadb(server) => server.version()?,
            Servers::Zookeeper(server) => server.version()?,
            Servers::Etcd(server) => server.version()?,
            Servers::Memcached(server) => server.version()?,
        })
    }

    /// Takes a sample of the servers.
    pub(crate) fn look(&self, samples: &mut Samples) -> Result<()> {
        let who = format!("{}, server", self.store.name());
        match &self.servers {
            Servers::None => {}
            Servers::File(dir) => samples.note(&who, FILES, size(dir.path())?),
            Servers::Redis(server) | Servers::Plain(server) => {
                look_at_redis(&who, server, samples)?;
            }
            Servers::Cluster(cluster) => {
                for (at, node) in cluster.nodes().iter().enumerate() {
                    look_at_redis(&format!("{who} {at}"), node, samples)?;
                }
            }
            Servers::Majority(servers) => {
                for (at, node) in servers.nodes().iter().enumerate() {
                    look_at_redis(&format!("{who} {at}"), node, samples)?;
                }
            }
            Servers::Postgres(server) => {
                // Its memory is that of one process for each connection, most of it shared.
                let count = |sql| -> Result<f64> { Ok(server.query(sql)?.trim().parse()?) };
                samples.note(&who, CONNECTIONS, count(COUNT_CONNECTIONS)?);
                samples.note(&who, ROWS, count(COUNT_ROWS)?);
            }
            Servers::Mariadb(server) => {
                samples.process(&who, server.pid()?);
                let threads = last_word(&server.query("SHOW STATUS LIKE 'Threads_connected'")?)?;
                // One is that of this query.
                samples.note(&who, CONNECTIONS, threads - 1.0);
                samples.note(&who, ROWS, rows(server)?);
            }
            Servers::Zookeeper(server) => {
                samples.process(&who, server.pid()?);
                let connections = server.number("zk_num_alive_connections")?;
                samples.note(&who, CONNECTIONS, number(connections));
                samples.note(&who, NODES, number(server.number("zk_znode_count")?));
            }
            Servers::Etcd(server) => {
                samples.process(&who, server.pid()?);
                samples.note(&who, ITEMS, number(server.keys()?.len() as u64));
            }
            Servers::Memcached(server) => {
                samples.process(&who, server.pid()?);
                let connections = server.stat("curr_connections")?;
                samples.note(&who, CONNECTIONS, number(connections));
                samples.note(&who, ITEMS, number(server.stat("curr_items")?));
            }
        }
        Ok(())
    }

    /// What the store keeps after all processes have ended: a text for the page, and the keys that must not be there.
    pub(crate) fn left(&self) -> Result<(String, Vec<String>)> {
        Ok(match &self.servers {
            Servers::None => (
                "nothing: it has ended with its process".to_owned(),
                Vec::new(),
            ),
            Servers::File(dir) => (format!("{:.1} MiB of files", size(dir.path())?), Vec::new()),
            Servers::Redis(server) | Servers::Plain(server) => left_on_redis(&[server])?,
            Servers::Cluster(cluster) => {
                left_on_redis(&cluster.nodes().iter().collect::<Vec<_>>())?
            }
            Servers::Majority(servers) => {
                left_on_redis(&servers.nodes().iter().collect::<Vec<_>>())?
            }
            Servers::Postgres(server) => {
                let tables =
                    "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
                let counted = |table: &str| server.query(&format!("SELECT count(*) FROM {table}"));
                (count_tables(&server.query(tables)?, counted)?, Vec::new())
            }
            Servers::Mariadb(server) => {
                let counted = |table: &str| server.query(&format!("SELECT COUNT(*) FROM {table}"));
                let tables = server.query("SHOW TABLES LIKE 'tidelock%'")?;
                (count_tables(&tables, counted)?, Vec::new())
            }
            Servers::Zookeeper(server) => {
                let ephemeral = server.number("zk_ephemerals_count")?;
                let nodes = server.number("zk_znode_count")?;
                let strange = (ephemeral > 0).then(|| format!("{ephemeral} ephemeral nodes"));
                (format!("{nodes} nodes"), strange.into_iter().collect())
            }
            Servers::Etcd(server) => {
                let keys = server.keys()?;
                let text = sorted(keys.iter().map(|key| etcd_class(key)));
                let strange = keys.into_iter().filter(|key| etcd_class(key) == STRANGE);
                (text, strange.collect())
            }
            Servers::Memcached(server) => {
                (format!("{} items", server.stat("curr_items")?), Vec::new())
            }
        })
    }
}

fn file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("locks.db")
}

/// The size of all files of a directory in MiB.
fn size(dir: &Path) -> Result<f64> {
    let mut all = 0;
    for entry in std::fs::read_dir(dir)? {
        all += entry?.metadata()?.len();
    }
    Ok(number(all) / f64::from(1 << 20))
}

fn last_word(said: &str) -> Result<f64> {
    let word = said.split_whitespace().last().context("no answer")?;
    Ok(word.parse()?)
}

fn rows(server: &MariaDb) -> Result<f64> {
    let mut all = 0.0;
    for table in server.query("SHOW TABLES LIKE 'tidelock%'")?.lines() {
        // Details of a process that died stay for an hour.
        if table.starts_with("tidelock") && !table.ends_with("_clients") {
            all += last_word(&server.query(&format!("SELECT COUNT(*) FROM {table}"))?)?;
        }
    }
    Ok(all)
}

fn look_at_redis(who: &str, server: &RedisServer, samples: &mut Samples) -> Result<()> {
    samples.process(who, server.pid()?);
    let keys: Vec<u64> = server.query(&["EVAL", KEYS, "0"])?;
    let kinds = [LOCKS, ENDLESS, DETAILS, MARKS, OTHERS];
    for (what, count) in kinds.into_iter().zip(keys) {
        samples.note(who, what, number(count));
    }
    let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS"])?;
    samples.note(who, CHANNELS, number(channels.len() as u64));
    let connections: u64 = server.info("connected_clients")?.trim().parse()?;
    samples.note(who, CONNECTIONS, number(connections));
    Ok(())
}

const STRANGE: &str = "strange";

fn left_on_redis(servers: &[&RedisServer]) -> Result<(String, Vec<String>)> {
    let mut classes = Vec::new();
    let mut strange = Vec::new();
    for server in servers {
        for key in server.keys()? {
            let left: i64 = server.query(&["PTTL", &key])?;
            let class = redis_class(&key, left);
            if class == STRANGE {
                strange.push(format!("{key} for {left} ms"));
            }
            classes.push(class);
        }
    }
    Ok((sorted(classes.into_iter()), strange))
}

/// The kinds of keys that the pages of Redis say stay.
fn redis_class(key: &str, left: i64) -> &'static str {
    if key.starts_with("redisson_lock_token:") || key.starts_with("tidelock:token:") {
        "token counters"
    } else if key.starts_with("permits-") || key.starts_with("counted-") {
        "numbers of permits"
    } else if key.starts_with("redisson_lock_queue:") || key.starts_with("redisson_lock_timeout:") {
        // The next user of the lock removes waiters that are dead. Here nobody comes any more.
        "waiters of fair locks that were killed"
    } else if key.starts_with("{permits-") && key.ends_with(":timeout") {
        // The next user of the semaphore takes back what is out. Nobody holds any of it: that was asked before.
        "permits of processes that were killed"
    } else if key.starts_with("latch-") {
        // The next turn of its name counts it down to its end.
        "latches whose last users were killed"
    } else if left >= 0 && key.starts_with("tidelock:") {
        "records that end"
    } else if left == -2 {
        "keys that have just ended"
    } else if key.starts_with("tidelock:marks") || key.starts_with("tidelock:mark_ends") {
        "marks"
    } else {
        STRANGE
    }
}

fn etcd_class(key: &str) -> &'static str {
    if key.contains("%marks/") {
        "marks"
    } else if key.contains("permits-") {
        "numbers of permits"
    } else if key.contains("sides-") {
        "counters of downgrades"
    } else if key.contains("%clients") {
        "records of processes"
    } else {
        STRANGE
    }
}

/// How many there are of each.
fn sorted<'a>(classes: impl Iterator<Item = &'a str>) -> String {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for class in classes {
        *counts.entry(class).or_default() += 1;
    }
    let texts = counts
        .iter()
        .map(|(class, count)| format!("{count} {class}"));
    let text = texts.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "nothing".to_owned()
    } else {
        text
    }
}

fn count_tables(tables: &str, count: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut texts = Vec::new();
    for table in tables.lines().map(str::trim) {
        if table.starts_with("tidelock") && !table.contains(' ') {
            let rows = last_word(&count(table)?)?;
            texts.push(format!("{rows} in `{table}`"));
        }
    }
    Ok(format!("rows: {}", texts.join(", ")))
}
