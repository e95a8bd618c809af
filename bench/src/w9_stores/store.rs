//! The stores of W9: their sides, their servers, and how a server counts its requests.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::foreign::Bench;
use testkit::servers::{EtcdServer, MariaDb, PostgresServer, RedisServer, ZooKeeperServer};

use crate::counts::Counter;
use crate::figures::number;
use crate::machine::last_word;
use crate::peers::{Peer, on_any_store};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    RedisPlain,
    ZooKeeper,
    Etcd,
    Postgres,
    MariaDb,
}

impl Store {
    pub(super) const ALL: [Self; 5] = [
        Self::RedisPlain,
        Self::ZooKeeper,
        Self::Etcd,
        Self::Postgres,
        Self::MariaDb,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RedisPlain => "Redis, `?locks=plain`",
            Self::ZooKeeper => "ZooKeeper",
            Self::Etcd => "etcd",
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
        }
    }

    /// The sides, in the order of the tables.
    pub(super) fn sides(self) -> &'static [Peer] {
        match self {
            Self::RedisPlain => &[
                Peer::Tidelock,
                Peer::Foreign(Bench::Rslock),
                Peer::Foreign(Bench::Redislock),
            ],
            Self::ZooKeeper => &[Peer::Tidelock, Peer::Foreign(Bench::Curator)],
            Self::Etcd => &[Peer::Tidelock, Peer::Foreign(Bench::EtcdConcurrency)],
            Self::Postgres => &[Peer::Tidelock, Peer::Session, Peer::Advisory],
            Self::MariaDb => &[Peer::Tidelock, Peer::LeaseTable],
        }
    }
}

/// A running server.
pub(super) enum Server {
    Redis(RedisServer),
    ZooKeeper(ZooKeeperServer),
    Etcd(EtcdServer),
    Postgres(PostgresServer),
    MariaDb(MariaDb),
}

/// A count that has begun.
pub(super) enum Counting {
    Monitor(Counter),
    /// From this reading of a counter.
    Since(u64),
    /// From this byte of the log.
    Log(usize),
}

impl Server {
    pub(super) fn start(store: Store) -> Result<Self> {
        Ok(match store {
            Store::RedisPlain => Self::Redis(RedisServer::start()?),
            Store::ZooKeeper => Self::ZooKeeper(ZooKeeperServer::start()?),
            Store::Etcd => Self::Etcd(EtcdServer::start()?),
            Store::Postgres => Self::Postgres(PostgresServer::start()?),
            Store::MariaDb => Self::MariaDb(MariaDb::start()?),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::ZooKeeper(server) => server.url(),
            Self::Etcd(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
        }
    }

    /// The command that starts a side.
    pub(super) fn command(&self, peer: Peer) -> Result<Command> {
        let url = self.url();
        match (peer, self) {
            (Peer::Tidelock, Self::Redis(_)) => on_any_store("lock", &format!("{url}?locks=plain")),
            (Peer::Tidelock, _) => on_any_store("lock", &url),
            (Peer::Session, _) => on_any_store("lock", &format!("{url}?locks=session")),
            (Peer::Advisory | Peer::LeaseTable, _) => on_any_store(peer.word(), &url),
            (Peer::Foreign(bench), _) => bench.command(&url),
            _ => bail!("{} has no such server", peer.name()),
        }
    }

    /// The version of the server.
    pub(super) fn version(&self) -> Result<String> {
        let named = match self {
            Self::Redis(server) => server.version()?,
            Self::ZooKeeper(server) => server.version()?,
            Self::Etcd(server) => server.version()?,
            Self::Postgres(server) => server.version()?,
            Self::MariaDb(server) => server.version()?,
        };
        // The table has a name of its own for each store.
        Ok(last_word(&named))
    }

    /// Begins to count requests. `name` is the name of the lock: on Redis only connections that mention it count.
    pub(super) fn count(&self, name: &str) -> Result<Counting> {
        Ok(match self {
            Self::Redis(server) => Counting::Monitor(Counter::start(server, name)?),
            Self::ZooKeeper(server) => Counting::Since(server.number(PACKETS)?),
            Self::Etcd(server) => Counting::Since(server.requests()?),
            Self::Postgres(server) => Counting::Log(log_all(server)?),
            Self::MariaDb(server) => {
                // The server counts each of these queries too.
                let first = questions(server)?;
                let second = questions(server)?;
                Counting::Since(second + (second - first))
            }
        })
    }

    /// The number of requests since the count began.
    pub(super) fn counted(&self, counting: Counting) -> Result<f64> {
        let sent = match (self, counting) {
            (Self::Redis(server), Counting::Monitor(counter)) => {
                let sent = counter.stop(server)?;
                return Ok(number(sent.values().sum::<usize>()));
            }
            (Self::ZooKeeper(server), Counting::Since(before)) => {
                server.number(PACKETS)?.saturating_sub(before)
            }
            (Self::Etcd(server), Counting::Since(before)) => {
                server.requests()?.saturating_sub(before)
            }
            (Self::MariaDb(server), Counting::Since(before)) => {
                questions(server)?.saturating_sub(before)
            }
            (Self::Postgres(server), Counting::Log(from)) => {
                let log = server.log();
                server.query("ALTER SYSTEM RESET log_statement")?;
                server.query(RELOAD)?;
                return Ok(number(statements(log.get(from..).unwrap_or_default())));
            }
            _ => bail!("another server has begun to count"),
        };
        Ok(number(sent))
    }
}

const PACKETS: &str = "zk_packets_received";

fn questions(server: &MariaDb) -> Result<u64> {
    let said = server.query("SHOW GLOBAL STATUS LIKE 'Questions'")?;
    let count = said.split_whitespace().last();
    Ok(count.context("no Questions")?.parse()?)
}

const RELOAD: &str = "SELECT pg_reload_conf()";
const MARK: &str = "SELECT 'the bench counts from here'";

/// Makes PostgreSQL log each statement, and returns the current length of the log.
fn log_all(server: &PostgresServer) -> Result<usize> {
    server.query("ALTER SYSTEM SET log_statement = 'all'")?;
    server.query(RELOAD)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    let from = server.log().len();
    // The server reloads its configuration some time after the request, and then notifies its sessions.
    while !server
        .log()
        .get(from..)
        .is_some_and(|log| log.contains(MARK))
    {
        ensure!(Instant::now() < deadline, "it does not log its statements");
        server.query(MARK)?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(server.log().len())
}

/// The number of statements in a log.
fn statements(log: &str) -> usize {
    let begins = [" LOG:  statement: ", " LOG:  execute "];
    let lines = log.lines().filter(|line| !line.contains(MARK));
    lines
        .filter(|line| begins.iter().any(|begin| line.contains(begin)))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_counted_and_what_belongs_to_them_is_not() {
        let log = "2026-01-01 00:00:00.000 UTC [7] LOG:  statement: SELECT 'the bench counts from here'\n\
            2026-01-01 00:00:00.001 UTC [8] LOG:  execute s1: SELECT pg_advisory_lock($1)\n\
            2026-01-01 00:00:00.001 UTC [8] DETAIL:  parameters: $1 = '42'\n\
            2026-01-01 00:00:00.002 UTC [9] LOG:  statement: BEGIN\n\
            \tSELECT 1\n\
            2026-01-01 00:00:00.003 UTC [9] LOG:  received SIGHUP, reloading configuration files\n";
        assert_eq!(statements(log), 2);
    }

    #[test]
    fn tidelock_is_measured_on_each_store_first() {
        for store in Store::ALL {
            let sides = store.sides();
            assert_eq!(sides[0], Peer::Tidelock);
            assert!(sides.len() > 1, "{}", store.name());
        }
    }
}
