//! What keeps locks, and what ends those that nobody keeps.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use zookeeper_client as zk;

use super::leave::leave;
use super::{Shared, trouble};
use crate::backend::{Moment, Renewal, Renewed, Ticket};
use crate::error::{ErrorKind, Result};

/// Between two tries to remove a node.
const PAUSE: Duration = Duration::from_millis(50);

/// Asks for every node of the batch in one trip. The answers prove the session too.
pub(super) async fn renew(shared: &Shared, batch: &[Renewal]) -> Result<Vec<Renewed>> {
    let deadline = shared.link.deadline();
    let session = shared.link.session(deadline).await?;
    let sent = shared.timers.now();
    let synced = session.client.sync(&shared.link.place().base);
    let asked: Vec<_> = batch
        .iter()
        .map(|renewal| {
            let node = shared.books.held(&renewal.ticket.owner, session.id())?;
            let path = format!("{}/{}", shared.path(&renewal.ticket.name), node.name);
            let stat = session.client.check_stat(&path);
            Some((node, stat))
        })
        .collect();
    let answers = async {
        match synced.await {
            Ok(()) | Err(zk::Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        let each = asked.into_iter().map(async |asked| {
            let Some((node, stat)) = asked else {
                return Ok(None);
            };
            Ok(stat
                .await?
                .filter(|stat| stat.czxid == node.zxid)
                .map(|_| node))
        });
        join_all(each).await.into_iter().collect()
    };
    let answers = shared.timers.until(deadline, answers).await;
    let answers: std::result::Result<Vec<_>, _> =
        answers.ok_or_else(|| trouble::late(ErrorKind::Unavailable))?;
    let answers = answers.map_err(trouble::unread)?;
    session.heard(sent);
    let each = batch.iter().zip(answers).map(|(renewal, node)| {
        let kept = node.is_some_and(|node| {
            let ends = sent + renewal.lease;
            let sign = session.next_sign(Some(ends));
            shared
                .books
                .extend(&renewal.ticket.owner, &node, ends, sign)
        });
        if kept { Renewed::Kept } else { Renewed::Gone }
    });
    Ok(each.collect())
}

/// Removes what was not renewed in time, and has the session heard from where a node is to stand for longer than that
/// lasts. Runs until the store has gone.
///
/// A node lives as long as its session, and the session as long as this process shows signs of life. So it is this process
/// that ends a lease; if it cannot, because it is frozen or cut off, the session ends with it.
pub(super) async fn keep_leases(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        let (timers, bell) = (strong.timers.clone(), Arc::clone(&strong.books.bell));
        let next = strong.books.next_look(|ends| strong.next_sign(ends));
        drop(strong);
        tokio::select! {
            () = timers.at(next) => {}
            () = bell.notified() => continue,
        }
        let Some(strong) = shared.upgrade() else {
            return;
        };
        end_due(&strong);
        show_life(&strong);
    }
}

impl Shared {
    fn next_sign(&self, ends: Option<Moment>) -> Moment {
        let session = self.link.current();
        session.map_or(Moment::FAR, |session| session.next_sign(ends))
    }
}

/// A word with the leader, if one is due.
fn show_life(shared: &Arc<Shared>) {
    let Some(session) = shared.link.current() else {
        return;
    };
    let now = shared.timers.now();
    if shared.books.next_look(|ends| session.next_sign(ends)) > now {
        return;
    }
    session.asked(now);
    let keeper = Arc::clone(shared);
    shared.background.spawn(async move {
        let synced = session.client.sync(&keeper.link.place().base);
        let synced = keeper.timers.limit(keeper.response_timeout, synced).await;
        if let Some(Ok(()) | Err(zk::Error::NoNode)) = synced {
            session.heard(now);
        }
    });
}

fn end_due(shared: &Arc<Shared>) {
    let session = shared.link.current();
    let ended = shared.books.end(shared.timers.now(), |path, node, of| {
        // Those of a session that has ended went with it.
        let session = session.as_ref().filter(|session| session.id() == of)?;
        let path = format!("{path}/{}", node.name);
        let first = session.client.delete(&path, None);
        Some((Arc::clone(session), path, first))
    });
    for one in ended {
        let keeper = Arc::clone(shared);
        shared.background.spawn(async move {
            match one.sent {
                Some(Some((session, path, first))) => {
                    let mut answer = first.await;
                    // Cut off while it was on its way; with the session the node goes by itself.
                    while matches!(
                        answer,
                        Err(zk::Error::ConnectionLoss | zk::Error::Custom(_))
                    ) {
                        keeper.timers.after(PAUSE).await;
                        answer = session.client.delete(&path, None).await;
                    }
                }
                Some(None) => {}
                None => withdraw(&keeper, &one.ticket).await,
            }
        });
    }
}

/// For a ticket that nobody has asked for since its create was sent.
async fn withdraw(shared: &Shared, ticket: &Ticket) {
    while let Err(error) = leave(shared, ticket, true).await {
        if !error.is_retryable() || shared.link.current().is_none() {
            return;
        }
        shared.timers.after(PAUSE).await;
    }
}
