//! One attempt to acquire permits of a semaphore.
//!
//! 1. Without a claim, create one, and read the number and the claims in the same round trip. Otherwise only read them.
//! 2. If the permits are available together with those that are wanted ahead, grant them.
//! 3. Otherwise watch the number and the waiter directly ahead, and refuse. The first waiter watches the list of claims instead.
//!
//! The attempt starts over if what it has read changes in between.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join;
use zookeeper_client as zk;

use crate::error::Result;
use crate::store::kinds::is_lock;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::entry::{NodePlace, NodePosition, QueueNode};
use crate::store::zookeeper::own_node::OwnNode;
use crate::store::zookeeper::permit_requests::{self, number_of, without_epoch};
use crate::store::zookeeper::permit_steps::PermitPaths;
use crate::store::zookeeper::permit_view::{
    ClaimStep, ClaimView, ClaimWatch, SemaphoreNumber, number_before_claims,
};
use crate::store::zookeeper::release::leave_by;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{errors, keys, transaction};
use crate::store::{Attempt, AttemptRequest, BootInstant, Grant};

/// Repeats the step until it decides.
pub(crate) async fn attempt(
    shared: &Shared,
    ask: &AttemptRequest,
    permits: u16,
) -> Result<Attempt> {
    let deadline = shared.connection.deadline();
    // We arm the wake before we read the claims. Otherwise a wake between the two would be lost.
    let wake = ask
        .wants_wake()
        .then(|| shared.signals.arm(ask.ticket.owner.text()));
    let connection = shared.connection_for(&ask.ticket, ask.lease);
    let paths = shared.permit_paths(&ask.ticket.name);
    let turn = PermitAttempt {
        shared,
        ask,
        permits,
        own: OwnNode {
            shared,
            connection: &connection,
            ticket: &ask.ticket,
            place: NodePlace {
                parent: paths.claims.clone(),
                prefix: keys::prefix(&ask.ticket),
            },
            deadline,
        },
        paths,
        deadline,
    };
    loop {
        let session = connection.session(deadline).await?;
        match turn.step(&session).await? {
            PermitOutcome::Granted => {
                return Ok(Attempt::Acquired(Grant {
                    bond: Some(session.bond()),
                    ..Grant::default()
                }));
            }
            PermitOutcome::Refused(looks_after) => return Ok(Attempt::held(wake, looks_after)),
            PermitOutcome::Again => {}
        }
    }
}

struct PermitAttempt<'a> {
    shared: &'a Shared,
    ask: &'a AttemptRequest,
    permits: u16,
    own: OwnNode<'a>,
    paths: PermitPaths,
    deadline: BootInstant,
}

enum PermitOutcome {
    Granted,
    /// With the pause until the waiter looks. `None`: the watches report all that can make the permits available.
    Refused(Option<Duration>),
    /// What was read has changed.
    Again,
}

impl PermitAttempt<'_> {
    async fn step(&self, session: &ZooKeeperSession) -> Result<PermitOutcome> {
        let sent = self.shared.timers.now();
        let ticket = &self.ask.ticket;
        match self.shared.registry.node_position(ticket, session.id())? {
            NodePosition::Nowhere => self.enter(session, sent).await,
            NodePosition::Unknown(create) => {
                self.own.find(session, create).await?;
                Ok(PermitOutcome::Again)
            }
            NodePosition::At(node) => {
                let view = self.look(session).await?;
                self.act(session, &node, view, sent).await
            }
        }
    }

    /// Takes a place among the claims, and decides. With zero patience it reads first, and takes none if there are too few
    /// permits.
    async fn enter(&self, session: &ZooKeeperSession, sent: BootInstant) -> Result<PermitOutcome> {
        if self.ask.patience.is_zero() {
            let mut view = self.look(session).await?;
            self.refuse_lock(session, &view).await?;
            if self.decided(session, &mut view, None).await? != ClaimStep::Gets {
                // Another attempt of this ticket may have taken a place meanwhile, and may have got the permits.
                let (ticket, registry) = (&self.ask.ticket, &self.shared.registry);
                return Ok(match registry.node_position(ticket, session.id())? {
                    NodePosition::Nowhere => PermitOutcome::Refused(None),
                    NodePosition::Unknown(_) | NodePosition::At(_) => PermitOutcome::Again,
                });
            }
        }
        let PermitPaths { number, claims } = &self.paths;
        let also = || {
            number_before_claims(
                || session.client.get_data(number),
                || session.client.list_children(claims),
            )
        };
        let ends = self.own.patience_ends(sent);
        let created = self.own.create(session, b"", ends, also).await?;
        let Some((node, (numbered, listed))) = created else {
            return Ok(PermitOutcome::Again);
        };
        let number = errors::unless_missing(self.own.until(numbered).await?)?;
        let nodes = errors::unless_missing(self.own.until(listed).await?)?;
        let number = number.map(|number| number_of(&number)).transpose()?;
        let view = ClaimView::new(number, nodes.unwrap_or_default());
        self.act(session, &node, view, sent).await
    }

    async fn look(&self, session: &ZooKeeperSession) -> Result<ClaimView> {
        permit_requests::view(self.shared, session, &self.paths, self.deadline).await
    }

    /// A name without a number may be a lock.
    async fn refuse_lock(&self, session: &ZooKeeperSession, view: &ClaimView) -> Result<()> {
        if view.number.is_some() {
            return Ok(());
        }
        let (queues, queue) = (&self.shared.queues, self.paths.queue());
        let nodes = queues.read(session, queue, self.deadline).await?;
        let nodes = nodes.unwrap_or_default();
        // If the number has appeared since the view, the locks here wait for it. The view is read again.
        let is_semaphore = nodes.iter().any(|node| node == keys::NUMBER);
        if !is_semaphore && nodes.iter().any(|node| keys::makes_a_lock(node)) {
            return Err(is_lock());
        }
        Ok(())
    }

    /// The step of a claim, with all that it must read.
    async fn decided(
        &self,
        session: &ZooKeeperSession,
        view: &mut ClaimView,
        own: Option<&QueueNode>,
    ) -> Result<ClaimStep> {
        loop {
            match view.step(own, self.permits) {
                ClaimStep::Read(nodes) => {
                    let (paths, deadline) = (&self.paths, self.deadline);
                    let read = permit_requests::learn(self.shared, session, paths, nodes, deadline);
                    for (node, holds) in read.await? {
                        view.learn(&node, holds);
                    }
                }
                decided => return Ok(decided),
            }
        }
    }

    async fn act(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        mut view: ClaimView,
        sent: BootInstant,
    ) -> Result<PermitOutcome> {
        self.own.refuse_late(node).await?;
        self.refuse_lock(session, &view).await?;
        match self.decided(session, &mut view, Some(node)).await? {
            ClaimStep::Gets => match &view.number {
                Some(number) => self.grant(session, node, number, sent).await,
                None => Ok(PermitOutcome::Again),
            },
            ClaimStep::Waits(watch) => self.wait(session, node, &view, watch, sent).await,
            ClaimStep::Gone => {
                self.shared.registry.lost(&self.ask.ticket, node);
                Ok(PermitOutcome::Again)
            }
            ClaimStep::Read(_) => Ok(PermitOutcome::Again),
        }
    }

    async fn grant(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        number: &SemaphoreNumber,
        sent: BootInstant,
    ) -> Result<PermitOutcome> {
        let data = self.shared.note(&self.ask.ticket);
        let changes = self.paths.grant(number, &node.name, data);
        let failed = transaction::commit(self.shared, session, &changes, self.deadline).await?;
        match failed {
            None => Ok(self.holds(session, node, sent)),
            // An earlier grant, whose reply was lost, has taken effect, or the claim has gone.
            Some(PermitPaths::OWN) => {
                let own = session.client.check_stat(&self.paths.claim(&node.name));
                let own = self.own.until(own).await?.map_err(errors::unread)?;
                Ok(self
                    .settled(session, node, own, sent)
                    .unwrap_or(PermitOutcome::Again))
            }
            Some(_) => {
                // Without this look, a number that has no epoch would be tried again and again until the deadline.
                let view = self.look(session).await?;
                if failed == Some(PermitPaths::EPOCH) && view.number.as_ref() == Some(number) {
                    return Err(without_epoch());
                }
                Ok(PermitOutcome::Again)
            }
        }
    }

    /// The outcome that the claim itself shows. `None`: it waits.
    fn settled(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        own: Option<zk::Stat>,
        sent: BootInstant,
    ) -> Option<PermitOutcome> {
        match own {
            Some(own) if permit_requests::holds(&own) => Some(self.holds(session, node, sent)),
            Some(_) => None,
            None => {
                self.shared.registry.lost(&self.ask.ticket, node);
                Some(PermitOutcome::Again)
            }
        }
    }

    /// The leader has answered a request that was sent after `sent`.
    fn holds(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        sent: BootInstant,
    ) -> PermitOutcome {
        session.confirmed(sent);
        let (ticket, ends) = (&self.ask.ticket, sent + self.ask.lease);
        let keep_alive_due = session.next_keep_alive(ends);
        let registry = &self.shared.registry;
        if registry.grant(ticket, node, ends, keep_alive_due) {
            PermitOutcome::Granted
        } else {
            PermitOutcome::Again
        }
    }

    /// Watches what the claim waits for. With zero patience it gives its place up instead.
    async fn wait(
        &self,
        session: &ZooKeeperSession,
        node: &QueueNode,
        view: &ClaimView,
        watch: ClaimWatch,
        sent: BootInstant,
    ) -> Result<PermitOutcome> {
        let path = self.paths.claim(&node.name);
        // Together with the watches, in one round trip.
        let own = session.client.check_stat(&path);
        let patient = !self.ask.patience.is_zero();
        let watches_all = watch == ClaimWatch::All;
        let before = match watch {
            ClaimWatch::Claim(before) => Some(self.paths.claim(&before)),
            ClaimWatch::Nothing | ClaimWatch::All => None,
        };
        let PermitPaths { number, claims } = &self.paths;
        let watched = [&**number, &**claims].into_iter().chain(before.as_deref());
        let entry = patient.then(|| session.watches.enter(watched)).flatten();
        let watching = async {
            if entry.is_some() {
                let before = before.as_deref();
                self.watchers(session, view, before, watches_all).await
            } else {
                Ok(None)
            }
        };
        let (own, watchers) = join(self.own.until(own), watching).await;
        if let Some(settled) = self.settled(session, node, own?.map_err(errors::unread)?, sent) {
            return Ok(settled);
        }
        if !patient {
            // A claim whose caller never returns would keep out all behind it.
            leave_by(self.shared, &self.ask.ticket, false, self.own.deadline).await?;
            return Ok(PermitOutcome::Refused(None));
        }
        let (mut task, mut looks_after) = (None, None);
        if let Some(entry) = entry {
            let Some(watchers) = watchers? else {
                return Ok(PermitOutcome::Again);
            };
            task = Some(self.own.wakes_by(watchers, entry));
        } else {
            let ahead = if watches_all { 0 } else { view.ahead_of(node) };
            looks_after = Some(self.own.looks_after(ahead));
        }
        let (ticket, ends) = (&self.ask.ticket, self.own.patience_ends(sent));
        let kept = self.shared.registry.waits(ticket, node, ends, task);
        Ok(if kept {
            PermitOutcome::Refused(looks_after)
        } else {
            PermitOutcome::Again
        })
    }

    /// Watches the number and what else can make the permits available: the claim `before`, or all. `None`: some of it has
    /// changed since the view.
    async fn watchers(
        &self,
        session: &ZooKeeperSession,
        view: &ClaimView,
        before: Option<&str>,
        mut watches_all: bool,
    ) -> Result<Option<Vec<zk::OneshotWatcher>>> {
        // We send both before we await the first, so they share one round trip.
        let number = session.client.check_and_watch_stat(&self.paths.number);
        let before = before.map(|before| session.client.check_and_watch_stat(before));
        let (number, numbered) = self.own.until(number).await?.map_err(errors::unread)?;
        let changed = view.number.as_ref().map(|number| number.changed);
        if number.map(|number| number.mzxid) != changed {
            return Ok(None);
        }
        let mut watchers = vec![numbered];
        if let Some(before) = before {
            let (stat, watcher) = self.own.until(before).await?.map_err(errors::unread)?;
            match stat {
                None => return Ok(None),
                // It got its permits before the number became smaller. So this claim is the first that waits.
                Some(stat) if permit_requests::holds(&stat) => watches_all = true,
                Some(_) => watchers.push(watcher),
            }
        }
        if watches_all {
            let listed = session.client.list_and_watch_children(&self.paths.claims);
            let listed = errors::unless_missing(self.own.until(listed).await?)?;
            let Some((nodes, watcher)) = listed else {
                return Ok(None);
            };
            let nodes: HashSet<String> = nodes.into_iter().collect();
            // Those that have come since do not matter.
            if view.claims.iter().any(|claim| !nodes.contains(&claim.node)) {
                return Ok(None);
            }
            watchers.push(watcher);
        }
        Ok(Some(watchers))
    }
}
