//! The doctor for one server: reports settings that weaken a lock. A check that the user's rights forbid is a finding,
//! not an error.

pub(crate) mod fair_rights;
pub(crate) mod far;
pub(crate) mod latch_rights;
pub(crate) mod plain_rights;
pub(crate) mod read_write_rights;
pub(crate) mod rights;
pub(crate) mod semaphore_rights;
pub(crate) mod topology;

use std::collections::HashMap;

use crate::error::Result;
use crate::snapshot::{Finding, Severity};
use crate::store::doctor::DoctorCheck;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::router::Router;
pub(crate) use crate::store::redis::wire::errors::allowed;
use crate::store::redis::wire::request::Request;

use Severity::{Advice, Danger, Good};

const VERSION: DoctorCheck = DoctorCheck {
    subject: "version",
    good: "locks work on it",
    severity: Danger,
    bad: "older than what this client is tested with; its scripts may fail",
    advice: "use Redis 6.2 or later, or Valkey",
};

const APPEND_ONLY: DoctorCheck = DoctorCheck {
    subject: "persistence",
    good: "locks and fencing counters survive a crash of the server",
    severity: Advice,
    bad: "a crash may forget the last second of locks and tokens; holders are told at the next renewal",
    advice: "set appendfsync always if a second is too much",
};

/// The oldest server that is tested.
const OLDEST_VERSION: (u32, u32) = (6, 2);

/// Inspects a server. `clustered`: the URL expects a node of a cluster.
pub(crate) async fn examine(connection: &Connection, clustered: bool) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    match allowed(
        connection
            .ask(&Request::new("INFO"), connection.deadline())
            .await,
    )? {
        Some(reply) => {
            let info = Info::parse(reply.text().unwrap_or_default());
            findings.extend([
                version(&info),
                mode(&info, clustered),
                eviction(&info),
                persistence(connection, &info).await?,
                role(&info),
            ]);
        }
        None => findings.push(unseen(
            "server",
            "INFO",
            "version, eviction policy, persistence and replicas are not known",
        )),
    }
    Ok(findings)
}

/// Sends requests, each with the name of its command, one after the other to the node that has the key. Returns the
/// commands that the user may not use.
pub(crate) async fn refused(
    router: &Router,
    key: &str,
    asked: impl IntoIterator<Item = (&'static str, Request)>,
) -> Result<Vec<&'static str>> {
    let mut refused = Vec::new();
    for (command, request) in asked {
        let answer = router.ask(key, &request, router.deadline()).await;
        if allowed(answer)?.is_none() {
            refused.push(command);
        }
    }
    Ok(refused)
}

fn unseen(subject: &str, command: &str, meaning: &str) -> Finding {
    Finding::new(
        Advice,
        subject,
        format!("cannot see: {command} is not allowed"),
        meaning,
    )
    .advise(format!("allow {command}, or look by other means"))
}

/// The answer to `INFO`: lines of `name:value`.
pub(crate) struct Info<'a>(HashMap<&'a str, &'a str>);

impl<'a> Info<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| line.trim_end().split_once(':'))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> &'a str {
        self.0.get(name).copied().unwrap_or_default()
    }
}

pub(crate) fn version(info: &Info<'_>) -> Finding {
    let valkey = info.get("valkey_version");
    let redis = info.get("redis_version");
    let mut parts = redis.split('.').map_while(|part| part.parse::<u32>().ok());
    let old = (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST_VERSION;
    let found = if valkey.is_empty() {
        format!("Redis {redis}")
    } else {
        format!("Valkey {valkey}")
    };
    VERSION.judge(!old, found)
}

pub(crate) fn mode(info: &Info<'_>, clustered: bool) -> Finding {
    match info.get("redis_mode") {
        "cluster" if clustered => {
            Finding::new(Good, "mode", "a node of a cluster", "as this URL expects")
        }
        "cluster" => Finding::new(
            Danger,
            "mode",
            "a node of a cluster",
            "locks whose names belong to other nodes fail",
        )
        .advise("connect with redis+cluster://"),
        "sentinel" => Finding::new(Danger, "mode", "a sentinel", "it keeps no locks")
            .advise("connect to the server it watches, or with redis+sentinel://"),
        _ => Finding::new(Good, "mode", "a single server", "as this URL expects"),
    }
}

pub(crate) fn eviction(info: &Info<'_>) -> Finding {
    let policy = info.get("maxmemory_policy");
    let limited = info.get("maxmemory") != "0";
    let found = format!(
        "{policy}, {}",
        if limited {
            "memory is limited"
        } else {
            "memory is not limited"
        }
    );
    match (policy, limited) {
        ("noeviction" | "", _) => Finding::new(
            Good,
            "eviction",
            found,
            "no lock is thrown away; when memory is full, acquiring fails and releasing works",
        ),
        (_, false) => Finding::new(
            Advice,
            "eviction",
            found,
            "no lock is thrown away as long as memory stays without a limit",
        )
        .advise("set maxmemory-policy noeviction"),
        _ => Finding::new(
            Danger,
            "eviction",
            found,
            "the server may throw a lock away while it is held, and give it to another",
        )
        .advise("set maxmemory-policy noeviction, or keep locks on a server of their own"),
    }
}

async fn persistence(connection: &Connection, info: &Info<'_>) -> Result<Finding> {
    if info.get("aof_enabled") == "1" {
        let fsync = setting(connection, "appendfsync")
            .await?
            .unwrap_or_else(|| "appendfsync unknown".to_owned());
        let found = format!("append-only file, {fsync}");
        return Ok(APPEND_ONLY.judge(fsync == "always", found));
    }
    let save = setting(connection, "save").await?;
    let found = match save.as_deref() {
        Some("") => "nothing is written to disk".to_owned(),
        Some(save) => format!("snapshots now and then ({save})"),
        None => "no append-only file; CONFIG is not allowed".to_owned(),
    };
    Ok(Finding::new(Advice, "persistence", found, "after a crash locks are forgotten, and fencing counters start again or go back; holders are told at the next renewal")
        .advise("set appendonly yes; if fencing tokens guard your data, also appendfsync always"))
}

async fn setting(connection: &Connection, name: &str) -> Result<Option<String>> {
    let request = Request::new("CONFIG").arg("GET").arg(name);
    let reply = allowed(connection.ask(&request, connection.deadline()).await)?;
    Ok(reply.and_then(|reply| reply.list()?.get(1)?.text().map(str::to_owned)))
}

pub(crate) fn role(info: &Info<'_>) -> Finding {
    let replicas = info.get("connected_slaves");
    match (info.get("role"), replicas) {
        ("slave", _) => Finding::new(Danger, "role", "a replica", "it takes no locks").advise("connect to its primary"),
        (_, "0" | "") => Finding::new(Good, "replicas", "none", "no fail-over can forget a lock; while the server is down, nobody gets one"),
        (_, count) => Finding::new(Advice, "replicas", count, "a fail-over to one that had not acknowledged a lock forgets it; its holder is told at the next renewal")
            .advise("acknowledge by all, or guard data by fencing tokens"),
    }
}

#[cfg(test)]
mod tests;
