use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};

use super::{Certs, RedisBuilder, RedisServer, port};

/// What a server is in a topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// One that is on its own, or follows another.
    #[default]
    Data,
    /// A node of a cluster.
    Node,
    /// A sentinel on this port: the others are told of it before it runs.
    Sentinel,
}

/// What a server needs to be one of several.
#[derive(Debug, Clone, Default)]
pub(super) struct Membership {
    pub(super) part: Part,
    /// The certificates of all of them.
    pub(super) certs: Option<Certs>,
    /// The text of a configuration file that the server may rewrite, so that it knows its place after a restart.
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
    /// This server as one of several that know each other by these certificates and the rights of the operator.
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
            // By a file: without one a replica gets no write before its next sign of life, up to 1 s later.
            args.extend(["--repl-diskless-sync", "no"]);
            // Valkey looks only once a second whether the file has come.
            args.extend(["--repl-diskless-load", "on-empty-db"]);
            args.extend(["--repl-ping-replica-period", "1"]);
            if let Some((user, password)) = &login {
                args.extend(user.iter().flat_map(|user| ["--masteruser", user]));
                args.extend(["--masterauth", password]);
            }
        }
        // In front, so that those a test has chosen win.
        self.put_first(&args);
        self
    }
}

/// Starts them side by side.
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
        // All are waited for; those that run are ended with the list.
        started.collect::<Vec<_>>().into_iter().collect()
    })
}

/// What the servers said last, for the error of a start that failed.
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
