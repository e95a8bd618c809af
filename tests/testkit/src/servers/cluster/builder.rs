use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::member::{Part, logs, spread, start_all};
use super::super::wait::until;
use super::super::{Flavour, RedisBuilder, RedisServer};
use super::{Cluster, PATIENCE, SLOTS, view};
use crate::hosts::Host;
use crate::scratch::scratch;

/// The settings of a cluster. Made by [`Cluster::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct ClusterBuilder {
    server: RedisBuilder,
    primaries: usize,
    replicas: usize,
    node_timeout: Duration,
    hosts: Vec<Host>,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            server: RedisServer::builder(),
            primaries: 3,
            replicas: 1,
            node_timeout: Duration::from_secs(1),
            hosts: Vec::new(),
        }
    }
}

impl ClusterBuilder {
    /// The settings of each node: flavour, TLS, password or access list, more arguments.
    pub fn server(mut self, server: RedisBuilder) -> Self {
        self.server = server;
        self
    }

    /// Number of primaries; the default is 3.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// Number of replicas of each primary; the default is 1.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// The silence after which the others consider a node dead; the default is 1 s.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = time;
        self
    }

    /// Puts each node on a host of its own: first the primaries, then one replica of each, and so on.
    pub fn hosts(mut self, hosts: &[Host]) -> Self {
        self.hosts = hosts.to_vec();
        self
    }

    /// Starts the nodes, joins them, and waits until each reports that the cluster works and replicas are in sync. That
    /// takes at least 2 s, because a primary always waits that long after its start.
    ///
    /// # Errors
    /// Fails when a server does not start or the nodes do not join; the error contains their output.
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
            // A replica may stand for election however old its data is. Otherwise the replica of a primary that was
            // frozen for long never does.
            "--cluster-replica-validity-factor",
            "0",
            // A replica stays with its shard. Otherwise, on a busy machine, a primary may seem to have no replica for
            // the five seconds after which one moves there, and a test that needs all replicas waits in vain.
            "--cluster-migration-barrier",
            "1000",
        ]);
        let count = self.primaries * (1 + self.replicas);
        let nodes = start_all(spread(&node, count, &self.hosts)?)?;
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
            // Each node gets its own epoch. Otherwise the nodes must resolve epoch collisions first, which takes time.
            let epoch = (i + 1).to_string();
            node.admin(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
        }
        // We add the slots before the nodes meet. Otherwise gossip may come first, and a node refuses a slot as busy.
        for (i, node) in nodes[..self.primaries].iter().enumerate() {
            let share = |i: usize| i * usize::from(SLOTS) / self.primaries;
            add_slots(node, flavour, share(i), share(i + 1) - 1)?;
        }
        for (i, node) in nodes.iter().enumerate() {
            // We introduce every node to every other; gossip would take longer.
            for other in &nodes[..i] {
                let port = other.port().to_string();
                let host = other.addr().ip().to_string();
                node.admin(&["CLUSTER", "MEET", &host, &port])?;
            }
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
    // Redis 6.2 does not support slot ranges, so we list every slot.
    if flavour == Flavour::Redis62 {
        order.push("ADDSLOTS".to_owned());
        order.extend((first..=last).map(|slot| slot.to_string()));
    } else {
        order.push("ADDSLOTSRANGE".to_owned());
        order.extend([first.to_string(), last.to_string()]);
    }
    node.admin(&order).map(drop)
}
