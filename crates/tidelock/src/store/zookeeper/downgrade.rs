//! A downgrade: the node of a reader gets the number of the writer's node, so it is directly behind it in the queue.
//! Curator's writers that also read have such nodes too.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::error::{Error, ErrorKind, Result};
use crate::store::zookeeper::connection::{Connection, ZooKeeperSession};
use crate::store::zookeeper::entry::NodePlace;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{errors, keys};
use crate::store::{AttemptRequest, BootInstant, OwnerId};
use crate::types::LostReason;

/// The attempt of a reader that follows a writer of this process.
pub(crate) struct DowngradeAttempt<'a> {
    pub(crate) shared: &'a Shared,
    /// Where the node is created.
    pub(crate) here: (&'a Arc<Connection>, &'a ZooKeeperSession),
    pub(crate) ask: &'a AttemptRequest,
    /// Of the reader's node.
    pub(crate) place: &'a NodePlace,
    pub(crate) deadline: BootInstant,
}

impl DowngradeAttempt<'_> {
    /// Creates the node, if that of the writer exists at that instant.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the writer's node has gone: another writer may have had the lock since.
    pub(crate) async fn join(&self, writer: &OwnerId, ends: BootInstant) -> Result<()> {
        let (registry, ticket) = (&self.shared.registry, &self.ask.ticket);
        let lost = || Error::lost(LostReason::Taken);
        let held = registry.holder(&ticket.name, writer).ok_or_else(lost)?;
        let number = keys::digits(&held.name).ok_or_else(lost)?;
        let (connection, session) = self.here;
        let rights = self.shared.connection.rights();
        let mode = zk::CreateMode::Ephemeral.with_acls(rights);
        let note = self.shared.note(ticket);
        let (writer, own) = (
            format!("{}/{}", self.place.parent, held.name),
            format!("{}/{}{number}", self.place.parent, self.place.prefix),
        );
        let begun = {
            let mut both = session.client.new_multi_writer();
            both.add_check_version(&writer, -1) // any version: it only has to exist
                .and(both.add_create(&own, &note, &mode))
                .map_err(errors::unread)?;
            let here = (connection, session.id());
            registry.create(ticket, here, self.place, ends, || both.commit())?
        };
        let Some((create, created)) = begun else {
            return Ok(()); // another attempt of this ticket has sent its create first
        };
        let done = self.shared.timers.until(self.deadline, created).await;
        let error = match done.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))? {
            Ok(_) => return Ok(()),
            Err(zk::MultiWriteError::OperationFailed {
                index: 0,
                source: zk::Error::NoNode,
            }) => lost(),
            Err(
                zk::MultiWriteError::RequestFailed { source }
                | zk::MultiWriteError::OperationFailed { source, .. },
            ) => errors::unwritten(source),
        };
        if !error.outcome_unknown() {
            registry.gone(ticket, create);
        }
        Err(error)
    }
}
