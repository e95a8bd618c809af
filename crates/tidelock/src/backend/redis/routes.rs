//! From a key to the server that has it: always the same one, or the node of a cluster that has the key's slot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::ack::{Demand, Receipt};
use super::cluster::{Cluster, Node};
use super::errors::{Redirection, complaint, unsent};
use super::link::Link;
use super::place::Place;
use super::reply::Reply;
use super::request::Request;
use super::scripts::Script;
use super::solo::Transaction;
use super::{keys, slots};
use crate::backend::{Moment, Name};
use crate::error::{Error, ErrorKind, Result};

/// How often a request follows a node's word at once. Nodes that do not agree yet would send it to and fro.
const HOPS: u32 = 4;

/// How long a request that surely did not run is tried again here. Whoever waits for more knows better how long.
const PATIENCE: Duration = Duration::from_millis(500);

const PAUSE: Duration = Duration::from_millis(10);

/// The ways of one face of the store.
#[derive(Clone)]
pub(super) enum Routes {
    One(Link),
    Cluster(Arc<Cluster>, Face),
}

/// Whose connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Face {
    /// The callers'.
    Front,
    /// The steward's.
    Back,
}

impl Routes {
    pub(super) fn limit(&self) -> Duration {
        match self {
            Self::One(link) => link.limit(),
            Self::Cluster(cluster, _) => cluster.limit,
        }
    }

    pub(super) fn deadline(&self) -> Moment {
        match self {
            Self::One(link) => link.deadline(),
            Self::Cluster(cluster, _) => cluster.timers.now() + cluster.limit,
        }
    }

    /// Locks that fail together. A slot may move from one node to another, but it moves as a whole.
    pub(super) fn lane(&self, name: &Name) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(..) => u64::from(slots::of(name.as_str())),
        }
    }

    /// In a cluster one script takes keys of one slot only.
    pub(super) fn check(&self, name: &Name) -> Result<()> {
        match self {
            Self::One(_) => Ok(()),
            Self::Cluster(..) if keys::share_a_slot(name) => Ok(()),
            Self::Cluster(..) => Err(Error::new(ErrorKind::InvalidName).on_lock(name).because(
                "its braces make no hash tag, so the keys of this lock would lie on different nodes of the cluster; \
                 write no braces, or {…} with something in it and before any other brace",
            )),
        }
    }

    /// Runs a script where its first key is.
    pub(super) async fn eval(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        deadline: Moment,
    ) -> Result<Reply> {
        match self {
            Self::One(link) => link.eval(script, keys, args, deadline).await,
            // Behind a pointer: what it needs would lie in every request on a single server too.
            Self::Cluster(cluster, face) => {
                let walk = Walk::new(cluster, *face, keys.first().unwrap_or(&""), deadline);
                Box::pin(walk.eval(script, keys, args, deadline)).await
            }
        }
    }

    /// As [`eval`](Self::eval), and has the replicas of that server asked for it.
    pub(super) async fn eval_acknowledged(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        demand: Demand,
        deadline: Moment,
    ) -> Result<(Reply, Receipt)> {
        match self {
            Self::One(link) => {
                link.eval_acknowledged(false, script, keys, args, demand, deadline)
                    .await
            }
            Self::Cluster(cluster, face) => {
                let walk = Walk::new(cluster, *face, keys.first().unwrap_or(&""), deadline);
                Box::pin(walk.eval_acknowledged(script, keys, args, demand, deadline)).await
            }
        }
    }

    /// Carries out a transaction where that key is.
    pub(super) async fn transact(
        &self,
        key: &str,
        transaction: &Transaction<'_>,
        deadline: Moment,
    ) -> Result<Reply> {
        match self {
            Self::One(link) => link.transact(false, transaction, deadline).await,
            Self::Cluster(cluster, face) => {
                let walk = Walk::new(cluster, *face, key, deadline);
                Box::pin(walk.transact(transaction, deadline)).await
            }
        }
    }

    /// One request, sent where that key is.
    pub(super) async fn ask(
        &self,
        key: &str,
        request: &Request,
        deadline: Moment,
    ) -> Result<Reply> {
        match self {
            Self::One(link) => link.ask(request, deadline).await,
            Self::Cluster(cluster, face) => {
                let walk = Walk::new(cluster, *face, key, deadline);
                Box::pin(walk.ask(request, deadline)).await
            }
        }
    }

    /// Ends the connections of this face.
    pub(super) fn close(&self) {
        for link in self.everywhere() {
            link.close();
        }
    }

    /// A link to each server that has locks, always in the same order.
    pub(super) fn everywhere(&self) -> Vec<Link> {
        match self {
            Self::One(link) => vec![link.clone()],
            Self::Cluster(cluster, face) => {
                let nodes = cluster.primaries().into_iter();
                nodes.map(|node| face.link(&node)).collect()
            }
        }
    }
}

impl Face {
    pub(super) fn link(self, node: &Node) -> Link {
        match self {
            Self::Front => node.front.clone(),
            Self::Back => node.back.clone(),
        }
    }
}

/// One request on its way: to the node that has the key, and on to where that one says. Only what surely did not run is
/// sent again.
struct Walk<'a> {
    cluster: &'a Cluster,
    face: Face,
    slot: u16,
    give_up: Moment,
    /// Where the request was sent last.
    place: Option<Place>,
    /// Another node said that this one is to be asked, once.
    asked_for: Option<Arc<Node>>,
    hops: u32,
    pause: Duration,
    /// What was wrong before nodes sent it on.
    trouble: Option<Error>,
}

/// Sends until there is an answer. No function: its future would be bound to the words of each request in a way that
/// the compiler cannot prove to be `Send`.
macro_rules! walk {
    ($walk:ident, |$link:ident, $asking:ident| $send:expr) => {
        loop {
            let answer = match $walk.step() {
                Ok(($link, $asking)) => $walk.attend($send).await,
                Err(error) => Err(error),
            };
            if let Some(answer) = $walk.judge(answer).await {
                return answer;
            }
        }
    };
}

impl<'a> Walk<'a> {
    fn new(cluster: &'a Cluster, face: Face, key: &str, deadline: Moment) -> Self {
        let patience = PATIENCE.min(cluster.limit / 3);
        Self {
            cluster,
            face,
            slot: slots::of(key),
            give_up: deadline.min(cluster.timers.now() + patience),
            place: None,
            asked_for: None,
            hops: 0,
            pause: PAUSE,
            trouble: None,
        }
    }

    async fn eval(
        mut self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        deadline: Moment,
    ) -> Result<Reply> {
        walk!(self, |link, asking| link
            .eval_as(asking, script, keys, args, deadline))
    }

    async fn eval_acknowledged(
        mut self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        demand: Demand,
        deadline: Moment,
    ) -> Result<(Reply, Receipt)> {
        walk!(self, |link, asking| link.eval_acknowledged(
            asking, script, keys, args, demand, deadline
        ))
    }

    async fn transact(mut self, transaction: &Transaction<'_>, deadline: Moment) -> Result<Reply> {
        walk!(self, |link, asking| link.transact(
            asking,
            transaction,
            deadline
        ))
    }

    async fn ask(mut self, request: &Request, deadline: Moment) -> Result<Reply> {
        walk!(self, |link, asking| link
            .ask(&request.clone().asking(asking), deadline))
    }

    /// Where to send it next, and whether the node is to be told that it is asked for.
    fn step(&mut self) -> Result<(Link, bool)> {
        let asked_for = self.asked_for.take();
        let asking = asked_for.is_some();
        let node = asked_for.or_else(|| self.cluster.owner(self.slot));
        self.place = node.as_ref().map(|node| node.place.clone());
        let node = node.ok_or_else(|| {
            unsent(format_args!(
                "{}: no node has slot {}",
                self.cluster, self.slot
            ))
        })?;
        Ok((self.face.link(&node), asking))
    }

    /// Awaits the answer. A node that is slow to give one may have been replaced meanwhile: that is to be found out before
    /// the time is up.
    async fn attend<T>(&self, sent: impl Future<Output = Result<T>>) -> Result<T> {
        let mut sent = std::pin::pin!(sent);
        let slow = self.cluster.limit / 8;
        if let Some(answer) = self.cluster.timers.limit(slow, &mut sent).await {
            return answer;
        }
        self.cluster.doubt();
        sent.await
    }

    /// `None`: it is to be sent again.
    async fn judge<T>(&mut self, answer: Result<T>) -> Option<Result<T>> {
        let error = match answer {
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => error,
        };
        let words = complaint(&error);
        let place = self.place.take();
        let redirection = place.and_then(|place| words?.redirection(&place));
        let sent_on = redirection.is_some();
        match redirection {
            Some(Redirection::Moved(slot, to)) => self.cluster.moved(slot, &to),
            Some(Redirection::Ask(_, to)) => self.asked_for = Some(self.cluster.node_at(&to)),
            // What is refused is refused again, and what may have run is not sent again.
            None if error.kind() != ErrorKind::Unavailable
                || words.is_some_and(|words| !words.passes()) =>
            {
                if error.outcome_unknown() {
                    self.cluster.doubt();
                }
                return Some(Err(error));
            }
            None => self.hops = HOPS,
        }
        self.hops += 1;
        if self.hops > HOPS {
            self.cluster.doubt();
            let mut changes = self.cluster.changes.subscribe();
            let rest = self.cluster.timers.limit(self.pause, changes.changed());
            let over = self
                .cluster
                .timers
                .until(self.give_up, rest)
                .await
                .is_none();
            if !sent_on {
                self.trouble = Some(error);
            }
            if over {
                return Some(Err(self.trouble.take().unwrap_or_else(|| {
                    unsent(format_args!(
                        "{}: its nodes do not agree who has slot {}",
                        self.cluster, self.slot
                    ))
                })));
            }
            self.pause = (self.pause * 2).min(PAUSE * 10);
        }
        None
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(link) => link.fmt(f),
            Self::Cluster(cluster, _) => write!(f, "{cluster}"),
        }
    }
}
