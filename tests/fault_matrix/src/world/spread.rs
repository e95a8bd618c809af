//! Every server and every process on a host of its own.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use testkit::hosts::{Host, Network};
use testkit::servers::{
    Cluster, EtcdCluster, Independents, RedisServer, Sentinels, ZooKeeperEnsemble,
};

use super::behind::{Served, line};
use super::{World, redis};
use crate::store::Store;

/// Servers that are spread over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Topology {
    /// A primary, two replicas and three sentinels; one replica acknowledges
    Sentinel,
    /// The same; both replicas acknowledge
    SentinelAll,
    /// Three primaries with a replica each
    Cluster,
    /// Five independent servers
    Redlock,
    /// Three members of etcd
    Etcd,
    /// Three members of ZooKeeper
    Zookeeper,
}

impl Topology {
    pub(crate) const ALL: [Self; 6] = [
        Self::Sentinel,
        Self::SentinelAll,
        Self::Cluster,
        Self::Redlock,
        Self::Etcd,
        Self::Zookeeper,
    ];

    pub(crate) fn store(self) -> Store {
        match self {
            Self::Sentinel | Self::SentinelAll => Store::Sentinel,
            Self::Cluster => Store::Cluster,
            Self::Redlock => Store::Redlock,
            Self::Etcd => Store::Etcd,
            Self::Zookeeper => Store::Zookeeper,
        }
    }

    fn servers(self) -> usize {
        match self {
            Self::Sentinel | Self::SentinelAll | Self::Cluster => 6,
            Self::Redlock => 5,
            Self::Etcd | Self::Zookeeper => 3,
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sentinel => "Sentinel, `any`",
            Self::SentinelAll => "Sentinel, `all`",
            Self::Cluster => "Cluster",
            Self::Redlock => "RedLock",
            Self::Etcd => "etcd",
            Self::Zookeeper => "ZooKeeper",
        })
    }
}

enum Servers {
    Watched(Sentinels),
    Sharded(Cluster),
    Five(Independents),
    Etcd(EtcdCluster),
    Zookeeper(ZooKeeperEnsemble),
}

/// A topology, with three hosts for processes.
pub(crate) struct Spread {
    // The first field: the servers must end before their hosts.
    servers: Servers,
    /// The hosts of the servers. Under Sentinel, first the data nodes, then the sentinels.
    hosts: Vec<Host>,
    clients: Vec<Host>,
    /// Reaches all the others, whatever is cut.
    operator: Host,
    pub(crate) network: Network,
}

impl Spread {
    pub(crate) fn start(topology: Topology) -> Result<Self> {
        let network = Network::new()?;
        let hosts = network.hosts(topology.servers())?;
        let builder = redis::builder();
        let servers = match topology {
            Topology::Sentinel | Topology::SentinelAll => {
                let sentinels = Sentinels::builder().server(builder);
                Servers::Watched(sentinels.hosts(&hosts[..3], &hosts[3..]).start()?)
            }
            Topology::Cluster => {
                Servers::Sharded(Cluster::builder().server(builder).hosts(&hosts).start()?)
            }
            Topology::Redlock => Servers::Five(Independents::start_on(&hosts, &builder)?),
            Topology::Etcd => Servers::Etcd(EtcdCluster::start_on(&hosts)?),
            Topology::Zookeeper => Servers::Zookeeper(ZooKeeperEnsemble::start_on(&hosts)?),
        };
        Ok(Self {
            servers,
            hosts,
            clients: network.hosts(3)?,
            operator: network.host()?,
            network,
        })
    }

    pub(crate) fn clients(&self) -> &[Host] {
        &self.clients
    }

    pub(crate) fn servers(&self) -> &[Host] {
        &self.hosts
    }

    /// All hosts of servers and processes that are not among these.
    pub(crate) fn all_but(&self, these: &[Host]) -> Vec<Host> {
        let all = self.hosts.iter().chain(&self.clients);
        all.filter(|host| !these.contains(host)).cloned().collect()
    }

    /// The server that decides about this lock; of five independent ones, two.
    pub(crate) fn leaders(&self, name: &str) -> Result<Vec<Host>> {
        let leader = match &self.servers {
            Servers::Watched(all) => all.primary()?.host(),
            Servers::Sharded(all) => all.node_of(name)?.host(),
            Servers::Five(_) => return Ok(self.hosts[..2].to_vec()),
            Servers::Etcd(all) => all.leader()?.ground().host(),
            Servers::Zookeeper(all) => all.leader()?.ground().host(),
        };
        Ok(vec![leader.context("it has no host of its own")?.clone()])
    }

    /// One more server that would stay with these leaders: one of their replicas with a sentinel, or any follower.
    pub(crate) fn followers(&self, name: &str) -> Result<Vec<Host>> {
        let leaders = self.leaders(name)?;
        if let Servers::Sharded(all) = &self.servers {
            let replica = all.replica_of(all.node_of(name)?)?;
            return Ok(replica.host().into_iter().cloned().collect());
        }
        let data = match &self.servers {
            Servers::Watched(_) => &self.hosts[..3],
            _ => &self.hosts[..],
        };
        let mut others = data.iter().filter(|host| !leaders.contains(host));
        let mut found = vec![others.next().context("there is no follower")?.clone()];
        if matches!(self.servers, Servers::Watched(_)) {
            found.push(self.hosts[3].clone());
        }
        Ok(found)
    }

    /// The processes of the servers by whose clocks the leases of this lock count. Of five independent servers three: the
    /// clocks of fewer decide nothing.
    pub(crate) fn clocks(&self, name: &str) -> Result<Vec<u32>> {
        let pid = match &self.servers {
            Servers::Watched(all) => all.primary()?.pid(),
            Servers::Sharded(all) => all.node_of(name)?.pid(),
            Servers::Five(all) => return all.nodes()[..3].iter().map(|one| one.pid()).collect(),
            Servers::Etcd(all) => all.leader()?.pid(),
            Servers::Zookeeper(all) => all.leader()?.pid(),
        };
        Ok(vec![pid?])
    }

    /// The processes of the servers of which one leads next; of five independent servers one that is not a leader.
    pub(crate) fn next_clocks(&self, name: &str) -> Result<Vec<u32>> {
        let now = self.clocks(name)?;
        let all: Vec<Result<u32>> = match &self.servers {
            Servers::Watched(all) => all.nodes().iter().map(|one| one.pid()).collect(),
            Servers::Sharded(all) => vec![all.replica_of(all.node_of(name)?)?.pid()],
            Servers::Five(all) => return Ok(vec![all.nodes()[2].pid()?]),
            Servers::Etcd(all) => all.members().iter().map(|one| one.pid()).collect(),
            Servers::Zookeeper(all) => all.members().iter().map(|one| one.pid()).collect(),
        };
        let mut all = all.into_iter().collect::<Result<Vec<_>>>()?;
        all.retain(|pid| !now.contains(pid));
        Ok(all)
    }

    /// Whether its servers count leases by their wall clocks. etcd and ZooKeeper count by the monotonic clock of the
    /// leader.
    pub(crate) fn counts_by_wall_clocks(&self) -> bool {
        !matches!(self.servers, Servers::Etcd(_) | Servers::Zookeeper(_))
    }

    /// Whether its servers decide without talking to each other.
    pub(crate) fn is_independent(&self) -> bool {
        matches!(self.servers, Servers::Five(_))
    }

    /// The number of failovers that may have lost a lock: those of Sentinel, which promotes a replica without asking what
    /// it has acknowledged.
    pub(crate) fn failovers(&self) -> Result<u64> {
        match &self.servers {
            Servers::Watched(all) => all.failovers(),
            _ => Ok(0),
        }
    }

    /// A number that grows whenever its servers choose another leader, or try to.
    pub(crate) fn elections(&self) -> Result<u64> {
        match &self.servers {
            Servers::Watched(all) => all.failovers(),
            Servers::Sharded(all) => {
                let epoch = |node: &RedisServer| -> Result<u64> {
                    let said: String = node.query(&["CLUSTER", "INFO"])?;
                    Ok(line(&said, "cluster_current_epoch:")?.trim().parse()?)
                };
                let epochs = all.nodes().iter().map(epoch);
                Ok(epochs
                    .collect::<Result<Vec<_>>>()?
                    .into_iter()
                    .max()
                    .unwrap_or(0))
            }
            Servers::Five(_) => Ok(0),
            Servers::Etcd(all) => {
                let said = all
                    .leader()?
                    .admin(&["endpoint", "status", "-w", "fields"])?;
                Ok(line(&said, "\"RaftTerm\" : ")?.trim().parse()?)
            }
            Servers::Zookeeper(all) => {
                // The upper half of a transaction's number is the epoch of its leader.
                let said = all.leader()?.say("srvr")?;
                let zxid = line(&said, "Zxid: 0x")?.trim();
                Ok(u64::from_str_radix(zxid, 16)? >> 32)
            }
        }
    }

    /// The locks with this prefix that the servers list as held.
    pub(crate) fn held(&self, urls: &[String], base: &str) -> Result<Vec<String>> {
        // In a process of its own: the threads of a client belong to the host where they were started.
        let mut command = self.operator.command(std::env::current_exe()?);
        let said = command.arg("held").arg(base).args(urls).output()?;
        let error = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "the held locks: {error}");
        let text = String::from_utf8(said.stdout)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn primaries(&self) -> Result<Vec<&RedisServer>> {
        match &self.servers {
            Servers::Watched(all) => Ok(vec![all.primary()?]),
            Servers::Sharded(all) => all.primaries(),
            Servers::Five(all) => Ok(all.nodes().iter().collect()),
            Servers::Etcd(_) | Servers::Zookeeper(_) => Ok(Vec::new()),
        }
    }
}

impl World for Spread {
    fn urls(&self) -> Vec<String> {
        match &self.servers {
            Servers::Watched(all) => vec![all.url()],
            Servers::Sharded(all) => vec![all.url()],
            Servers::Five(all) => all.urls(),
            Servers::Etcd(all) => vec![format!("{}/matrix", all.url())],
            Servers::Zookeeper(all) => vec![format!("{}/matrix", all.url())],
        }
    }

    fn version(&self) -> Result<String> {
        match &self.servers {
            Servers::Etcd(all) => all.leader()?.version(),
            Servers::Zookeeper(all) => all.leader()?.version(),
            _ => self.primaries()?.first().context("no primary")?.version(),
        }
    }

    fn spread(&self) -> Option<&Spread> {
        Some(self)
    }

    fn wipe(&self, name: &str) -> Result<()> {
        bail!("nobody deletes {name} here")
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        match &self.servers {
            Servers::Etcd(all) => all.leader()?.left(base),
            Servers::Zookeeper(all) => all.leader()?.left(base),
            _ => {
                let mut left = Vec::new();
                for node in self.primaries()? {
                    left.extend(redis::left(node, base)?);
                }
                Ok(left)
            }
        }
    }

    fn mend(&self) -> Result<()> {
        self.network.heal()?;
        match &self.servers {
            Servers::Watched(all) => all.await_ok(),
            Servers::Sharded(all) => all.await_ok(),
            Servers::Five(_) => Ok(()),
            Servers::Etcd(all) => all.await_ok(),
            Servers::Zookeeper(all) => all.await_ok(),
        }
    }
}
