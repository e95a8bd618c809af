//! A Redis cluster, its failovers, and slot migrations.

mod builder;
mod migration;
mod view;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

pub use builder::ClusterBuilder;
pub use migration::Migration;

use super::member::logs;
use super::wait::until;
use super::{Certs, RedisServer};

const SLOTS: u16 = 16384;

/// The limit for any operation here, except a failover whose limit the caller sets.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of primaries and their replicas. Drop ends all of them.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    /// The cluster's id of each node.
    ids: Vec<String>,
    certs: Option<Certs>,
    password: Option<String>,
    login: Option<(Option<String>, String)>,
    _dir: TempDir,
}

impl Cluster {
    /// Three primaries, each with one replica.
    ///
    /// # Errors
    /// The same as [`ClusterBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// A builder for another cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// `redis+cluster://127.0.0.1:P1,…` with every node, `rediss+cluster://…` with TLS, with the password as user
    /// information.
    pub fn url(&self) -> String {
        let login = self.password.as_ref();
        self.url_with(&login.map_or_else(String::new, |password| format!(":{password}@")))
    }

    /// As [`url`](Self::url), with this user of an access list.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, login: &str) -> String {
        let tls = if self.certs.is_some() { "s" } else { "" };
        format!("redis{tls}+cluster://{login}{}", super::hosts(&self.nodes))
    }

    /// Every node: at the start, first the primaries, then one replica of each, and so on.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The certificates of all nodes, if they use TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// Fails when no node is up.
    pub fn slot_of(&self, key: &str) -> Result<u16> {
        self.someone()?.query(&["CLUSTER", "KEYSLOT", key])
    }

    /// The primary that owns a key's slot.
    ///
    /// # Errors
    /// The same as [`primary_of_slot`](Self::primary_of_slot).
    pub fn node_of(&self, key: &str) -> Result<&RedisServer> {
        self.primary_of_slot(self.slot_of(key)?)
    }

    /// The primary that owns a slot, by the newest claim that any running node knows. It may be down until another node
    /// has taken over.
    ///
    /// # Errors
    /// Fails when no node is up or no node owns the slot.
    pub fn primary_of_slot(&self, slot: u16) -> Result<&RedisServer> {
        let owner = self.lines()?.into_iter().filter(|line| line.has(slot));
        let newest = owner.max_by_key(|line| line.epoch);
        self.by_id(
            &newest
                .with_context(|| format!("nobody has slot {slot}"))?
                .id,
        )
    }

    /// The primaries that own slots, in the order of [`nodes`](Self::nodes).
    ///
    /// # Errors
    /// The same as [`primary_of_slot`](Self::primary_of_slot).
    pub fn primaries(&self) -> Result<Vec<&RedisServer>> {
        let mut newest = vec![None::<(u64, usize)>; usize::from(SLOTS)];
        for line in self.lines()? {
            let claim = (line.epoch, self.index(&line.id)?);
            for slot in line.slots.iter().cloned().flatten() {
                let known = &mut newest[usize::from(slot)];
                *known = (*known).max(Some(claim));
            }
        }
        let owners = newest.into_iter().flatten().map(|(_, index)| index);
        let owners: std::collections::BTreeSet<usize> = owners.collect();
        Ok(owners.into_iter().map(|i| &self.nodes[i]).collect())
    }

    /// The running replicas of a node, as they report it themselves.
    ///
    /// # Errors
    /// Fails when a node does not answer.
    pub fn replicas_of(&self, primary: &RedisServer) -> Result<Vec<&RedisServer>> {
        let id = self.id_of(primary)?;
        let mut found = Vec::new();
        for node in self.up() {
            let own = view::of(node)?.into_iter().find(|line| line.is("myself"));
            if own.is_some_and(|own| own.follows.as_deref() == Some(id)) {
                found.push(node);
            }
        }
        Ok(found)
    }

    /// The first running replica of a node.
    ///
    /// # Errors
    /// Fails when there is none.
    pub fn replica_of(&self, primary: &RedisServer) -> Result<&RedisServer> {
        let mut replicas = self.replicas_of(primary)?.into_iter();
        replicas
            .next()
            .with_context(|| format!("{} has no replica that is up", primary.addr()))
    }

    /// Runs a planned failover of the node that owns `slot` (`CLUSTER FAILOVER`, sent to its replica). Returns the new
    /// primary once every running node knows it.
    ///
    /// # Errors
    /// Fails when there is no replica or it takes longer than 20 s.
    pub fn failover(&self, slot: u16) -> Result<&RedisServer> {
        let old = self.primary_of_slot(slot)?;
        let new = self.replica_of(old)?;
        new.admin(&["CLUSTER", "FAILOVER"])?;
        self.await_owner(slot, PATIENCE, |owner| owner.port() == new.port())
    }

    /// Waits until every running node agrees that another node than `old` owns `slot`.
    ///
    /// # Errors
    /// Fails when that takes longer than `within`.
    pub fn await_primary_other_than(
        &self,
        slot: u16,
        old: &RedisServer,
        within: Duration,
    ) -> Result<&RedisServer> {
        self.await_owner(slot, within, |owner| owner.port() != old.port())
    }

    /// Waits until every running node reports that the cluster works, all agree on the owners of the slots, and every
    /// running replica is in sync.
    ///
    /// # Errors
    /// Fails when that takes longer than 20 s.
    pub fn await_ok(&self) -> Result<()> {
        until("a cluster that works", PATIENCE, || self.check()).with_context(|| logs(&self.nodes))
    }

    /// The last log lines of its nodes.
    pub fn logs(&self) -> String {
        logs(&self.nodes)
    }

    /// A migration of a slot to another primary, step by step.
    ///
    /// # Errors
    /// Fails when no node is up.
    pub fn migration<'a>(&'a self, slot: u16, to: &'a RedisServer) -> Result<Migration<'a>> {
        Migration::new(self, slot, to)
    }

    /// Migrates a slot with all its keys to another primary.
    ///
    /// # Errors
    /// Fails when a node refuses.
    pub fn migrate_slot(&self, slot: u16, to: &RedisServer) -> Result<()> {
        let migration = self.migration(slot, to)?;
        migration.begin()?;
        migration.move_keys()?;
        migration.finish()
    }

    fn await_owner(
        &self,
        slot: u16,
        within: Duration,
        wanted: impl Fn(&RedisServer) -> bool,
    ) -> Result<&RedisServer> {
        until("another primary", within, || {
            let owner = self.primary_of_slot(slot)?;
            ensure!(wanted(owner), "{} still has slot {slot}", owner.addr());
            ensure!(owner.is_up(), "{} is down", owner.addr());
            self.check_agree(slot, self.id_of(owner)?)?;
            // Only the node itself knows whether it accepts writes.
            let state = owner.info("role")?;
            ensure!(state == "master", "{} is a {state}", owner.addr());
            Ok(owner)
        })
        .with_context(|| logs(&self.nodes))
    }

    fn check_agree(&self, slot: u16, id: &str) -> Result<()> {
        for node in self.up() {
            let owner = view::of(node)?.into_iter().find(|line| line.has(slot));
            let known = owner.is_some_and(|owner| owner.id == id);
            ensure!(known, "{} does not know it yet", node.addr());
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let mut slots = None;
        for node in self.up() {
            let state: String = node.query(&["CLUSTER", "INFO"])?;
            let works = state.contains("cluster_state:ok");
            ensure!(works, "{} says {state}", node.addr());
            let lines = view::of(node)?;
            let seen = view::owners(&lines)?;
            let agreed = slots.get_or_insert_with(|| seen.clone());
            ensure!(*agreed == seen, "{} sees other slots", node.addr());
            let own = lines.iter().find(|line| line.is("myself"));
            if let Some(id) = own.and_then(|own| own.follows.as_ref()) {
                node.check_follows(self.by_id(id)?.port())?;
            }
        }
        for primary in self.primaries()?.into_iter().filter(|node| node.is_up()) {
            let up = self.replicas_of(primary)?.len();
            let reached = primary.replicas_reached(up)?;
            ensure!(reached >= up, "{} reaches {reached}", primary.addr());
        }
        Ok(())
    }

    fn up(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_up())
    }

    fn someone(&self) -> Result<&RedisServer> {
        self.up().next().context("no node is up")
    }

    /// The view that each running node has of all nodes.
    fn lines(&self) -> Result<Vec<view::Line>> {
        let mut lines = Vec::new();
        for node in self.up() {
            lines.extend(view::of(node)?);
        }
        Ok(lines)
    }

    fn index(&self, id: &str) -> Result<usize> {
        let place = self.ids.iter().position(|own| own == id);
        place.with_context(|| format!("no node is called {id}"))
    }

    fn by_id(&self, id: &str) -> Result<&RedisServer> {
        Ok(&self.nodes[self.index(id)?])
    }

    fn id_of(&self, node: &RedisServer) -> Result<&str> {
        let place = self.nodes.iter().position(|own| own.port() == node.port());
        Ok(&self.ids[place.context("a node of another cluster")?])
    }
}
