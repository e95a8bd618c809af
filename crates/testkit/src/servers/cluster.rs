//! A cluster, its failovers, and slots on their way.

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

/// How long anything here may take that is not a failover of somebody's choosing.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of primaries and their replicas. All of it goes with this value.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    /// What each node is called in the cluster.
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
    /// As [`ClusterBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Something other than that.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// `redis+cluster://127.0.0.1:P1,…` with every node, `rediss+cluster://…` with TLS, with the password as user
    /// information.
    pub fn url(&self) -> String {
        let login = self.password.as_ref();
        self.url_with(&login.map_or_else(String::new, |password| format!(":{password}@")))
    }

    /// As [`url`](Self::url), as this user of an access list.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, login: &str) -> String {
        let tls = if self.certs.is_some() { "s" } else { "" };
        format!("redis{tls}+cluster://{login}{}", super::hosts(&self.nodes))
    }

    /// Every node; at the start the primaries came first, then a replica of each, and so on.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The certificates of all of them, if they speak TLS.
    pub fn certs(&self) -> Option<&Certs> {
        self.certs.as_ref()
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// When no node is up.
    pub fn slot_of(&self, key: &str) -> Result<u16> {
        self.someone()?.query(&["CLUSTER", "KEYSLOT", key])
    }

    /// The primary that has a key's slot.
    ///
    /// # Errors
    /// As [`primary_of_slot`](Self::primary_of_slot).
    pub fn node_of(&self, key: &str) -> Result<&RedisServer> {
        self.primary_of_slot(self.slot_of(key)?)
    }

    /// The primary that has a slot, by the newest claim any node that is up knows of. It may itself be down, until
    /// another has taken over.
    ///
    /// # Errors
    /// When no node is up or none has the slot.
    pub fn primary_of_slot(&self, slot: u16) -> Result<&RedisServer> {
        let owner = self.lines()?.into_iter().filter(|line| line.has(slot));
        let newest = owner.max_by_key(|line| line.epoch);
        self.by_id(
            &newest
                .with_context(|| format!("nobody has slot {slot}"))?
                .id,
        )
    }

    /// The primaries that have slots, in the order of [`nodes`](Self::nodes).
    ///
    /// # Errors
    /// As [`primary_of_slot`](Self::primary_of_slot).
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

    /// The replicas of a node that are up, by their own word.
    ///
    /// # Errors
    /// When a node does not answer.
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

    /// The first of them.
    ///
    /// # Errors
    /// When there is none.
    pub fn replica_of(&self, primary: &RedisServer) -> Result<&RedisServer> {
        let mut replicas = self.replicas_of(primary)?.into_iter();
        replicas
            .next()
            .with_context(|| format!("{} has no replica that is up", primary.addr()))
    }

    /// A planned failover of the node that has `slot` (`CLUSTER FAILOVER`, sent to its replica). Returns the new primary
    /// once every node that is up knows it.
    ///
    /// # Errors
    /// When there is no replica or it takes longer than 20 s.
    pub fn failover(&self, slot: u16) -> Result<&RedisServer> {
        let old = self.primary_of_slot(slot)?;
        let new = self.replica_of(old)?;
        new.admin(&["CLUSTER", "FAILOVER"])?;
        self.await_owner(slot, PATIENCE, |owner| owner.port() == new.port())
    }

    /// Waits until every node that is up agrees that another one than `old` has `slot`.
    ///
    /// # Errors
    /// When there is none `within` that time.
    pub fn await_primary_other_than(
        &self,
        slot: u16,
        old: &RedisServer,
        within: Duration,
    ) -> Result<&RedisServer> {
        self.await_owner(slot, within, |owner| owner.port() != old.port())
    }

    /// Waits until every node that is up says that the cluster works, they agree on who has which slot, and every replica
    /// that is up is in sync.
    ///
    /// # Errors
    /// When that takes longer than 20 s.
    pub fn await_ok(&self) -> Result<()> {
        until("a cluster that works", PATIENCE, || self.check()).with_context(|| logs(&self.nodes))
    }

    /// What its nodes said last.
    pub fn logs(&self) -> String {
        logs(&self.nodes)
    }

    /// A slot's way to another primary, step by step.
    ///
    /// # Errors
    /// When no node is up.
    pub fn migration<'a>(&'a self, slot: u16, to: &'a RedisServer) -> Result<Migration<'a>> {
        Migration::new(self, slot, to)
    }

    /// Brings a slot with all its keys to another primary.
    ///
    /// # Errors
    /// When a node refuses.
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
            // Only its own word shows that it takes writes.
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

    /// What all nodes that are up think of all.
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
