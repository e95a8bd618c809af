//! What ZooKeeper does with the requests about a semaphore.

use std::collections::BTreeMap;

use crate::store::zookeeper::claims;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::keys;
use crate::store::zookeeper::permit_steps::{NodeChange, PermitPaths};
use crate::store::zookeeper::permit_view::SemaphoreNumber;

#[derive(Debug, Clone, Default)]
struct ModelNode {
    data: Vec<u8>,
    version: i32,
    changed: i64,
}

/// What ZooKeeper does with a request. It has no sessions.
#[derive(Debug, Default)]
pub(super) struct ModelZooKeeper {
    /// The last transaction.
    zxid: i64,
    nodes: BTreeMap<String, ModelNode>,
    claims: u32,
}

pub(super) fn paths() -> PermitPaths {
    PermitPaths {
        number: format!("/t/render/{}", keys::NUMBER),
        claims: "/t/%permits/render".to_owned(),
    }
}

impl ModelZooKeeper {
    /// As the server does: the operations one after the other, and none if one of them fails.
    pub(super) fn multi(&mut self, changes: &[NodeChange]) -> Result<(), usize> {
        let (mut nodes, zxid) = (self.nodes.clone(), self.zxid + 1);
        for (at, change) in changes.iter().enumerate() {
            let fits = |path: &str, version: Option<i32>| {
                let node = nodes
                    .get(path)
                    .filter(|node| version.is_none_or(|it| it == node.version));
                node.map(drop).ok_or(at)
            };
            match change {
                NodeChange::Check { path, version } => fits(path, *version)?,
                NodeChange::Set {
                    path,
                    data,
                    version,
                } => {
                    fits(path, Some(*version))?;
                    let node = nodes.get_mut(path).unwrap();
                    (node.data, node.changed) = (data.clone(), zxid);
                    node.version += 1;
                }
                NodeChange::Create { path, data } => {
                    let node = ModelNode {
                        data: data.clone(),
                        changed: zxid,
                        version: 0,
                    };
                    if nodes.insert(path.clone(), node).is_some() {
                        return Err(at);
                    }
                }
                NodeChange::Delete { path, .. } => drop(nodes.remove(path).ok_or(at)?),
            }
        }
        (self.nodes, self.zxid) = (nodes, zxid);
        Ok(())
    }

    pub(super) fn claim(&mut self, prefix: &str) -> QueueNode {
        let name = format!("{prefix}{:010}", self.claims);
        self.claims += 1;
        let (path, data) = (paths().claim(&name), Vec::new());
        self.multi(&[NodeChange::Create { path, data }]).unwrap();
        let zxid = self.zxid;
        QueueNode { name, zxid }
    }

    pub(super) fn number(&self) -> Option<SemaphoreNumber> {
        let node = self.nodes.get(&paths().number)?;
        Some(SemaphoreNumber::read(&node.data, node.version, node.changed).unwrap())
    }

    pub(super) fn list(&self) -> Vec<String> {
        let (paths, all) = (paths(), self.nodes.keys());
        let claims = all.filter_map(|path| path.strip_prefix(&paths.claims)?.strip_prefix('/'));
        claims.map(str::to_owned).collect()
    }

    pub(super) fn holds(&self, node: &str) -> Option<bool> {
        let node = self.nodes.get(&paths().claim(node))?;
        Some(!node.data.is_empty())
    }

    pub(super) fn remove(&mut self, node: &str) {
        let path = paths().claim(node);
        // It may have gone before.
        let _ = self.multi(&[NodeChange::Delete {
            path,
            version: None,
        }]);
    }

    /// How many permits are held, and how many there are.
    pub(super) fn counts(&self) -> (i64, Option<i64>) {
        let held = claims::in_order(self.list()).into_iter();
        let held = held.filter(|(node, _)| self.holds(node) == Some(true));
        let held = held.map(|(_, permits)| i64::from(permits)).sum();
        (held, self.number().map(|number| number.total))
    }

    pub(super) fn make_number(&mut self, total: i64, epoch: &str) -> Result<(), usize> {
        let path = format!("{}/maker", paths().queue());
        let data = Vec::new();
        self.multi(&[NodeChange::Create { path, data }]).unwrap();
        let made = self.multi(&paths().first_number("maker", total, epoch));
        self.nodes.remove(&format!("{}/maker", paths().queue()));
        made
    }

    pub(super) fn set_number(&mut self, total: i64) {
        if let Some(number) = self.number() {
            self.multi(&paths().renumber(&number, total)).unwrap();
        } else {
            let epoch = format!("e{}", self.zxid);
            self.make_number(total, &epoch).unwrap();
        }
    }

    /// Somebody deletes the number by hand.
    pub(super) fn delete_number(&mut self) {
        let number = paths().number;
        self.nodes.retain(|path, _| !path.starts_with(&number));
        self.zxid += 1;
    }
}
