use anyhow::{Result, ensure};

use super::super::{RedisServer, Reply};
use super::Cluster;

/// The limit of one `MIGRATE`, in milliseconds.
const PATIENCE: &str = "5000";

/// The migration of a slot. Each step runs when it is called, so a test can stop between any two.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> Migration<'a> {
    pub(super) fn new(cluster: &'a Cluster, slot: u16, to: &'a RedisServer) -> Result<Self> {
        let from = cluster.primary_of_slot(slot)?;
        ensure!(
            from.port() != to.port(),
            "{} has slot {slot} already",
            to.addr()
        );
        Ok(Self {
            cluster,
            slot: slot.to_string(),
            from,
            to,
        })
    }

    /// The old node.
    pub fn from(&self) -> &'a RedisServer {
        self.from
    }

    /// The new node.
    pub fn to(&self) -> &'a RedisServer {
        self.to
    }

    /// Starts the migration (`SETSLOT IMPORTING` and `MIGRATING`). From now on the old node answers `ASK` for keys it
    /// does not have and, from Redis 7 on, `TRYAGAIN` for several keys of which it has some.
    ///
    /// # Errors
    /// Fails when a node refuses, or the cluster is not [well](Cluster::await_ok).
    pub fn begin(&self) -> Result<()> {
        // We wait until the cluster is well. Right after another change, both nodes may claim the slot in one epoch,
        // and the old node would take it back later.
        self.cluster.await_ok()?;
        let (from, to) = (self.cluster.id_of(self.from)?, self.cluster.id_of(self.to)?);
        self.set(self.to, &["IMPORTING", from])?;
        self.set(self.from, &["MIGRATING", to])
    }

    /// The keys that are still on the old node.
    ///
    /// # Errors
    /// Fails when the old node does not answer.
    pub fn keys(&self) -> Result<Vec<String>> {
        self.from
            .query(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100000"])
    }

    /// Migrates one key.
    ///
    /// # Errors
    /// Fails when there is no such key, or a node refuses.
    pub fn move_key(&self, key: &str) -> Result<()> {
        let reply = self.send(&[key.to_owned()])?;
        ensure!(reply == Reply::Okay, "{key} was not moved: {reply:?}");
        Ok(())
    }

    /// Migrates every key that exists now, and returns how many there were. Clients write new keys to the new node in
    /// the meantime.
    ///
    /// # Errors
    /// Fails when a node refuses.
    pub fn move_keys(&self) -> Result<usize> {
        let keys = self.keys()?;
        if !keys.is_empty() {
            // MIGRATE answers NOKEY if all of these keys have expired since. That is just as good.
            self.send(&keys)?;
        }
        Ok(keys.len())
    }

    fn send(&self, keys: &[String]) -> Result<Reply> {
        let port = self.to.port().to_string();
        let host = self.to.addr().ip().to_string();
        let mut order = vec!["MIGRATE", &host, &port, "", "0", PATIENCE];
        if let Some((user, password)) = &self.cluster.login {
            match user {
                Some(user) => order.extend(["AUTH2", user, password]),
                None => order.extend(["AUTH", password]),
            }
        }
        order.push("KEYS");
        order.extend(keys.iter().map(String::as_str));
        self.from.admin(&order)
    }

    /// Assigns the slot to the new node (`SETSLOT NODE`), tells every running primary, and waits until all nodes agree.
    ///
    /// # Errors
    /// Fails when a node refuses, as the old one does while it still has keys.
    pub fn finish(&self) -> Result<()> {
        let to = self.cluster.id_of(self.to)?;
        // We tell the new node first. If we told the old one first and failed here, no node would own the slot.
        self.set(self.to, &["NODE", to])?;
        self.set(self.from, &["NODE", to])?;
        for node in self.cluster.up() {
            let known = [self.to.port(), self.from.port()].contains(&node.port());
            if !known && node.is_primary()? {
                self.set(node, &["NODE", to])?;
            }
        }
        self.cluster.await_ok()
    }

    /// Cancels the migration (`SETSLOT STABLE`). Clients cannot find the migrated keys until they are migrated back.
    ///
    /// # Errors
    /// Fails when a node refuses.
    pub fn cancel(&self) -> Result<()> {
        self.set(self.to, &["STABLE"])?;
        self.set(self.from, &["STABLE"])
    }

    fn set(&self, node: &RedisServer, words: &[&str]) -> Result<()> {
        let order = [&["CLUSTER", "SETSLOT", &self.slot], words].concat();
        node.admin(&order).map(drop)
    }
}
