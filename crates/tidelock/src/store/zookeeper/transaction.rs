//! Sends transactions.

use zookeeper_client as zk;

use crate::error::{ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::errors;
use crate::store::zookeeper::node_change::NodeChange;
use crate::store::zookeeper::shared::Shared;

/// Any version of a node.
const ANY: i32 = -1;

/// Sends a transaction. Returns which operation has prevented it, by its place. `None`: all have taken effect.
pub(crate) async fn commit(
    shared: &Shared,
    session: &ZooKeeperSession,
    changes: &[NodeChange],
    deadline: BootInstant,
) -> Result<Option<usize>> {
    let mode = zk::CreateMode::Persistent.with_acls(shared.connection.rights());
    let sent = {
        let mut all = session.client.new_multi_writer();
        for change in changes {
            let added = match change {
                NodeChange::Check { path, version } => {
                    all.add_check_version(path, version.unwrap_or(ANY))
                }
                NodeChange::Set {
                    path,
                    data,
                    version,
                } => all.add_set_data(path, data, Some(*version)),
                NodeChange::Create { path, data } => all.add_create(path, data, &mode),
                NodeChange::Delete { path, version } => all.add_delete(path, *version),
            };
            added.map_err(errors::unread)?;
        }
        all.commit()
    };
    let done = shared.timers.until(deadline, sent).await;
    match done.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))? {
        Ok(_) => Ok(None),
        Err(zk::MultiWriteError::OperationFailed {
            index,
            source: zk::Error::NoNode | zk::Error::BadVersion | zk::Error::NodeExists,
        }) => Ok(Some(index)),
        Err(
            zk::MultiWriteError::RequestFailed { source }
            | zk::MultiWriteError::OperationFailed { source, .. },
        ) => Err(errors::unwritten(source)),
    }
}
