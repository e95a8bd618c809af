//! Reads the queue of a lock. Concurrent reads of one queue share a request.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay;
use crate::store::zookeeper::delay::DelayMark;
use crate::store::zookeeper::{Shared, errors};

/// Lists the nodes under a lock, after a `sync` with the leader. Without it, a lagging server could still list a
/// released lock.
pub(crate) async fn read(
    shared: &Shared,
    session: &ZooKeeperSession,
    parent: &str,
    deadline: BootInstant,
) -> Result<Option<Vec<String>>> {
    Ok(see(shared, session, parent, None, deadline).await?.nodes)
}

/// The same list and, in the same round trip, the delay node at `mark`. Concurrent callers share one request.
pub(crate) async fn see(
    shared: &Shared,
    session: &ZooKeeperSession,
    parent: &str,
    mark: Option<String>,
    deadline: BootInstant,
) -> Result<QueueView> {
    let (client, path) = (session.client.clone(), parent.to_owned());
    let at = (session.id(), parent.to_owned(), mark.is_some());
    let ask = move || ask(client.clone(), path.clone(), mark.clone());
    let seen = shared.reads.next(&shared.background, at, ask);
    match shared.timers.until(deadline, seen).await.flatten() {
        Some(Ok(sight)) => Ok(Arc::unwrap_or_clone(sight)),
        Some(Err((kind, why))) => Err(Error::new(kind).because(why)),
        None => Err(errors::late(ErrorKind::Unavailable)),
    }
}

/// The result of one queue read.
#[derive(Debug, Clone)]
pub(crate) struct QueueView {
    /// `None`: the lock's node does not exist.
    pub(crate) nodes: Option<Vec<String>>,
    pub(crate) mark: Option<DelayMark>,
}

/// The key of a shared read: the session, the lock's path, and whether the delay node is read too.
pub(crate) type At = (i64, String, bool);

/// The result that all callers of a shared read get. The error is a kind and a text, because `Error` cannot be
/// cloned.
pub(crate) type SharedView = std::result::Result<Arc<QueueView>, (ErrorKind, String)>;

async fn ask(client: zk::Client, parent: String, mark: Option<String>) -> SharedView {
    // We send all requests before we await the first, so they share one round trip. The delay node comes last:
    // otherwise a holder could write it and go between the two reads, and we would see neither.
    let synced = client.sync(&parent);
    let listed = client.list_children(&parent);
    let marked = mark.as_deref().map(|path| client.get_data(path));
    let all = async {
        match synced.await {
            Ok(()) | Err(zk::Error::NoNode) => {}
            Err(error) => return Err(errors::unread(error)),
        }
        let nodes = some(listed.await)?;
        let mark = match marked {
            Some(marked) => delay::mark(marked.await)?,
            None => None,
        };
        Ok(Arc::new(QueueView { nodes, mark }))
    };
    all.await
        .map_err(|error: Error| (error.kind(), error.detail().unwrap_or_default().to_owned()))
}

/// `None`: the node does not exist.
pub(crate) fn some<T>(answer: std::result::Result<T, zk::Error>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(errors::unread(error)),
    }
}
