use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::member::{Part, logs, start_all};
use super::super::wait::until;
use super::super::{Flavour, RedisBuilder, RedisServer};
use super::{Cluster, PATIENCE, SLOTS, view};
use crate::scratch::scratch;

/// What a cluster is started with. Made by [`Cluster::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct ClusterBuilder {
    server: RedisBuilder,
    primaries: usize,
    replicas: usize,
    node_timeout: Duration,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            server: RedisServer::builder(),
            primaries: 3,
            replicas: 1,
            node_timeout: Duration::from_secs(1),
        }
    }
}

impl ClusterBuilder {
    /// What each node is started with: flavour, TLS, password or access list, more arguments.
    pub fn server(mut self, server: RedisBuilder) -> Self {
        self.server = server;
        self
    }

    /// How many primaries there are; 3 without this.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// How many replicas each primary has; 1 without this.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// How long a node is silent before another takes it for dead; 1 s without this.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = time;
        self
    }

    /// Starts the nodes, makes a cluster of them, and waits until each says that it works and replicas are in sync. That
    /// is 2 s at least: a primary waits so long after its start, whatever it knows.
    ///
    /// # Errors
    /// When a server does not start or they do not come together; with what they said.
    pub fn start(self) -> Result<Cluster> {
        let flavour = self.server.which()?;
        let dir = scratch()?;
        let certs = self.server.make_certs(dir.path())?;
        let timeout = self.node_timeout.as_millis().to_string();
        let mut node = self.server.clone().member(Part::Node, certs.as_ref());
        node.put_first(&[
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            &timeout,
            // However old its data: else a replica whose primary was frozen for long never stands for election.
            "--cluster-replica-validity-factor",
            "0",
            // A replica stays with its shard: on a busy machine another one may seem to have none for the five seconds after
            // which one moves there, and whoever counts on all of them waits for it in vain.
            "--cluster-migration-barrier",
            "1000",
        ]);
        let nodes = start_all(vec![node; self.primaries * (1 + self.replicas)])?;
        let mut cluster = Cluster {
            nodes,
            ids: Vec::new(),
            certs,
            password: self.server.open_password().map(str::to_owned),
            login: self
                .server
                .login()
                .map(|(user, password)| (user.map(str::to_owned), password.to_owned())),
            _dir: dir,
        };
        self.join(&mut cluster, flavour)
            .with_context(|| logs(cluster.nodes()))?;
        Ok(cluster)
    }

    fn join(&self, cluster: &mut Cluster, flavour: Flavour) -> Result<()> {
        let nodes = &cluster.nodes;
        let ids: Vec<String> = nodes
            .iter()
            .map(|node| node.query(&["CLUSTER", "MYID"]))
            .collect::<Result<_>>()?;
        for (i, node) in nodes.iter().enumerate() {
            let epoch = (i + 1).to_string();
            node.admin(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
            // Everybody is introduced to everybody: gossip would take longer.
            for other in &nodes[..i] {
                let port = other.port().to_string();
                let host = other.addr().ip().to_string();
                node.admin(&["CLUSTER", "MEET", &host, &port])?;
            }
        }
        for (i, node) in nodes[..self.primaries].iter().enumerate() {
            let share = |i: usize| i * usize::from(SLOTS) / self.primaries;
            add_slots(node, flavour, share(i), share(i + 1) - 1)?;
        }
        for (i, node) in nodes.iter().enumerate().skip(self.primaries) {
            let primary = &ids[i % self.primaries];
            until("nodes that know each other", PATIENCE, || {
                let known = view::of(node)?;
                let met = known.iter().filter(|line| !line.is("handshake")).count();
                ensure!(met == nodes.len(), "{met} of {} have met", nodes.len());
                node.admin(&["CLUSTER", "REPLICATE", primary])
            })?;
        }
        cluster.ids = ids;
        cluster.await_ok()
    }
}

fn add_slots(node: &RedisServer, flavour: Flavour, first: usize, last: usize) -> Result<()> {
    let mut order = vec!["CLUSTER".to_owned()];
    // Redis 6.2 knows no ranges.
    if flavour == Flavour::Redis62 {
        order.push("ADDSLOTS".to_owned());
        order.extend((first..=last).map(|slot| slot.to_string()));
    } else {
        order.push("ADDSLOTSRANGE".to_owned());
        order.extend([first.to_string(), last.to_string()]);
    }
    node.admin(&order).map(drop)
}
