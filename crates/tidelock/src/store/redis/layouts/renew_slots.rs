//! Renews locks in many slots of a cluster.
//!
//! A script may declare keys of one slot only, so a batch of a hundred locks would be a hundred scripts. Instead:
//!
//! 1. `renew_at_nodes`: the locks are grouped by the node that has their slots. A script gets the names of a group as
//!    arguments. Every server lets such a script use keys of its own slots, and refuses any other key, without an effect.
//! 2. Only the answer "renewed" of that script counts.
//! 3. `renew_each_slot`: every other lock - gone, moved, refused - is asked for by the script of its slot, which declares
//!    its keys and follows redirections. Its answer is final. A server that refuses keys that a script does not declare
//!    thus costs requests, and no lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::Redis;
use crate::store::redis::layouts::renew::{each_of, may_split};
use crate::store::redis::layouts::{Layout, scripts};
use crate::store::redis::millis;
use crate::store::redis::slots;
use crate::store::redis::topology::cluster::{Cluster, ClusterNode};
use crate::store::redis::wire::script::Script;
use crate::store::{LockKind, Renewal, Renewed, Ticket};

/// The answers of a batch so far, in its order. `None`: to be asked for by the script of its slot.
type Answers = Vec<Option<Renewed>>;

impl Redis {
    /// Renews a batch whose locks may be in any slots.
    pub(crate) async fn renew_slots(
        &self,
        cluster: &Cluster,
        batch: &[Renewal],
    ) -> Result<Vec<Renewed>> {
        let slots: Vec<u16> = batch
            .iter()
            .map(|renewal| slots::of(renewal.ticket.name.as_str()))
            .collect();
        if slots.iter().all(|slot| Some(slot) == slots.first()) {
            return self.renew_slot(batch).await;
        }
        let mut answers: Answers = batch.iter().map(|_| None).collect();
        self.renew_at_nodes(cluster, batch, &slots, &mut answers)
            .await;
        self.renew_each_slot(batch, &slots, &mut answers).await;
        // Each lock has its answer now.
        let unanswered = || Renewed::Failed(Error::new(ErrorKind::Unavailable));
        let answers = answers.into_iter();
        let answers: Vec<Renewed> = answers
            .map(|answer| answer.unwrap_or_else(unanswered))
            .collect();
        // A batch that failed as a whole is an outage of its node, and counted as one.
        match answers.first() {
            Some(Renewed::Failed(error)) if answers.iter().all(has_failed) => Err(error.retold()),
            _ => Ok(answers),
        }
    }

    /// Step 1. Fills in the locks that were renewed, and those of a node whose reply may still come: a second request
    /// would wait for the same node once more.
    async fn renew_at_nodes(
        &self,
        cluster: &Cluster,
        batch: &[Renewal],
        slots: &[u16],
        answers: &mut Answers,
    ) {
        let mut groups: BTreeMap<u64, (Arc<ClusterNode>, Vec<usize>)> = BTreeMap::new();
        for (index, (renewal, slot)) in batch.iter().zip(slots).enumerate() {
            let node = cluster.owner(*slot);
            if let (Some(node), Some(_)) = (node, self.script_of_slots(&renewal.ticket)) {
                let group = groups.entry(node.lane).or_insert((node, Vec::new()));
                group.1.push(index);
            }
        }
        let groups = groups.into_values().filter(|(_, group)| group.len() > 1);
        let asked = groups.map(|(node, group)| async move {
            let part: Vec<Renewal> = group.iter().map(|index| batch[*index].clone()).collect();
            (self.renew_at(&node, &part).await, group)
        });
        for (result, group) in join_all(asked).await {
            match result {
                Ok(each) => {
                    let told = group.into_iter().zip(each);
                    for (index, renewed) in told.filter(|(_, it)| !matches!(it, Renewed::Gone)) {
                        answers[index] = Some(renewed);
                    }
                }
                Err(error) if error.outcome_unknown() && !may_split(&error) => {
                    for index in group {
                        answers[index] = Some(Renewed::Failed(error.retold()));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the locks of this node are renewed slot by slot");
                }
            }
        }
    }

    /// Renews locks of many slots at one node. `Gone`: the node cannot tell.
    async fn renew_at(&self, node: &ClusterNode, part: &[Renewal]) -> Result<Vec<Renewed>> {
        let first = part
            .first()
            .and_then(|first| self.script_of_slots(&first.ticket));
        let Some(script) = first else {
            return Ok(Vec::new());
        };
        let mut leases = vec![itoa::Buffer::new(); part.len()];
        let each = leases.iter_mut().zip(part);
        let args: Vec<&str> = each
            .flat_map(|(text, renewal)| {
                let ticket = &renewal.ticket;
                let lease = text.format(millis(renewal.lease));
                [ticket.name.as_str(), lease, ticket.owner.text()]
            })
            .collect();
        self.run_renewal(script, &[], &args, part, Some(node)).await
    }

    /// Step 3, for the locks that have no answer yet.
    async fn renew_each_slot(&self, batch: &[Renewal], slots: &[u16], answers: &mut Answers) {
        let mut left: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, slot) in slots.iter().enumerate() {
            if answers[index].is_none() {
                left.entry(*slot).or_default().push(index);
            }
        }
        let asked = left.into_values().map(|group| async move {
            let part: Vec<Renewal> = group.iter().map(|index| batch[*index].clone()).collect();
            (self.renew_slot(&part).await, group)
        });
        for (result, group) in join_all(asked).await {
            let mut each = each_of(result, group.len()).into_iter();
            for index in group {
                answers[index] = each.next();
            }
        }
    }

    /// The script that renews such a lock without a declared key. `None`: there is none, and each slot has its own script.
    fn script_of_slots(&self, ticket: &Ticket) -> Option<&'static Script> {
        match (self.layout, ticket.kind) {
            (Layout::Redisson, LockKind::Permits(_)) => None,
            (Layout::Redisson, kind) if kind.is_read_write() => None,
            (Layout::Redisson, _) => Some(&scripts::RENEW_SLOTS),
            (Layout::Plain, _) => self.may_script().then_some(&scripts::PLAIN_RENEW_SLOTS),
        }
    }
}

fn has_failed(renewed: &Renewed) -> bool {
    matches!(renewed, Renewed::Failed(_))
}

#[cfg(test)]
mod tests;
