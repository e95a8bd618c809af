//! Doctor: finds what weakens the locks of a server. Also reads the server's clock and identifies the server run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::memcached::connection::Connection;
use crate::store::memcached::errors::{unanswered, unexpected, unsent};
use crate::store::memcached::wire::{Command, Reply, StoreMode};
use crate::store::memcached::{keys, ttl};
use crate::store::{BootInstant, Incarnation};

use Severity::{Advice, Danger, Good};

/// The answer to `stats`: names and values.
struct ServerStats(HashMap<String, String>);

impl ServerStats {
    async fn read(connection: &Connection, command: &str, deadline: BootInstant) -> Result<Self> {
        let ask = Command::lines(command, |_| true);
        let (reply, _) = connection.ask_one(ask, None, deadline).await?;
        Self::of(&reply)
    }

    fn of(reply: &Reply) -> Result<Self> {
        let Reply::Lines(lines) = reply else {
            return Err(unexpected(reply));
        };
        let pairs = lines.iter().filter_map(|line| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Ok(Self(pairs.collect()))
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// 0 if the value is missing or not a number.
    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}

/// Seconds since 1970 by the server's own clock.
pub(crate) async fn server_time(connection: &Connection, deadline: BootInstant) -> Result<u64> {
    let stats = ServerStats::read(connection, "stats", deadline).await?;
    match stats.number("time") {
        // With a date of 1970 an item would expire at once, and its lock would be granted to another.
        0 => Err(unsent("the server does not tell its time")),
        time => Ok(time),
    }
}

/// How much longer than the truth the uptime of memcached may be. It counts from two seconds before its start, so that no
/// time in its items is 0, and it subtracts whole seconds.
const UPTIME_TOO_LONG: Duration = Duration::from_secs(3);

/// Identifies the server run: a restarted server has lost all locks.
pub(crate) async fn incarnation(connection: &Connection) -> Result<Option<Incarnation>> {
    let deadline = connection.deadline();
    let ask = Command::lines("stats", |_| true);
    let look = Command::get(keys::SERVER_RUN);
    let (replies, _) = connection.ask(vec![ask, look], None, deadline).await?;
    let [stats, kept] = &replies[..] else {
        return Err(unanswered(format_args!(
            "unexpected reply from the server: {replies:?}"
        )));
    };
    let up = least_uptime(&ServerStats::of(stats)?);
    let id = match kept_id(kept) {
        Some(id) => id,
        None => give_id(connection, deadline).await?,
    };
    Ok(Some(Incarnation { id, up }))
}

/// Stores a random id and returns the one that stands: another client may have been faster.
///
/// The server tells no id of its own. Its process id and the second of its start do not identify it: in a container
/// each server has the process id 1, and servers that were started together would be taken for one.
async fn give_id(connection: &Connection, deadline: BootInstant) -> Result<Arc<str>> {
    let fresh = uuid::Uuid::new_v4().to_string();
    let add = Command::store(
        keys::SERVER_RUN,
        fresh.as_bytes(),
        ttl::NEVER,
        StoreMode::Add,
    );
    let look = Command::get(keys::SERVER_RUN);
    let (replies, _) = connection.ask(vec![add, look], None, deadline).await?;
    // A server without free memory stores nothing, and one with little may evict the id. Then it has another id each
    // time, and we do not notice two addresses of it. With a fixed id, different servers would be taken for one.
    Ok(replies
        .last()
        .and_then(kept_id)
        .unwrap_or_else(|| fresh.into()))
}

/// The id in the item of the server run. `None`: there is no such item.
fn kept_id(reply: &Reply) -> Option<Arc<str>> {
    match reply {
        Reply::Value(item) => Some(String::from_utf8_lossy(&item.value).into()),
        _ => None,
    }
}

/// The minimum time that the server has been up. With more, a restarted server would vote before the leases that it has
/// forgotten have ended.
fn least_uptime(stats: &ServerStats) -> Duration {
    Duration::from_secs(stats.number("uptime")).saturating_sub(UPTIME_TOO_LONG)
}

/// Runs all checks and returns their findings.
pub(crate) async fn examine(connection: &Connection) -> Result<Vec<Finding>> {
    let deadline = connection.deadline();
    let stats = ServerStats::read(connection, "stats", deadline).await?;
    let settings = ServerStats::read(connection, "stats settings", deadline).await?;
    Ok(vec![
        Finding::new(
            Good,
            "version",
            format!("memcached {}", stats.text("version")),
            "one on which locks work: 1.6.13 and later",
        ),
        Finding::new(
            Danger,
            "kind",
            "best effort",
            "memcached keeps locks in a cache: a restart forgets all of them, and so may a full memory; their holders are told at the next renewal, and until then two may believe to hold one",
        )
        .advise("use it where a rare second holder does no harm; for the rest take a store that keeps its data"),
        memory(&stats, &settings),
        clock(),
        Finding::new(
            Advice,
            "tokens",
            "none",
            "fenced locks are refused: nothing here counts for ever",
        )
        .advise("use another store for what must never happen twice"),
    ])
}

fn clock() -> Finding {
    Finding::new(
        Good,
        "clock",
        "whole seconds",
        format!(
            "a lock whose holder has died is free up to {} seconds after the end of its lease, which is rounded up to whole seconds",
            ttl::MAX_EXCESS
        ),
    )
}

/// Checks whether the server can evict, or fail to store, an item that holds a lock.
fn memory(stats: &ServerStats, settings: &ServerStats) -> Finding {
    let (used, limit) = (stats.number("bytes"), stats.number("limit_maxbytes"));
    let evicted = stats.number("evictions");
    let found = format!(
        "{} of {} MiB used, {evicted} items thrown away so far",
        used >> 20,
        limit >> 20
    );
    if settings.text("evictions") == "off" {
        return Finding::new(
            Danger,
            "memory",
            format!("{found}; it throws nothing away (-M)"),
            "when memory is full, a renewal deletes the lock it cannot store anew, and its holder is told",
        )
        .advise("start it without -M, with far more memory than is used");
    }
    if evicted > 0 {
        return Finding::new(
            Danger,
            "memory",
            found,
            "locks that are held can be thrown away, and given to another",
        )
        .advise("give locks a memcached of their own, or this one more memory");
    }
    Finding::new(
        Advice,
        "memory",
        found,
        "nothing was thrown away yet; once it is full, locks that are held can be",
    )
    .advise("give locks a memcached of their own")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::memcached::tests::{ScriptedServer, endpoint};
    use crate::store::{Background, Clock, Timers};

    /// A memcached in a container, as far as the question for its run goes: its process id is 1, it has just been started, and
    /// it keeps one item. `full`: it has no memory for that item.
    struct Container {
        item: Mutex<Option<String>>,
        full: bool,
    }

    impl Container {
        fn start(full: bool) -> Arc<Self> {
            Arc::new(Self {
                item: Mutex::default(),
                full,
            })
        }

        fn answer(&self, line: &str, value: Option<&str>) -> String {
            let mut item = self.item.lock().unwrap();
            match (line.split(' ').next().unwrap(), &*item) {
                ("version", _) => "VERSION 1.6.18\r\n".to_owned(),
                ("stats", _) if line != "stats" => "END\r\n".to_owned(),
                ("stats", _) => {
                    "STAT pid 1\r\nSTAT uptime 2\r\nSTAT time 1800000000\r\nEND\r\n".to_owned()
                }
                ("mg", Some(kept)) => format!("VA {} c1 t-1\r\n{kept}\r\n", kept.len()),
                ("mg", None) => "EN\r\n".to_owned(),
                ("ms", _) if self.full => "SERVER_ERROR out of memory\r\n".to_owned(),
                ("ms", Some(_)) => "NS\r\n".to_owned(),
                ("ms", None) => {
                    *item = value.map(str::to_owned);
                    "HD c1\r\n".to_owned()
                }
                other => panic!("not asked by this test: {other:?}"),
            }
        }

        async fn serve(self: Arc<Self>, listener: TcpListener) {
            let (mut peer, _) = listener.accept().await.unwrap();
            let (mut bytes, mut heard) = ([0; 4096], String::new());
            loop {
                match peer.read(&mut bytes).await {
                    Ok(count) if count > 0 => {
                        heard += std::str::from_utf8(&bytes[..count]).unwrap();
                    }
                    _ => return,
                }
                // Each request of this test arrives in one piece.
                let mut lines = std::mem::take(&mut heard);
                while let Some((line, rest)) = lines.split_once("\r\n") {
                    let value = line.starts_with("ms ").then(|| rest.split_once("\r\n"));
                    let (value, rest) = value
                        .flatten()
                        .map_or((None, rest), |(value, rest)| (Some(value), rest));
                    peer.write_all(self.answer(line, value).as_bytes())
                        .await
                        .unwrap();
                    lines = rest.to_owned();
                }
            }
        }
    }

    /// The run of a server that the client reaches by a connection of its own.
    async fn run_of(server: &Arc<Container>, background: &Background) -> Incarnation {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let endpoint = endpoint(&place, Timers::new(Clock::Boot));
        let connection = Connection::new(Arc::new(endpoint), background);
        tokio::spawn(Arc::clone(server).serve(listener));
        incarnation(&connection).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn servers_that_started_in_the_same_second_are_told_apart() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        for full in [false, true] {
            let (one, two) = (Container::start(full), Container::start(full));
            let first = run_of(&one, &background).await;
            assert_ne!(first.id, run_of(&two, &background).await.id);
            if !full {
                let again = run_of(&one, &background).await;
                assert_eq!(first.id, again.id, "by two addresses");
            }
            *one.item.lock().unwrap() = None;
            let restarted = run_of(&one, &background).await;
            assert_ne!(first.id, restarted.id, "it has forgotten its locks");
        }
    }

    /// The page says three, too.
    #[test]
    fn the_doctor_tells_how_long_after_its_lease_the_lock_of_a_dead_holder_is_free() {
        let told = clock().meaning;
        assert!(told.contains("up to 3 seconds after"), "{told}");
    }

    /// With an age that is too long, a server would vote before the leases that its restart has forgotten have ended.
    #[test]
    fn t39_a_memcached_is_never_taken_for_older_than_it_is() {
        for (told, least) in [(0, 0), (2, 0), (3, 0), (12, 9), (u64::MAX, u64::MAX - 3)] {
            let stats = ServerStats(HashMap::from([("uptime".to_owned(), told.to_string())]));
            assert_eq!(least_uptime(&stats).as_secs(), least);
        }
        let silent = ServerStats(HashMap::new());
        assert_eq!(least_uptime(&silent), Duration::ZERO);
    }

    /// `evictions`: the setting of the server, and how many items it has evicted.
    #[test]
    fn the_doctor_warns_of_a_server_that_has_lost_items_or_may_lose_a_renewed_one() {
        for (evictions, severity, found) in [
            (
                ("on", "0"),
                Advice,
                "3 of 64 MiB used, 0 items thrown away so far",
            ),
            (
                ("on", "1"),
                Danger,
                "3 of 64 MiB used, 1 items thrown away so far",
            ),
            (
                ("off", "0"),
                Danger,
                "3 of 64 MiB used, 0 items thrown away so far; it throws nothing away (-M)",
            ),
        ] {
            let of = |pairs: &[(&str, &str)]| {
                let owned = pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                ServerStats(owned.collect())
            };
            let stats = of(&[
                ("bytes", "3500000"),
                ("limit_maxbytes", "67108864"),
                ("evictions", evictions.1),
            ]);
            let finding = memory(&stats, &of(&[("evictions", evictions.0)]));
            assert_eq!((finding.severity, &*finding.found), (severity, found));
            assert!(finding.advice.is_some());
        }
    }

    #[tokio::test]
    async fn the_doctor_tells_the_version_and_reads_the_settings_of_the_server() {
        let server = ScriptedServer::start().await;
        server.answers(
            "stats",
            &["STAT version 1.6.18\r\nSTAT evictions 0\r\nEND\r\n"],
        );
        server.answers("stats settings", &["STAT evictions off\r\nEND\r\n"]);
        let findings = server.store().await.front.diagnose().await.unwrap();
        let told = findings
            .iter()
            .map(|finding| (&*finding.subject, finding.severity));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                ("version", Good),
                ("kind", Danger),
                ("memory", Danger),
                ("clock", Good),
                ("tokens", Advice),
            ]
        );
        assert_eq!(findings[0].found, "memcached 1.6.18");
        for finding in &findings {
            let needs_advice = finding.severity != Good;
            assert_eq!(
                finding.advice.is_some(),
                needs_advice,
                "{}",
                finding.subject
            );
        }
    }

    /// An age of zero would be one, and a set of stores would take the server for one that has restarted.
    #[tokio::test]
    async fn a_server_that_refuses_its_statistics_has_no_run_and_no_findings() {
        let server = ScriptedServer::start().await;
        server.answers("stats", &["SERVER_ERROR busy\r\n"]);
        let store = server.store().await;
        let runs = store.front.extensions().server_runs.unwrap();
        let refused = runs.server_run().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let refused = store.front.diagnose().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }
}
