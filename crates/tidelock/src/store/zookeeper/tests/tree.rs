//! The nodes of a ZooKeeper server, and their changes.

use std::collections::BTreeMap;
use std::mem;

use crate::store::zookeeper::tests::jute::JuteWriter;

pub(super) const NO_NODE: i32 = -101;
pub(super) const NO_AUTH: i32 = -102;
const BAD_VERSION: i32 = -103;
const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
const NODE_EXISTS: i32 = -110;
const NOT_EMPTY: i32 = -111;
pub(super) const AUTH_FAILED: i32 = -115;
pub(super) const THROTTLED: i32 = -127;

/// The kinds of events. A watch of children hears of its children, and of the end of its node.
const CREATED: i32 = 1;
pub(super) const DELETED: i32 = 2;
const CHANGED: i32 = 3;
pub(super) const CHILDREN_CHANGED: i32 = 4;

/// The bits of the rights, the scheme and the id.
pub(super) type NodeRight = (i32, String, String);

#[derive(Debug, Clone, Default)]
pub(super) struct TreeNode {
    pub(super) data: Vec<u8>,
    pub(super) rights: Vec<NodeRight>,
    /// The session that owns it. 0: none.
    pub(super) owner: i64,
    /// The transaction that created it.
    pub(super) created: i64,
    /// The transaction that changed it last.
    changed: i64,
    written_at: i64,
    version: i32,
    /// The number of its next child.
    pub(super) next: i64,
}

#[derive(Debug, Clone)]
pub(super) enum TreeChange {
    Create {
        path: String,
        data: Vec<u8>,
        rights: Vec<NodeRight>,
        /// 1: a session owns it. 2: the server numbers it.
        flags: i32,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
}

impl TreeChange {
    /// As tests name it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Create { path, .. } => format!("create {path}"),
            Self::Set { path, .. } => format!("set {path}"),
            Self::Delete { path, .. } => format!("delete {path}"),
            Self::Check { path, .. } => format!("check {path}"),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ModelTree {
    nodes: BTreeMap<String, TreeNode>,
    /// The last transaction.
    pub(super) zxid: i64,
    /// The server's clock, in milliseconds.
    pub(super) clock: i64,
    /// Each with its kind and its path. No watch has heard of them yet.
    events: Vec<(i32, String)>,
}

impl ModelTree {
    pub(super) fn new() -> Self {
        Self {
            nodes: BTreeMap::from([(String::new(), TreeNode::default())]),
            zxid: 100,
            clock: 1_000_000,
            events: Vec::new(),
        }
    }

    pub(super) fn node(&self, path: &str) -> Option<&TreeNode> {
        self.nodes.get(path)
    }

    pub(super) fn node_mut(&mut self, path: &str) -> &mut TreeNode {
        self.nodes.get_mut(path).unwrap()
    }

    /// The names of the children. `None`: there is no such node.
    pub(super) fn children(&self, path: &str) -> Option<Vec<String>> {
        self.nodes.get(path)?;
        let start = format!("{path}/");
        let below = self.nodes.keys();
        let below = below.filter_map(|node| node.strip_prefix(&*start));
        let own = below.filter(|name| !name.contains('/'));
        Some(own.map(str::to_owned).collect())
    }

    /// Makes all changes, or none. Returns their paths, or which of them failed, with the code of the error.
    pub(super) fn commit(
        &mut self,
        session: i64,
        changes: &[TreeChange],
    ) -> Result<Vec<String>, (usize, i32)> {
        let mut next = self.clone();
        next.zxid += 1;
        let mut paths = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            paths.push(next.apply(session, change).map_err(|code| (at, code))?);
        }
        *self = next;
        Ok(paths)
    }

    fn apply(&mut self, session: i64, change: &TreeChange) -> Result<String, i32> {
        match change {
            TreeChange::Create {
                path,
                data,
                rights,
                flags,
            } => {
                let path = self.place(path, *flags)?;
                let node = TreeNode {
                    data: data.clone(),
                    rights: rights.clone(),
                    owner: if flags & 1 == 1 { session } else { 0 },
                    created: self.zxid,
                    changed: self.zxid,
                    written_at: self.clock,
                    version: 0,
                    next: 0,
                };
                self.nodes.insert(path.clone(), node);
                self.tell(CREATED, &path);
                Ok(path)
            }
            TreeChange::Set {
                path,
                data,
                version,
            } => {
                self.fits(path, *version)?;
                let (zxid, clock) = (self.zxid, self.clock);
                let node = self.node_mut(path);
                node.data.clone_from(data);
                (node.changed, node.written_at) = (zxid, clock);
                node.version += 1;
                self.tell(CHANGED, path);
                Ok(path.clone())
            }
            TreeChange::Delete { path, version } => {
                self.fits(path, *version)?;
                if self.children(path).is_some_and(|below| !below.is_empty()) {
                    return Err(NOT_EMPTY);
                }
                self.nodes.remove(path);
                self.tell(DELETED, path);
                Ok(path.clone())
            }
            TreeChange::Check { path, version } => {
                self.fits(path, *version)?;
                Ok(path.clone())
            }
        }
    }

    /// The path of a new node.
    fn place(&mut self, path: &str, flags: i32) -> Result<String, i32> {
        let (parent, _) = path.rsplit_once('/').unwrap();
        let above = self.nodes.get_mut(parent).ok_or(NO_NODE)?;
        if above.owner != 0 {
            return Err(NO_CHILDREN_FOR_EPHEMERALS);
        }
        let path = if flags & 2 == 2 {
            format!("{path}{:010}", above.next)
        } else {
            path.to_owned()
        };
        above.next = (above.next + 1).min(i64::from(i32::MAX));
        if self.nodes.contains_key(&path) {
            return Err(NODE_EXISTS);
        }
        Ok(path)
    }

    fn fits(&self, path: &str, version: i32) -> Result<(), i32> {
        let node = self.nodes.get(path).ok_or(NO_NODE)?;
        if version == -1 || version == node.version {
            Ok(())
        } else {
            Err(BAD_VERSION)
        }
    }

    fn tell(&mut self, event: i32, path: &str) {
        self.events.push((event, path.to_owned()));
        if event != CHANGED {
            let (parent, _) = path.rsplit_once('/').unwrap();
            self.events.push((CHILDREN_CHANGED, parent.to_owned()));
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<(i32, String)> {
        mem::take(&mut self.events)
    }

    /// Makes a node that no session owns, with all that is missing above it.
    pub(super) fn make(&mut self, path: &str, data: &[u8]) {
        self.make_for(0, path, data);
    }

    /// As [`make`](Self::make), for a session of another client.
    pub(super) fn make_for(&mut self, session: i64, path: &str, data: &[u8]) {
        let above = path.match_indices('/').skip(1);
        let above: Vec<&str> = above.map(|(at, _)| &path[..at]).collect();
        for node in above {
            if self.node(node).is_none() {
                self.make(node, b"");
            }
        }
        let create = TreeChange::Create {
            path: path.to_owned(),
            data: data.to_vec(),
            rights: vec![(31, "world".to_owned(), "anyone".to_owned())],
            flags: i32::from(session != 0),
        };
        self.commit(session, &[create]).unwrap();
    }

    /// Writes a node, whatever its version is.
    pub(super) fn write(&mut self, path: &str, data: &[u8]) {
        let write = TreeChange::Set {
            path: path.to_owned(),
            data: data.to_vec(),
            version: -1,
        };
        self.commit(0, &[write]).unwrap();
    }

    /// Deletes a node, whatever its version is.
    pub(super) fn remove(&mut self, path: &str) {
        let delete = TreeChange::Delete {
            path: path.to_owned(),
            version: -1,
        };
        self.commit(0, &[delete]).unwrap();
    }

    /// Deletes the nodes that the session owns.
    pub(super) fn end_session(&mut self, session: i64) {
        let own = self.nodes.iter().filter(|(_, node)| node.owner == session);
        let own: Vec<String> = own.map(|(path, _)| path.clone()).collect();
        for path in own {
            self.remove(&path);
        }
    }

    /// Writes the stat of a node behind these fields.
    pub(super) fn stat(&self, path: &str, before: JuteWriter) -> JuteWriter {
        let node = &self.nodes[path];
        let below = self.children(path).unwrap_or_default();
        before
            .long(node.created)
            .long(node.changed)
            .long(node.written_at)
            .long(node.written_at)
            .int(node.version)
            .int(0)
            .int(0)
            .long(node.owner)
            .size(node.data.len())
            .size(below.len())
            .long(node.created)
    }
}
