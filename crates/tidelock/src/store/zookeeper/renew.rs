//! Renews held nodes, and deletes those that nobody renews.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use zookeeper_client as zk;

use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::{Error, ErrorKind, Result};
use crate::store::zookeeper::connection::{Connection, ZooKeeperSession};
use crate::store::zookeeper::entry::{EndCause, Ended, QueueNode};
use crate::store::zookeeper::errors;
use crate::store::zookeeper::release::leave;
use crate::store::zookeeper::shared::Shared;
use crate::store::{Name, Renewal, Renewed, Ticket, Timers};

/// The pauses between two attempts to delete a node. They become long, because a server writes requests to its disk that it
/// refuses, too.
const DELETE_PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(5)).jitter(0.5);

/// Renews a batch with one round trip per session. A failure in one session does not affect the locks of another.
pub(crate) async fn renew(shared: &Shared, batch: &[Renewal]) -> Result<Vec<Renewed>> {
    let mut parts: Vec<(Arc<Connection>, Vec<usize>)> = Vec::new();
    for (at, renewal) in batch.iter().enumerate() {
        // A ticket without a node has lost its lock; no request is needed.
        let Some(connection) = shared.registry.connection(&renewal.ticket) else {
            continue;
        };
        match parts
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &connection))
        {
            Some((_, of_link)) => of_link.push(at),
            None => parts.push((connection, vec![at])),
        }
    }
    let asked = parts.iter().map(async |(connection, of_link)| {
        let batch: Vec<&Renewal> = of_link.iter().map(|at| &batch[*at]).collect();
        (of_link, renew_on(shared, connection, &batch).await)
    });
    let mut answers: Vec<Renewed> = batch.iter().map(|_| Renewed::Gone).collect();
    for (of_link, each) in join_all(asked).await {
        match each {
            Ok(each) => {
                for (at, renewed) in of_link.iter().zip(each) {
                    answers[*at] = renewed;
                }
            }
            Err(error) if parts.len() == 1 => return Err(error),
            Err(error) => {
                for at in of_link {
                    let why = error.detail().unwrap_or_default();
                    answers[*at] = Renewed::Failed(Error::new(error.kind()).because(why));
                }
            }
        }
    }
    Ok(answers)
}

/// Renews the holds of one session. The leader answers the `sync`, so the answer also extends the life of the
/// session. A leader that was replaced and does not know it yet answers too: it asks no other server. In a session of
/// several ticks its holders are told in time all the same, because a quarter of the session is not proved.
async fn renew_on(
    shared: &Shared,
    connection: &Connection,
    batch: &[&Renewal],
) -> Result<Vec<Renewed>> {
    let deadline = connection.deadline();
    let session = connection.session(deadline).await?;
    let sent = shared.timers.now();
    // We send the `sync` and all reads before we await the first, so they share one round trip. The server may refuse one of them,
    // as it does when it throttles requests. That says nothing of the others.
    let synced = session.client.sync(&connection.address().base);
    let asked: Vec<_> = batch
        .iter()
        .map(|renewal| {
            let held = shared.registry.held(&renewal.ticket, session.id());
            let (node, path) = held?;
            let stat = session.client.check_stat(&path);
            Some((node, stat))
        })
        .collect();
    let answers = async {
        match synced.await {
            Ok(()) | Err(zk::Error::NoNode) => {}
            Err(error) => return Err(errors::unread(error)),
        }
        Ok(join_all(asked.into_iter().map(still_there)).await)
    };
    let answers = shared.timers.until(deadline, answers).await;
    let answers: Result<Vec<Result<Option<QueueNode>>>> =
        answers.unwrap_or_else(|| Err(errors::late(ErrorKind::Unavailable)));
    let answers = answers?;
    session.confirmed(sent);
    let each = batch.iter().zip(answers).map(|(renewal, node)| {
        let node = match node {
            Ok(Some(node)) => node,
            Ok(None) => return Renewed::Gone,
            Err(error) => return Renewed::Failed(error),
        };
        let (ticket, ends) = (&renewal.ticket, sent + renewal.lease);
        let keep_alive_due = session.next_keep_alive(ends);
        if shared.registry.extend(ticket, &node, ends, keep_alive_due) {
            Renewed::Kept
        } else {
            Renewed::Gone
        }
    });
    unless_all_failed(each.collect())
}

/// The node of a hold, if the server still has it. `asked`: the node, and the request for its stat; `None`: there is no node.
async fn still_there<F>(asked: Option<(QueueNode, F)>) -> Result<Option<QueueNode>>
where
    F: Future<Output = std::result::Result<Option<zk::Stat>, zk::Error>>,
{
    let Some((node, stat)) = asked else {
        return Ok(None);
    };
    let stat = stat.await.map_err(errors::unread)?;
    Ok(stat.filter(|stat| stat.czxid == node.zxid).map(|_| node))
}

/// The answers of a batch. If each of its locks failed, the batch has failed as a whole, as when the connection is lost after the
/// `sync`. So a batch of one lock ends with the error itself.
fn unless_all_failed(mut each: Vec<Renewed>) -> Result<Vec<Renewed>> {
    let has_failed = |renewed: &Renewed| matches!(renewed, Renewed::Failed(_));
    if each.iter().all(has_failed)
        && let Some(Renewed::Failed(error)) = each.pop()
    {
        return Err(error);
    }
    Ok(each)
}

/// The lease task. It deletes nodes that were not renewed in time, and sends a keep-alive where a node must outlive
/// the proved part of its session. Runs until the store is dropped.
///
/// A node lives as long as its session, and the session as long as this process sends heartbeats. So this process
/// must end each lease itself. If it cannot, because it is frozen or cut off, the session expires and takes the nodes
/// with it.
pub(crate) async fn keep_leases(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let (timers, notify) = (strong.timers.clone(), Arc::clone(&strong.registry.notify));
        let next = strong.registry.next_check();
        // We keep no strong reference while we sleep. Otherwise the store would never be dropped.
        drop(strong);
        tokio::select! {
            () = timers.at(next) => {}
            () = notify.notified() => continue,
        }
        let Some(strong) = shared.upgrade() else {
            return;
        };
        end_due(&strong);
        show_life(&strong);
    }
}

/// Sends a keep-alive to the leader in each session that is due for one.
fn show_life(shared: &Arc<Shared>) {
    let now = shared.timers.now();
    for session in shared.registry.silent(now) {
        session.asked(now);
        let keeper = Arc::clone(shared);
        shared.background.spawn(async move {
            let synced = session.client.sync(&keeper.connection.address().base);
            let synced = keeper.timers.limit(keeper.response_timeout, synced).await;
            if let Some(Ok(()) | Err(zk::Error::NoNode)) = synced {
                session.confirmed(now);
            }
        });
    }
}

/// Deletes the nodes that have run out of time.
fn end_due(shared: &Arc<Shared>) {
    let now = shared.timers.now();
    let ended = shared.registry.end(now, |session, path| {
        // Under the lock of the registry: an attempt that finds the ticket forgotten finds this too.
        shared.deleting.lock().insert(path.to_owned());
        session.client.delete(path, None)
    });
    for Ended { ticket, how } in ended {
        match how {
            EndCause::Delete(session, path, request) => {
                let lock = (shared.timers.clone(), ticket.name);
                let node = (Arc::downgrade(&session), path.clone());
                let store = Arc::downgrade(shared);
                shared.background.spawn(async move {
                    delete_until_gone(lock, node, request).await;
                    if let Some(store) = store.upgrade() {
                        store.deleting.lock().remove(&path);
                    }
                });
            }
            EndCause::SessionEnded => {}
            EndCause::Unknown => {
                let withdrawn = withdraw(Arc::downgrade(shared), ticket);
                shared.background.spawn(withdrawn);
            }
        }
    }
}

/// Deletes a node until it is gone, or its session has ended, which deletes it too. `request`: the first attempt.
///
/// While this process lives, nobody else deletes the node. So we also repeat a delete that the server refuses.
async fn delete_until_gone(
    (timers, name): (Timers, Name),
    (session, path): (Weak<ZooKeeperSession>, String),
    request: impl Future<Output = std::result::Result<(), zk::Error>> + Send,
) {
    let mut answer = request.await;
    let (mut retries, mut is_told) = (0, false);
    while let Err(error) = answer {
        if error == zk::Error::NoNode {
            return;
        }
        warn_once(&mut is_told, &name, &errors::unwritten(error));
        // We keep no strong reference while we sleep. Otherwise a `close` could not end the session.
        timers.after(DELETE_PAUSES.pause(retries)).await;
        retries += 1;
        let session = session.upgrade().filter(|session| !session.has_ended());
        let Some(session) = session else { return };
        let request = session.client.delete(&path, None);
        drop(session);
        answer = request.await;
    }
}

/// Withdraws a ticket that nobody polls any more, until its node is gone. Ends also when the session of the node has ended, or
/// the store was closed or dropped.
pub(crate) async fn withdraw(shared: Weak<Shared>, ticket: Ticket) {
    let (mut retries, mut is_told) = (0, false);
    while let Some(strong) = shared.upgrade() {
        let Err(error) = leave(&strong, &ticket, true).await else {
            return;
        };
        let (registry, timers) = (&strong.registry, strong.timers.clone());
        if registry.session(&ticket).is_none() {
            let left = registry.leave(&ticket, timers.now(), true);
            if let Some(left) = left {
                registry.gone(&ticket, left.create);
            }
            return;
        }
        warn_once(&mut is_told, &ticket.name, &error);
        drop(strong); // as in `delete_until_gone`
        timers.after(DELETE_PAUSES.pause(retries)).await;
        retries += 1;
    }
}

/// Tells once that the server refuses to delete a node.
fn warn_once(is_told: &mut bool, name: &Name, error: &Error) {
    if !error.is_retryable() && !std::mem::replace(is_told, true) {
        tracing::warn!(lock = %name, %error, "a node that nobody uses any more could not be deleted, so the lock stays taken; the client retries until its session ends");
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt;

    use super::*;

    fn answer(stat: std::result::Result<Option<zk::Stat>, zk::Error>) -> Result<Option<QueueNode>> {
        let name = "node".to_owned();
        let asked = Some((QueueNode { name, zxid: 7 }, ready(stat)));
        still_there(asked).now_or_never().unwrap()
    }

    #[test]
    fn a_delete_is_told_of_once_it_is_refused_for_good() {
        let (name, mut is_told) = (Name::new("stock").unwrap(), false);
        for (error, expected) in [
            (zk::Error::Throttled, false),
            (zk::Error::NoAuth, true),
            (zk::Error::Throttled, true),
        ] {
            warn_once(&mut is_told, &name, &errors::unwritten(error));
            assert_eq!(is_told, expected);
        }
    }

    #[test]
    fn a_read_that_the_server_refuses_fails_one_lock_alone() {
        assert_eq!(answer(Ok(None)).unwrap(), None);
        let refused = answer(Err(zk::Error::Throttled)).unwrap_err();
        let each = unless_all_failed(vec![Renewed::Kept, Renewed::Failed(refused)]).unwrap();
        assert!(matches!(each[..], [Renewed::Kept, Renewed::Failed(_)]));
    }

    #[test]
    fn a_batch_of_which_each_read_is_refused_keeps_the_error() {
        let refused = || Renewed::Failed(answer(Err(zk::Error::Throttled)).unwrap_err());
        for batch in [vec![refused()], vec![refused(), refused()]] {
            let error = unless_all_failed(batch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(std::error::Error::source(&error).is_some());
        }
        assert!(unless_all_failed(Vec::new()).unwrap().is_empty());
    }
}
