//! Doctor: finds what weakens the locks of a server. Also reads the server's clock and identifies the server run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::memcached::connection::Connection;
use crate::store::memcached::errors::unexpected;
use crate::store::memcached::wire::{Command, Reply};
use crate::store::{BootInstant, Incarnation};

use Severity::{Advice, Danger, Good};

/// The answer to `stats`: names and values.
struct ServerStats(HashMap<String, String>);

impl ServerStats {
    async fn read(connection: &Connection, command: &str, deadline: BootInstant) -> Result<Self> {
        let ask = Command::lines(command, |_| true);
        let (reply, _) = connection.ask_one(ask, None, deadline).await?;
        let Reply::Lines(lines) = reply else {
            return Err(unexpected(&reply));
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
    Ok(stats.number("time"))
}

/// Identifies the server run by process id and start time: a restarted server has lost all locks.
pub(crate) async fn incarnation(connection: &Connection) -> Result<Option<Incarnation>> {
    let stats = ServerStats::read(connection, "stats", connection.deadline()).await?;
    let up = stats.number("uptime");
    let start = stats.number("time").saturating_sub(up);
    // A process id alone could repeat, for example in a container.
    Ok(Some(Incarnation {
        id: Arc::from(format!("{}:{start}", stats.text("pid"))),
        up: Duration::from_secs(up),
    }))
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
            "locks work on it",
        ),
        Finding::new(
            Danger,
            "kind",
            "best effort",
            "memcached keeps locks in a cache: a restart forgets all of them, and so may a full memory; their holders are told at the next renewal, and until then two may believe to hold one",
        )
        .advise("use it where a rare second holder does no harm; for the rest take a store that keeps its data"),
        memory(&stats, &settings),
        Finding::new(
            Good,
            "clock",
            "whole seconds",
            "a lock whose holder has died is free up to two seconds after the end of its lease",
        ),
        Finding::new(
            Advice,
            "tokens",
            "none",
            "fenced locks are refused: nothing here counts for ever",
        )
        .advise("use another store for what must never happen twice"),
    ])
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
