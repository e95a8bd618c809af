//! The fields of the replies of the server.

use std::cmp::Ordering;

use crate::store::zookeeper::tests::jute::JuteWriter;
use crate::store::zookeeper::tests::request::ReadKind;
use crate::store::zookeeper::tests::tree::{ModelTree, TreeChange};

impl ModelTree {
    /// The reply to a read of a node that exists.
    pub(super) fn shown(&self, kind: ReadKind, path: &str) -> JuteWriter {
        let (node, empty) = (self.node(path).unwrap(), JuteWriter::default());
        match kind {
            ReadKind::Exists => self.stat(path, empty),
            ReadKind::Get => self.stat(path, empty.bytes(&node.data)),
            ReadKind::List => {
                let below = self.children(path).unwrap_or_default();
                let count = empty.size(below.len());
                below.iter().fold(count, |list, name| list.text(name))
            }
            ReadKind::Rights => {
                let count = empty.size(node.rights.len());
                let rights = node.rights.iter().fold(count, |list, right| {
                    let (bits, scheme, id) = right;
                    list.int(*bits).text(scheme).text(id)
                });
                self.stat(path, rights)
            }
        }
    }

    /// The reply to a change, behind these fields.
    pub(super) fn changed(
        &self,
        change: &TreeChange,
        path: &str,
        before: JuteWriter,
    ) -> JuteWriter {
        match change {
            TreeChange::Create { .. } => self.stat(path, before.text(path)),
            TreeChange::Set { .. } => self.stat(path, before),
            TreeChange::Delete { .. } | TreeChange::Check { .. } => before,
        }
    }

    /// Makes the changes of a transaction, and replies.
    pub(super) fn multi(&mut self, session: i64, changes: &[TreeChange]) -> JuteWriter {
        let mut reply = JuteWriter::default();
        match self.commit(session, changes) {
            Ok(paths) => {
                for (change, path) in changes.iter().zip(paths) {
                    let operation = match change {
                        TreeChange::Create { .. } => 15,
                        TreeChange::Set { .. } => 5,
                        TreeChange::Delete { .. } => 2,
                        TreeChange::Check { .. } => 13,
                    };
                    let header = reply.int(operation).flag(false).int(0);
                    reply = self.changed(change, &path, header);
                }
            }
            Err((failed, code)) => {
                for at in 0..changes.len() {
                    // Those before the one that failed are not at fault, and those after it were not tried.
                    let code = match at.cmp(&failed) {
                        Ordering::Less => 0,
                        Ordering::Equal => code,
                        Ordering::Greater => -2,
                    };
                    reply = reply.int(-1).flag(false).int(code).int(code);
                }
            }
        }
        reply.int(-1).flag(true).int(-1)
    }
}
