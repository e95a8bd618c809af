//! The refresh of the slot map.
//!
//! A periodic task asks the nodes for their map. The algorithm of one refresh:
//!
//! 1. Ask one node. After a short time without an accepted reply, ask the next one too.
//! 2. Accept a primary's map at once if its epoch is not older than the known one. A partitioned node reports an old
//!    map, and it has an old epoch.
//! 3. If all nodes have replied and none was accepted, take the best reply: primaries before replicas, then the highest
//!    epoch. A replica's epoch means little: a partitioned replica raises its epoch with each election that it starts
//!    and that no other node takes part in.
//! 4. A node that does not know the known nodes is of another cluster, and its map is not accepted. If no node has reported
//!    our cluster as up for longer than a lease, we start again with the addresses of the URL, as a new client does.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::cluster::outage::MapOutage;
use crate::store::redis::topology::cluster::{
    Cluster, ClusterNode, NodeView, SlotMap, slot_ranges,
};
use crate::store::redis::topology::known_nodes::{self, KnownNodes};
use crate::store::redis::wire::errors::unsent;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::{BootInstant, BoxFuture, Timers};
use crate::types::Escaped;

/// The time between two refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two refreshes while the map may be outdated.
const REFRESH_IN_DOUBT: Duration = Duration::from_millis(300);

/// How long we wait for a node before we ask the next one too.
const NEXT_NODE_AFTER: Duration = Duration::from_millis(50);

/// The replies of one refresh, until one is accepted.
struct ClusterViews {
    /// The epoch of the known map.
    known: i64,
    /// No map is known yet: the first reply is accepted.
    first: bool,
    best: Option<NodeView>,
}

impl ClusterViews {
    fn after(map: &SlotMap) -> Self {
        Self {
            known: map.epoch,
            first: map.nodes.is_empty(),
            best: None,
        }
    }

    /// Returns the view if it is accepted at once. Otherwise keeps it if it is the best so far.
    fn hear(&mut self, view: NodeView) -> Option<NodeView> {
        if view.of_primary && view.epoch >= self.known || self.first {
            return Some(view.settled(self.known));
        }
        let rank = |view: &NodeView| (view.of_primary, view.epoch);
        if self
            .best
            .as_ref()
            .is_none_or(|best| rank(best) < rank(&view))
        {
            self.best = Some(view);
        }
        None
    }

    /// The best reply, after all nodes have replied. If every primary reports an older epoch, the cluster was created
    /// again and the map is valid.
    fn best(self) -> Option<NodeView> {
        self.best.map(|view| view.settled(self.known))
    }
}

impl NodeView {
    /// Replaces a replica's epoch by the known one. Otherwise the next reply of a primary would look outdated.
    fn settled(self, known: i64) -> Self {
        let epoch = if self.of_primary { self.epoch } else { known };
        Self { epoch, ..self }
    }

    /// Reads the replies of the node at `asked` to `CLUSTER SLOTS` and `CLUSTER INFO`.
    fn read(slots: &Reply, info: &str, asked: &HostAddress) -> Result<Self> {
        let ranges = slot_ranges::read(slots, asked);
        if ranges.is_empty() {
            return Err(unsent("it reports no slots"));
        }
        let fields: HashMap<&str, &str> = info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .collect();
        let epoch = fields.get("cluster_current_epoch");
        let epoch = epoch
            .and_then(|epoch| epoch.parse().ok())
            .unwrap_or_default();
        let state = fields.get("cluster_state");
        Ok(Self {
            told_by: asked.clone(),
            epoch,
            is_up: state.is_none_or(|state| *state == "ok"),
            of_primary: ranges.iter().any(|range| range.primary == *asked),
            ranges,
            ids: known_nodes::ids(slots),
        })
    }
}

impl Cluster {
    /// Asks one node after the other until a reply is accepted. Fails if no node replies within half of the limit.
    pub(crate) fn refresh_map(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let end = self.timers.now() + self.limit / 2;
            let mut rest = self.candidates().into_iter();
            let mut asked = FuturesUnordered::new();
            let map = self.map();
            let (mut views, mut troubles) = (ClusterViews::after(&map), Vec::new());
            drop(map);
            loop {
                match rest.next() {
                    Some(node) => asked.push(async move {
                        let view = view(&node, end).await;
                        let view = view.and_then(|view| self.check_it_is_ours(&node, view));
                        view.map_err(|error| explain(&node.address, &error))
                    }),
                    None if asked.is_empty() => break,
                    None => {}
                }
                match self.timers.limit(NEXT_NODE_AFTER, asked.next()).await {
                    Some(Some(Ok(view))) => {
                        if let Some(view) = views.hear(view) {
                            return self.take_or_start_again(view, troubles).await;
                        }
                    }
                    Some(Some(Err(error))) => troubles.push(error),
                    Some(None) | None => {}
                }
            }
            match views.best() {
                Some(view) => self.take_or_start_again(view, troubles).await,
                None if self.is_gone(&troubles) && self.start_again().await => Ok(()),
                None => Err(self.unreachable(troubles)),
            }
        })
    }

    /// A node that reports that the cluster is down may be the last one of a cluster that is gone.
    async fn take_or_start_again(&self, view: NodeView, mut troubles: Vec<Error>) -> Result<()> {
        let is_up = view.is_up;
        if !is_up {
            let node = &view.told_by;
            troubles.push(unsent(format_args!("{node}: its cluster is down")));
        }
        self.take(view);
        if !is_up && self.is_gone(&troubles) {
            self.start_again().await;
        }
        Ok(())
    }

    /// A node may join another cluster while we are connected to it. Then its connections end, also those of callers.
    fn check_it_is_ours(&self, node: &ClusterNode, view: NodeView) -> Result<NodeView> {
        if self.entry.known_nodes.are_known_to(&view.ids) {
            return Ok(view);
        }
        node.endpoint.leave();
        Err(unsent(known_nodes::ANOTHER_CLUSTER))
    }

    /// Counts a refresh that has failed, and tells the operator once that clients wait. Returns whether the cluster that was known
    /// counts as gone.
    fn is_gone(&self, troubles: &[Error]) -> bool {
        let now = self.timers.now();
        let mut outage = self.outage.lock();
        let failed = outage.get_or_insert_with(|| MapOutage::begun(now));
        let is_news = failed.goes_on(now);
        let has_lasted = failed.has_lasted(self.gone_after, now);
        drop(outage);
        if is_news {
            let (seen, moves_after) = (seen(troubles), self.gone_after);
            tracing::warn!(cluster = %Escaped(self), seen = %Escaped(&seen), ?moves_after, "no node reports this cluster as up; check which nodes run, and where the URL leads; if it leads to another cluster, this client moves there after moves_after");
        }
        has_lasted && !self.entry.known_nodes.is_empty()
    }

    /// Asks the addresses of the URL, whatever cluster is there now, and takes its map. Addresses that a node has told are not
    /// asked: they may belong to anybody by now. `false`: they lead to different clusters, to ours, or nowhere, or one of
    /// them refuses to tell.
    async fn start_again(&self) -> bool {
        let end = self.timers.now() + self.limit / 2;
        let asked = self.seeds.iter().map(|address| async move {
            let node = self.unproved_node(address);
            view(&node, end).await
        });
        let answers = join_all(asked).await;
        // A node that refuses to tell may be one of ours that has lost a right, and still has our locks.
        let refuses = |answer: &Result<NodeView>| {
            answer
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::Refused)
        };
        if answers.iter().any(refuses) {
            return false;
        }
        let views = answers.into_iter().flatten();
        let Some(first) = of_another_cluster(views, &self.entry.known_nodes) else {
            return false;
        };
        tracing::warn!(cluster = %Escaped(self), "no node of this cluster has answered for longer than a lease; the addresses of the URL lead to another cluster, which is used now");
        self.replace(first);
        true
    }

    /// The nodes to ask: the primaries, rotated, then their replicas, then the seed addresses.
    fn candidates(&self) -> Vec<Arc<ClusterNode>> {
        let map = self.map();
        let first = self.next_node.fetch_add(1, Ordering::Relaxed);
        let mut found: Vec<Arc<ClusterNode>> = Vec::new();
        let count = map.nodes.len();
        for node in map
            .nodes
            .iter()
            .cycle()
            .skip(first % count.max(1))
            .take(count)
        {
            found.push(Arc::clone(node));
        }
        for address in map.replicas.iter().chain(&self.seeds) {
            if found.iter().all(|known| known.address != *address) {
                // Its connection closes at the end of this refresh.
                found.push(self.node(address));
            }
        }
        found
    }

    fn unreachable(&self, mut troubles: Vec<Error>) -> Error {
        if let Some(at) = troubles.iter().position(|one| !one.is_retryable()) {
            return troubles.swap_remove(at);
        }
        let seen = seen(&troubles);
        unsent(format_args!(
            "{self}: no node reports which node has which slot: {seen}"
        ))
    }
}

/// The first of these views, if all of them are of one cluster, and not of ours.
fn of_another_cluster(
    views: impl Iterator<Item = NodeView>,
    ours: &KnownNodes,
) -> Option<NodeView> {
    // A node that reports its cluster as down does not count: it may be left over from one that is gone.
    let mut views = views.filter(|view| view.is_up);
    let first = views.next()?;
    let other = KnownNodes::default();
    other.replace(first.ids.clone());
    // One that is of our cluster has just come back, and answers the next refresh.
    let is_other = |view: &NodeView| !ours.are_known_to(&view.ids) && other.are_known_to(&view.ids);
    (is_other(&first) && views.all(|view| is_other(&view))).then_some(first)
}

/// The answers of nodes of which none has a map.
fn seen(troubles: &[Error]) -> String {
    let each: Vec<&str> = troubles.iter().filter_map(Error::detail).collect();
    if each.is_empty() {
        "no answer".to_owned()
    } else {
        each.join("; ")
    }
}

/// The periodic task. It ends when the client is closed or dropped.
pub(crate) async fn follow(cluster: Weak<Cluster>, timers: Timers) {
    loop {
        let (refresh, every) = {
            let Some(cluster) = cluster.upgrade() else {
                return;
            };
            if cluster.closed.load(Ordering::SeqCst) {
                return;
            }
            let every = if cluster.is_in_doubt() {
                REFRESH_IN_DOUBT
            } else {
                REFRESH_INTERVAL
            };
            (Arc::clone(&cluster.refresh), every)
        };
        // We hold no reference while we sleep. Otherwise a dropped client would stay alive.
        timers.after(REFRESH_IN_DOUBT / 2).await;
        timers.limit(every, refresh.notified()).await;
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        if let Err(error) = cluster.refresh_map().await {
            tracing::debug!(%error, "cannot read the slots of the cluster");
        }
        if cluster.closed.load(Ordering::SeqCst) {
            // We close again, because this refresh may have opened a connection after the first close.
            return cluster.close();
        }
    }
}

async fn view(node: &ClusterNode, end: BootInstant) -> Result<NodeView> {
    let ask = |what: &str| Request::new("CLUSTER").arg(what);
    let (slots, info) = (ask("SLOTS"), ask("INFO"));
    let (slots, info) = tokio::join!(node.back.ask(&slots, end), node.back.ask(&info, end));
    // `CLUSTER INFO` may be forbidden: then the epoch is zero.
    let info = info.ok();
    let info = info.as_ref().and_then(Reply::text).unwrap_or_default();
    NodeView::read(&slots?, info, &node.address)
}

fn explain(address: &HostAddress, error: &Error) -> Error {
    let detail = error.detail().unwrap_or_default();
    let right = format!("{}: ", known_nodes::NEEDED_RIGHT);
    let (kind, advice) = if detail.contains("cluster support disabled") {
        let advice = "it is no node of a cluster; write redis:// instead of redis+cluster://: ";
        (ErrorKind::InvalidOptions, advice)
    } else if detail.contains("NOPERM") && !detail.contains(known_nodes::NEEDED_RIGHT) {
        (error.kind(), &*right)
    } else {
        (error.kind(), "")
    };
    let address = address.to_string();
    let detail = detail.strip_prefix(&address).unwrap_or(detail);
    let detail = detail.trim_start_matches([':', ' ']);
    Error::new(kind).because(format!("{address}: {advice}{detail}"))
}

#[cfg(test)]
mod tests;
