//! Reads the queue of a lock, or the claims of a semaphore. Concurrent reads of one queue share a request.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::error::{Error, ErrorKind, Result};
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay_node::DelayMark;
use crate::store::zookeeper::permit_view::number_before_claims;
use crate::store::zookeeper::single_flight::SingleFlight;
use crate::store::zookeeper::{delay_node, errors};
use crate::store::{Background, BootInstant, Timers};

/// Reads the queues of all locks.
pub(crate) struct QueueReader {
    /// Single flight: callers that read the same queue share one request.
    reads: SingleFlight<At, SharedView>,
    timers: Timers,
    background: Background,
}

impl QueueReader {
    pub(crate) fn new(timers: Timers, background: Background) -> Self {
        Self {
            reads: SingleFlight::default(),
            timers,
            background,
        }
    }

    /// Lists the nodes under a lock, after a `sync` with the leader. Without it, a lagging server could still list a
    /// released lock.
    pub(crate) async fn read(
        &self,
        session: &ZooKeeperSession,
        parent: &str,
        deadline: BootInstant,
    ) -> Result<Option<Vec<String>>> {
        let seen = self.see(session, parent, OtherNode::Nothing, deadline);
        Ok(seen.await?.nodes)
    }

    /// The same list and, in the same round trip, the delay node at `mark`. A holder writes its delay node before its
    /// grant is reported. So if the holder's own node has gone, its delay node is visible here.
    pub(crate) async fn read_with_delay(
        &self,
        session: &ZooKeeperSession,
        parent: &str,
        mark: String,
        deadline: BootInstant,
    ) -> Result<(Vec<String>, Option<DelayMark>)> {
        let seen = self.see(session, parent, OtherNode::Delay(mark), deadline);
        let QueueView { nodes, mark, .. } = seen.await?;
        Ok((nodes.unwrap_or_default(), mark))
    }

    /// The claims of a semaphore and, in the same round trip, the node with its number.
    pub(crate) async fn read_with_number(
        &self,
        session: &ZooKeeperSession,
        claims: &str,
        number: String,
        deadline: BootInstant,
    ) -> Result<(Option<NumberNode>, Vec<String>)> {
        let seen = self.see(session, claims, OtherNode::Number(number), deadline);
        let QueueView { nodes, number, .. } = seen.await?;
        Ok((number, nodes.unwrap_or_default()))
    }

    async fn see(
        &self,
        session: &ZooKeeperSession,
        parent: &str,
        other: OtherNode,
        deadline: BootInstant,
    ) -> Result<QueueView> {
        let (client, path) = (session.client.clone(), parent.to_owned());
        let at = (session.id(), parent.to_owned(), other.clone());
        let ask = move || ask(client.clone(), path.clone(), other.clone());
        let seen = self.reads.next(&self.background, at, ask);
        match self.timers.until(deadline, seen).await.flatten() {
            Some(Ok(sight)) => Ok(Arc::unwrap_or_clone(sight)),
            Some(Err((kind, why))) => Err(Error::new(kind).because(why)),
            None => Err(errors::late(ErrorKind::Unavailable)),
        }
    }
}

/// The result of one queue read.
#[derive(Debug, Clone)]
struct QueueView {
    /// `None`: the lock's node does not exist.
    nodes: Option<Vec<String>>,
    mark: Option<DelayMark>,
    number: Option<NumberNode>,
}

/// The data of the node with the number of permits.
pub(crate) type NumberNode = (Vec<u8>, zk::Stat);

/// The node that is read in the same round trip.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum OtherNode {
    Nothing,
    Delay(String),
    Number(String),
}

/// The key of a shared read: the session, the lock's path, and what is read besides its queue.
type At = (i64, String, OtherNode);

/// The result that all callers of a shared read get. The error is a kind and a text, because `Error` cannot be
/// cloned.
type SharedView = std::result::Result<Arc<QueueView>, (ErrorKind, String)>;

async fn ask(client: zk::Client, parent: String, other: OtherNode) -> SharedView {
    // We send all requests before we await the first, so they share one round trip. The delay node comes last:
    // otherwise a holder could write it and go between the two reads, and we would see neither.
    let synced = client.sync(&parent);
    let list = || client.list_children(&parent);
    let (numbered, listed) = match &other {
        OtherNode::Number(path) => {
            let (number, list) = number_before_claims(|| client.get_data(path), list);
            (Some(number), list)
        }
        OtherNode::Nothing | OtherNode::Delay(_) => (None, list()),
    };
    let marked = match &other {
        OtherNode::Delay(path) => Some(client.get_data(path)),
        OtherNode::Nothing | OtherNode::Number(_) => None,
    };
    let all = async {
        match synced.await {
            Ok(()) | Err(zk::Error::NoNode) => {}
            Err(error) => return Err(errors::unread(error)),
        }
        let number = match numbered {
            Some(numbered) => errors::unless_missing(numbered.await)?,
            None => None,
        };
        let nodes = errors::unless_missing(listed.await)?;
        let mark = match marked {
            Some(marked) => delay_node::mark(marked.await)?,
            None => None,
        };
        Ok(Arc::new(QueueView {
            nodes,
            mark,
            number,
        }))
    };
    all.await
        .map_err(|error: Error| (error.kind(), error.detail().unwrap_or_default().to_owned()))
}
