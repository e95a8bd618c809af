use anyhow::{Result, ensure};

use super::super::{RedisServer, Reply};
use super::Cluster;

/// How long one `MIGRATE` may take, in milliseconds.
const PATIENCE: &str = "5000";

/// A slot's way from its primary to another one. Each step is made when it is called, so a test can stop between any two.
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

    /// Where the slot comes from.
    pub fn from(&self) -> &'a RedisServer {
        self.from
    }

    /// Where it goes.
    pub fn to(&self) -> &'a RedisServer {
        self.to
    }

    /// Opens the way (`SETSLOT IMPORTING` and `MIGRATING`): from now on the old node answers `ASK` for keys it has not
    /// and, from Redis 7 on, `TRYAGAIN` for several of which it has some.
    ///
    /// # Errors
    /// When a node refuses, or the cluster is not [well](Cluster::await_ok).
    pub fn begin(&self) -> Result<()> {
        // Right after another change the two may claim the slot in one epoch, and the old node take it back later.
        self.cluster.await_ok()?;
        let (from, to) = (self.cluster.id_of(self.from)?, self.cluster.id_of(self.to)?);
        self.set(self.to, &["IMPORTING", from])?;
        self.set(self.from, &["MIGRATING", to])
    }

    /// The keys that have not gone yet.
    ///
    /// # Errors
    /// When the old node does not answer.
    pub fn keys(&self) -> Result<Vec<String>> {
        self.from
            .query(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100000"])
    }

    /// Moves one key.
    ///
    /// # Errors
    /// When there is none of that name, or a node refuses.
    pub fn move_key(&self, key: &str) -> Result<()> {
        let reply = self.send(&[key.to_owned()])?;
        ensure!(reply == Reply::Okay, "{key} was not moved: {reply:?}");
        Ok(())
    }

    /// Moves every key there is now, and returns how many there were. What is written to others meanwhile is written to
    /// the new node.
    ///
    /// # Errors
    /// When a node refuses.
    pub fn move_keys(&self) -> Result<usize> {
        let keys = self.keys()?;
        if !keys.is_empty() {
            // Says NOKEY, which is as good, if all of them have ended since.
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

    /// Gives the slot to the new node (`SETSLOT NODE`), tells every primary that is up, and waits until all nodes agree.
    ///
    /// # Errors
    /// When a node refuses, as the old one does while it has keys.
    pub fn finish(&self) -> Result<()> {
        let to = self.cluster.id_of(self.to)?;
        // The new node first: were the old one first, nobody would have the slot if this ended here.
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

    /// Calls it off (`SETSLOT STABLE`). Keys that were moved are lost to clients until they are moved back.
    ///
    /// # Errors
    /// When a node refuses.
    pub fn cancel(&self) -> Result<()> {
        self.set(self.to, &["STABLE"])?;
        self.set(self.from, &["STABLE"])
    }

    fn set(&self, node: &RedisServer, words: &[&str]) -> Result<()> {
        let order = [&["CLUSTER", "SETSLOT", &self.slot], words].concat();
        node.admin(&order).map(drop)
    }
}
