use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::member::{Part, logs, start_all};
use super::wait::until;
use super::{Certs, RedisBuilder, RedisServer};
use crate::proxy::{Mode, Proxy};
use crate::scratch::scratch;

/// The limit for any operation here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A primary and its replicas, without sentinels. Each replica connects through its own proxy, where a test can stall
/// or cut replication.
#[derive(Debug)]
pub struct Replicated {
    nodes: Vec<RedisServer>,
    links: Vec<Proxy>,
    primary: AtomicUsize,
    certs: Option<Certs>,
    _dir: TempDir,
}

impl Replicated {
    /// Starts a primary and this many replicas, all in sync.
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn start(replicas: usize) -> Result<Self> {
        Self::start_with(replicas, RedisServer::builder())
    }

    /// As `start`, with these settings for each node.
    ///
    /// # Errors
    /// Fails as [`RedisBuilder::start`] does, or when the nodes do not get in sync; the error contains their output.
    pub fn start_with(replicas: usize, server: RedisBuilder) -> Result<Self> {
        let dir = scratch()?;
        let certs = server.make_certs(dir.path())?;
        let data = server.member(Part::Data, certs.as_ref());
        let nodes = start_all(vec![data; replicas + 1])?;
        let links = nodes
            .iter()
            .map(|_| Proxy::start_opaque(nodes[0].addr()))
            .collect::<Result<_>>()?;
        let all = Self {
            nodes,
            links,
            primary: AtomicUsize::new(0),
            certs,
            _dir: dir,
        };
        all.follow(0)
            .and_then(|()| all.await_ok())
            .with_context(|| logs(all.nodes()))?;
        Ok(all)
    }

    /// The primary's URL, as [`RedisServer::url`].
    pub fn url(&self) -> String {
        self.primary().url()
    }

    /// Every node. The first was the primary at the start.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The certificates of all nodes, if they use TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// The node that was promoted last.
    pub fn primary(&self) -> &RedisServer {
        &self.nodes[self.primary_index()]
    }

    /// The primary's index among the nodes.
    pub fn primary_index(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }

    /// The proxy between the primary and node `i` while that node is a replica. It carries plain bytes, so modes and
    /// cuts work and rules do not.
    pub fn link(&self, i: usize) -> &Proxy {
        &self.links[i]
    }

    /// Stalls replication between the primary and node `i` in both directions. No connection closes.
    pub fn stall(&self, i: usize) {
        self.links[i].set_both(Mode::Hold);
    }

    /// Continues stalled replication, in order.
    pub fn resume(&self, i: usize) {
        self.links[i].set_both(Mode::Pass);
    }

    /// Promotes node `i` (`REPLICAOF NO ONE`) with the data it has, and makes all other running nodes follow it. An old
    /// primary that is down or frozen comes back as a second primary; see [`demote`](Self::demote).
    ///
    /// # Errors
    /// Fails when node `i` refuses.
    pub fn promote(&self, i: usize) -> Result<&RedisServer> {
        self.nodes[i].admin(&["REPLICAOF", "NO", "ONE"])?;
        self.follow(i)?;
        Ok(&self.nodes[i])
    }

    /// Makes node `i` follow the primary.
    ///
    /// # Errors
    /// Fails when it refuses.
    pub fn demote(&self, i: usize) -> Result<()> {
        let link = self.links[i].port().to_string();
        let order = ["REPLICAOF", "127.0.0.1", &link];
        self.nodes[i].admin(&order).map(drop)
    }

    /// Runs a planned failover to node `i` (`FAILOVER TO`): the primary pauses its clients' writes until node `i` has
    /// them all, then the two change roles. Returns once they have, and all others follow.
    ///
    /// # Errors
    /// Fails when the primary refuses or it takes longer than 20 s.
    pub fn failover(&self, i: usize) -> Result<&RedisServer> {
        let (old, new) = (self.primary(), &self.nodes[i]);
        let port = new.port().to_string();
        old.admin(&["FAILOVER", "TO", "127.0.0.1", &port])?;
        until("the places changed", PATIENCE, || {
            let state = old.info("master_failover_state")?;
            ensure!(state == "no-failover", "the failover is in state {state}");
            ensure!(!old.is_primary()?, "the old primary is still one");
            ensure!(new.is_primary()?, "the new primary is none yet");
            Ok(())
        })?;
        self.follow(i)?;
        self.await_ok()?;
        Ok(new)
    }

    /// Waits until all running nodes are in sync with the primary.
    ///
    /// # Errors
    /// Fails when that takes longer than 20 s.
    pub fn await_ok(&self) -> Result<()> {
        let primary = self.primary();
        until("replicas in sync", PATIENCE, || {
            for (node, link) in self.nodes.iter().zip(&self.links) {
                if node.port() != primary.port() && node.is_up() {
                    node.check_follows(link.port())?;
                }
            }
            let wanted = self.nodes.iter().filter(|node| node.is_up()).count() - 1;
            let reached = primary.replicas_reached(wanted)?;
            ensure!(reached >= wanted, "{reached} replicas are in sync");
            Ok(())
        })
        .with_context(|| logs(&self.nodes))
    }

    /// Makes every running node follow node `i`.
    fn follow(&self, i: usize) -> Result<()> {
        self.primary.store(i, Ordering::SeqCst);
        for link in &self.links {
            link.set_upstream(self.nodes[i].addr());
            // A node that already follows through its proxy would stay with the old primary, so we disconnect it first.
            link.cut();
        }
        let others = (0..self.nodes.len()).filter(|&other| other != i);
        for other in others.filter(|&other| self.nodes[other].is_up()) {
            self.demote(other)?;
        }
        Ok(())
    }
}
