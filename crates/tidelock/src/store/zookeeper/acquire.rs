//! One acquire attempt: creates a node in the queue, and grants the lock if no other node blocks it.
//!
//! 1. Without a node, create one and list the queue in the same round trip. Otherwise only list the queue.
//! 2. If a node in front blocks ours, watch it and refuse.
//! 3. Otherwise wait for a running lock-delay to end, then grant.
//!
//! The attempt starts over if the queue changes in between.

use std::time::Duration;

use crate::error::Result;
use crate::store::kinds::is_semaphore;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay::{DelayDecision, FirstInQueue};
use crate::store::zookeeper::delay_node::DelayMark;
use crate::store::zookeeper::downgrade::DowngradeAttempt;
use crate::store::zookeeper::entry::{NodePlace, NodePosition, QueueNode};
use crate::store::zookeeper::keys::{self, QueueDecision};
use crate::store::zookeeper::own_node::{NodeWatch, OwnNode};
use crate::store::zookeeper::release::leave_by;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{delay_node, errors};
use crate::store::{Attempt, AttemptRequest, BootInstant, Grant, OwnerId};
use crate::types::FencingToken;

/// Repeats the step until it decides: the queue may change between our read and the request that relies on it.
pub(crate) async fn attempt(shared: &Shared, ask: &AttemptRequest) -> Result<Attempt> {
    let deadline = shared.connection.deadline();
    // We arm the wake before we read the queue. Otherwise a wake between the two would be lost.
    let wake = ask
        .wants_wake()
        .then(|| shared.signals.arm(ask.ticket.owner.text()));
    let connection = shared.connection_for(&ask.ticket, ask.lease);
    let turn = QueueAttempt {
        shared,
        ask,
        own: OwnNode {
            shared,
            connection: &connection,
            ticket: &ask.ticket,
            place: NodePlace {
                parent: shared.path(&ask.ticket.name),
                prefix: keys::prefix(&ask.ticket),
            },
            deadline,
        },
        deadline,
    };
    loop {
        let session = connection.session(deadline).await?;
        match turn.step(&session).await? {
            Step::Granted(node) => {
                let bond = Some(session.bond());
                let token = FencingToken::new(node.zxid.unsigned_abs());
                return Ok(Attempt::Acquired(Grant {
                    token: Some(token),
                    bond,
                    ..Grant::default()
                }));
            }
            Step::Refused(refusal) => {
                let Refusal { ahead, looks_after } = refusal;
                return Ok(Attempt::held_behind(wake, looks_after, ahead));
            }
            Step::Barred(left) => return Ok(Attempt::held(wake, left)),
            Step::Again => {}
        }
    }
}

struct QueueAttempt<'a> {
    shared: &'a Shared,
    ask: &'a AttemptRequest,
    own: OwnNode<'a>,
    deadline: BootInstant,
}

enum Step {
    Granted(QueueNode),
    Refused(Refusal),
    /// No node blocks ours, but the last hold ended without a release: its lock-delay runs for this much longer.
    Barred(Duration),
    /// The queue has changed since we read it.
    Again,
}

/// Another node blocks ours.
#[derive(Default)]
struct Refusal {
    /// The number of nodes ahead. `None`: the ticket has no node.
    ahead: Option<u32>,
    /// `None`: the watch reports when the node in front is gone, and only the holder's own process knows when its lease ends.
    looks_after: Option<Duration>,
}

/// A node that this attempt has created, with the queue and the delay node as they were right after.
struct NewNode {
    node: QueueNode,
    nodes: Vec<String>,
    mark: Option<DelayMark>,
}

impl QueueAttempt<'_> {
    async fn step(&self, session: &ZooKeeperSession) -> Result<Step> {
        let sent = self.shared.timers.now();
        let ticket = &self.ask.ticket;
        let registry = &self.shared.registry;
        match registry.node_position(ticket, session.id())? {
            NodePosition::Nowhere => match &self.ask.downgrade_of {
                Some(writer) => self.join(session, writer, sent).await,
                None => self.queue(session, sent).await,
            },
            NodePosition::Unknown(create) => {
                self.own.find(session, create).await?;
                Ok(Step::Again)
            }
            NodePosition::At(node) => {
                let name = &self.ask.ticket.name;
                let queue = self.shared.queue(session, name, self.deadline);
                let (nodes, mark) = queue.await?;
                self.act(session, &node, nodes, mark, sent).await
            }
        }
    }

    /// Creates the node directly behind that of the writer. The next step finds it and its transaction id, which servers
    /// report wrong for a create in a transaction (ZOOKEEPER-4026).
    async fn join(
        &self,
        session: &ZooKeeperSession,
        writer: &OwnerId,
        sent: BootInstant,
    ) -> Result<Step> {
        let attempt = DowngradeAttempt {
            shared: self.shared,
            here: (self.own.connection, session),
            ask: self.ask,
            place: &self.own.place,
            deadline: self.deadline,
        };
        attempt.join(writer, self.own.patience_ends(sent)).await?;
        Ok(Step::Again)
    }

    /// Queues the node and decides. With zero patience it reads the queue first, and creates no node if the lock is
    /// held.
    async fn queue(&self, session: &ZooKeeperSession, sent: BootInstant) -> Result<Step> {
        if self.ask.patience.is_zero()
            && let Some(refused) = self.refuse_if_held(session).await?
        {
            return Ok(refused);
        }
        let Some(created) = self.create(session, sent).await? else {
            return Ok(Step::Again);
        };
        let NewNode { node, nodes, mark } = created;
        let step = self.act(session, &node, nodes, mark, sent).await?;
        if matches!(step, Step::Refused(_) | Step::Barred(_)) && self.ask.patience.is_zero() {
            // Others were faster. A node whose caller never returns would block everyone behind it.
            leave_by(self.shared, &self.ask.ticket, false, self.deadline).await?;
        }
        Ok(step)
    }

    /// `None`: no node blocks this ticket, and the parent of its node exists.
    async fn refuse_if_held(&self, session: &ZooKeeperSession) -> Result<Option<Step>> {
        let (ticket, registry) = (&self.ask.ticket, &self.shared.registry);
        let Some(nodes) = self
            .shared
            .queues
            .read(session, &self.own.place.parent, self.deadline)
            .await?
        else {
            self.own.make_parent(session).await?;
            return Ok(None);
        };
        refuse_semaphore(&nodes)?;
        if keys::in_the_way(&keys::in_order(nodes), ticket.kind).is_none() {
            return Ok(None);
        }
        // The node that blocks us may be our own, created meanwhile by a late attempt of this ticket. A refusal here
        // would mean that the ticket blocks itself.
        Ok(Some(
            match registry.node_position(ticket, session.id())? {
                NodePosition::Nowhere => Step::Refused(Refusal::default()),
                NodePosition::Unknown(_) | NodePosition::At(_) => Step::Again,
            },
        ))
    }

    /// Creates the node and reads the queue behind it. `None`: start over.
    async fn create(
        &self,
        session: &ZooKeeperSession,
        sent: BootInstant,
    ) -> Result<Option<NewNode>> {
        let data = self.shared.note(&self.ask.ticket);
        let mark = self.shared.delay_path(&self.ask.ticket.name);
        let parent = &self.own.place.parent;
        let also = || {
            (
                session.client.list_children(parent),
                session.client.get_data(&mark),
            )
        };
        let ends = self.own.patience_ends(sent);
        let created = self.own.create(session, &data, ends, also).await?;
        let Some((node, (listed, marked))) = created else {
            return Ok(None);
        };
        Ok(Some(NewNode {
            node,
            nodes: errors::unless_missing(self.own.until(listed).await?)?.unwrap_or_default(),
            mark: delay_node::mark(self.own.until(marked).await?)?,
        }))
    }

    /// Grants or refuses, by the decision on the listed queue. A refusal with patience watches the node that blocks ours.
    async fn act(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        nodes: Vec<String>,
        mark: Option<DelayMark>,
        sent: BootInstant,
    ) -> Result<Step> {
        self.own.refuse_late(node).await?;
        refuse_semaphore(&nodes)?;
        let (ticket, registry) = (&self.ask.ticket, &self.shared.registry);
        let queue = keys::in_order(nodes);
        let before = match keys::decide(&queue, &node.name, self.ask.ticket.kind) {
            QueueDecision::Holds => return self.come_first(session, node, mark, sent).await,
            // It was created behind the writer that it follows, and ahead of all others.
            QueueDecision::Watch(_) if self.ask.downgrade_of.is_some() => {
                return self.come_first(session, node, None, sent).await;
            }
            QueueDecision::Watch(before) => before,
            QueueDecision::Gone => {
                registry.lost(ticket, node);
                return Ok(Step::Again);
            }
        };
        let at = |name: &str| queue.iter().position(|other| other == name);
        let (mut watch, mut looks_after) = (None, None);
        if !self.ask.patience.is_zero() {
            let path = format!("{}/{before}", self.own.place.parent);
            match self.own.watch(session, &path).await? {
                NodeWatch::Task(task) => watch = Some(task),
                NodeWatch::NoRoom => {
                    looks_after = Some(self.own.looks_after(at(before).unwrap_or_default()));
                }
                NodeWatch::Gone => return Ok(Step::Again),
            }
        }
        let kept = registry.waits(ticket, node, self.own.patience_ends(sent), watch);
        let ahead = at(&node.name).and_then(|at| u32::try_from(at).ok());
        Ok(if kept {
            Step::Refused(Refusal { ahead, looks_after })
        } else {
            Step::Again
        })
    }

    /// No node blocks ours: grants the lock unless a lock-delay is running.
    async fn come_first(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        mark: Option<DelayMark>,
        sent: BootInstant,
    ) -> Result<Step> {
        let (ticket, registry) = (&self.ask.ticket, &self.shared.registry);
        let first = FirstInQueue {
            shared: self.shared,
            session,
            ask: self.ask,
            node,
            deadline: self.deadline,
        };
        match first.pass(mark).await? {
            DelayDecision::Open => {}
            DelayDecision::Again => return Ok(Step::Again),
            DelayDecision::Barred(mut left) => {
                let mut watch = None;
                if !self.ask.patience.is_zero() {
                    // An operator may end the delay, so we watch the delay node too.
                    let path = self.shared.delay_path(&self.ask.ticket.name);
                    match self.own.watch(session, &path).await? {
                        NodeWatch::Task(task) => watch = Some(task),
                        NodeWatch::NoRoom => left = left.min(self.own.looks_after(0)),
                        NodeWatch::Gone => return Ok(Step::Again),
                    }
                }
                let kept = registry.waits(ticket, node, self.own.patience_ends(sent), watch);
                return Ok(if kept {
                    Step::Barred(left)
                } else {
                    Step::Again
                });
            }
        }
        session.confirmed(sent);
        let ends = sent + self.ask.lease;
        let granted = registry.grant(ticket, node, ends, session.next_keep_alive(ends));
        Ok(if granted {
            Step::Granted(node.clone())
        } else {
            Step::Again
        })
    }
}

/// A name with a number of permits is a semaphore. Its number comes before all nodes of locks.
fn refuse_semaphore(nodes: &[String]) -> Result<()> {
    if nodes.iter().any(|node| node == keys::NUMBER) {
        return Err(is_semaphore());
    }
    Ok(())
}
