use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::{Certs, RedisBuilder, RedisServer, port};
use crate::hosts::Host;

/// The role of a server in a topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// A standalone server, or a replica.
    #[default]
    Data,
    /// A node of a cluster.
    Node,
    /// A sentinel on this port. The port is fixed in advance, because the other sentinels must know it before this one
    /// runs.
    Sentinel,
}

/// The settings of a server that is one of several.
#[derive(Debug, Clone, Default)]
pub(super) struct Membership {
    pub(super) part: Part,
    /// The certificates of all servers.
    pub(super) certs: Option<Certs>,
    /// The text of a configuration file. The server may rewrite it, so that it keeps its role after a restart.
    pub(super) conf: Option<String>,
    pub(super) fixed_port: Option<u16>,
}

impl Membership {
    pub(super) fn port(&self) -> Result<u16> {
        match (self.fixed_port, self.part) {
            (Some(port), _) => Ok(port),
            (None, Part::Node) => port::free_with_bus(),
            (None, _) => port::free(),
        }
    }

    pub(super) fn write_conf(&self, dir: &Path) -> Result<()> {
        let Some(text) = &self.conf else {
            return Ok(());
        };
        fs::write(dir.join("conf"), text).context("the configuration file")
    }
}

impl RedisBuilder {
    /// Makes this server one of several. They authenticate with these certificates and the operator's login.
    pub(super) fn member(mut self, part: Part, certs: Option<&Certs>) -> Self {
        self.membership.part = part;
        self.membership.certs = certs.cloned();
        let login = self.login().map(|(user, password)| {
            let user = user.map(str::to_owned);
            (user, password.to_owned())
        });
        let mut args = Vec::new();
        if self.has_tls() {
            args.extend(["--tls-replication", "yes"]);
        }
        if self.has_tls() && part == Part::Node {
            args.extend(["--tls-cluster", "yes"]);
        }
        if part != Part::Sentinel {
            // We synchronize through a file. Otherwise a replica gets no write before its next heartbeat, up to 1 s
            // later.
            args.extend(["--repl-diskless-sync", "no"]);
            // We load without a file: Valkey checks only once a second whether the file has arrived.
            args.extend(["--repl-diskless-load", "on-empty-db"]);
            args.extend(["--repl-ping-replica-period", "1"]);
            if let Some((user, password)) = &login {
                args.extend(user.iter().flat_map(|user| ["--masteruser", user]));
                args.extend(["--masterauth", password]);
            }
        }
        // We put these first, so that the test's own arguments override them.
        self.put_first(&args);
        self
    }
}

/// This many servers with the same settings: on this machine, or if there are hosts, each on the next of them.
pub(super) fn spread(
    server: &RedisBuilder,
    count: usize,
    hosts: &[Host],
) -> Result<Vec<RedisBuilder>> {
    if hosts.is_empty() {
        return Ok(vec![server.clone(); count]);
    }
    let given = hosts.len();
    ensure!(given == count, "{given} hosts for {count} servers");
    let on_host = |host| server.clone().on_host(host);
    Ok(hosts.iter().map(on_host).collect())
}

/// Starts the servers in parallel.
pub(super) fn start_all(builders: Vec<RedisBuilder>) -> Result<Vec<RedisServer>> {
    thread::scope(|scope| {
        let starting: Vec<_> = builders
            .into_iter()
            .map(|builder| scope.spawn(|| builder.start()))
            .collect();
        let started = starting.into_iter().map(|server| {
            let outcome = server.join();
            outcome.map_err(|_| anyhow!("a start panicked"))?
        });
        // We wait for all of them. If one fails, dropping the list ends the others.
        started.collect::<Vec<_>>().into_iter().collect()
    })
}

/// The last log lines of the servers, for the error of a failed start.
pub(super) fn logs<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let mut text = String::from("they said:");
    for server in servers {
        let log = server.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines
            .get(lines.len().saturating_sub(40)..)
            .unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(text, "\n--- {}\n{}", server.addr(), last.join("\n"));
    }
    text
}
