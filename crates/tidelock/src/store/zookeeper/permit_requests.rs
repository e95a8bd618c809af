//! The requests about semaphores: reads the number and the claims, and sends transactions.

use futures_util::future::try_join_all;
use zookeeper_client as zk;

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::errors;
use crate::store::zookeeper::permit_steps::PermitPaths;
use crate::store::zookeeper::permit_view::{ClaimView, SemaphoreNumber};
use crate::store::zookeeper::queue::NumberNode;
use crate::store::zookeeper::shared::Shared;

/// Reads the number and the claims.
pub(crate) async fn view(
    shared: &Shared,
    session: &ZooKeeperSession,
    paths: &PermitPaths,
    deadline: BootInstant,
) -> Result<ClaimView> {
    let number = paths.number.clone();
    let read = shared
        .queues
        .read_with_number(session, &paths.claims, number, deadline);
    let (number, nodes) = read.await?;
    let number = number.map(|number| number_of(&number)).transpose()?;
    Ok(ClaimView::new(number, nodes))
}

pub(crate) fn number_of((data, stat): &NumberNode) -> Result<SemaphoreNumber> {
    SemaphoreNumber::read(data, stat.version, stat.mzxid)
}

/// The number has lost the node under it, by the hand of somebody: nothing of ours deletes that node.
pub(crate) fn without_epoch() -> Error {
    Error::new(ErrorKind::WrongType).because(
        "the node with the number of permits has lost the node under it. Delete the number too, when nobody holds permits, \
         and set it again",
    )
}

/// Whether the claim with this stat holds its permits.
pub(crate) fn holds(stat: &zk::Stat) -> bool {
    stat.data_length > 0
}

/// Reads whether these claims hold permits. `None`: the claim has gone.
pub(crate) async fn learn(
    shared: &Shared,
    session: &ZooKeeperSession,
    paths: &PermitPaths,
    nodes: Vec<String>,
    deadline: BootInstant,
) -> Result<Vec<(String, Option<bool>)>> {
    // We send all requests before we await the first, so they share one round trip.
    let asked: Vec<_> = nodes
        .into_iter()
        .map(|node| (session.client.check_stat(&paths.claim(&node)), node))
        .collect();
    let each = asked.into_iter().map(async |(stat, node)| {
        let stat = shared.timers.until(deadline, stat).await;
        let stat = stat.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
        let stat = stat.map_err(errors::unread)?;
        Ok((node, stat.as_ref().map(holds)))
    });
    try_join_all(each).await
}
