//! The same libraries, and more, for the benchmark: processes that take locks under load and record the times.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::build::{self, Project};
use crate::java::{RedissonVersion, curator_bench, redisson_bench};
use crate::workspace;

/// The library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bench {
    /// Java: the newest Redisson.
    Redisson,
    /// Go: redsync.
    Redsync,
    /// Go: bsm/redislock.
    Redislock,
    /// JavaScript: node-redlock.
    NodeRedlock,
    /// Python: the `Lock` of redis-py.
    RedisPy,
    /// Rust: rslock.
    Rslock,
    /// Rust: distributed-lock.
    DistributedLock,
    /// Rust: the crate named `redisson`.
    RedissonRs,
    /// Java on ZooKeeper: Curator.
    Curator,
    /// Go on etcd: the package `concurrency` of etcd's own client.
    EtcdConcurrency,
}

impl Bench {
    /// A short name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::Redsync => "redsync",
            Self::Redislock => "redislock",
            Self::NodeRedlock => "node-redlock",
            Self::RedisPy => "redis-py",
            Self::Rslock => "rslock",
            Self::DistributedLock => "distributed-lock",
            Self::RedissonRs => "redisson-rs",
            Self::Curator => "curator",
            Self::EtcdConcurrency => "etcd-concurrency",
        }
    }

    /// The version that we build, from its manifest.
    pub fn version(self) -> String {
        let (file, before) = match self {
            Self::Redisson => return RedissonVersion::Newest.number().to_owned(),
            Self::Redsync => ("redsync/go.mod", "go-redsync/redsync/v4 v"),
            Self::Redislock => ("redsync/go.mod", "bsm/redislock v"),
            Self::NodeRedlock => ("node-redlock/package.json", "\"redlock\": \""),
            Self::RedisPy => ("redis-py/requirements.txt", "redis=="),
            Self::Rslock => ("rust-bench/Cargo.toml", "rslock = { version = \"="),
            Self::DistributedLock => (
                "rust-bench/Cargo.toml",
                "distributed-lock-redis = { version = \"=",
            ),
            Self::RedissonRs => ("rust-bench/Cargo.toml", "redisson = { version = \"="),
            Self::Curator => ("curator/pom.xml", "<curator.version>"),
            Self::EtcdConcurrency => ("etcd-go/go.mod", "go.etcd.io/etcd/client/v3 v"),
        };
        let text = fs::read_to_string(interop().join(file)).unwrap_or_default();
        let rest = text.split_once(before).map_or("", |(_, rest)| rest);
        let end = rest.find(['"', '<', '\n']).unwrap_or(rest.len());
        rest[..end].trim().to_owned()
    }

    /// The command that starts it on the server at that `SCHEME://HOST:PORT`. Builds it first if needed.
    ///
    /// # Errors
    /// Fails when it cannot be built.
    pub fn command(self, url: &str) -> Result<Command> {
        let (_, place) = url.split_once("://").context(url.to_owned())?;
        let mut command = match self {
            Self::Redisson => return redisson_bench(url),
            Self::Curator => return curator_bench(place),
            Self::EtcdConcurrency => Command::new(build::built(Project::GoEtcd)?.join("bench")),
            Self::Redsync | Self::Redislock => {
                let mut command = Command::new(build::built(Project::Go)?.join("bench"));
                command.arg(self.word());
                command
            }
            Self::NodeRedlock => {
                let mut command = Command::new("node");
                command.arg(build::built(Project::Node)?.join("bench.js"));
                command
            }
            Self::RedisPy => {
                let python = build::built(Project::Python)?.join("venv/bin/python");
                let mut command = Command::new(python);
                command.arg("-u").arg(interop().join("redis-py/bench.py"));
                command
            }
            Self::Rslock | Self::DistributedLock | Self::RedissonRs => {
                let out = build::built(Project::RustBench(self.word()))?;
                Command::new(out.join("release").join(self.word()))
            }
        };
        command.arg(place);
        Ok(command)
    }
}

fn interop() -> PathBuf {
    workspace().join("interop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_found_in_its_manifest() {
        for bench in [
            Bench::Redisson,
            Bench::Redsync,
            Bench::Redislock,
            Bench::NodeRedlock,
            Bench::RedisPy,
            Bench::Rslock,
            Bench::DistributedLock,
            Bench::RedissonRs,
            Bench::Curator,
            Bench::EtcdConcurrency,
        ] {
            let version = bench.version();
            let first = version.chars().next();
            assert!(
                first.is_some_and(|c| c.is_ascii_digit()),
                "{bench:?}: {version:?}"
            );
        }
    }
}
