//! Acquires a lock, in the way of `concurrency.Mutex`: each ticket has its own key, and the oldest key holds the lock.
//!
//! `try_acquire` writes its key only if the queue is empty. A waiter always writes its key, and has a place in the
//! queue from then on. An existing key is left unchanged, so a retry is idempotent.

use std::time::Duration;

use futures_util::future::join;

use crate::error::{Error, Result};
use crate::store::etcd::api::{Op, TxnRequest, TxnResponse};
use crate::store::etcd::calls::{created, found, get, ops, put, whole_seconds};
use crate::store::etcd::errors::{RequestError, unclear, unsent, untouched};
use crate::store::etcd::queue::{self, QueueKeys, QueuePosition};
use crate::store::etcd::ticket_leases::Lease;
use crate::store::etcd::watched::WatchRange;
use crate::store::etcd::{Etcd, Shared, downgrade, foreign_keys};
use crate::store::kinds::is_semaphore;
use crate::store::{Attempt, AttemptRequest, BootInstant, Grant, Ticket, Wait, Wake};
use crate::types::{FencingToken, LostReason};

impl Etcd {
    /// See [`Backend::attempt`](crate::store::Backend::attempt).
    pub(crate) async fn acquire(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let deadline = self.connection.deadline();
        let ticket_leases = &self.shared.ticket_leases;
        let mut wake = None;
        if self.looks_taken(ask, deadline).await? {
            return Ok(Attempt::Held(Wait::default()));
        }
        // We retry in three cases: the reused lease has expired, and the key with it; a key of an earlier ticket may be
        // under it; or the key is under the lease of another attempt of this ticket.
        for round in 0..3 {
            self.take_place_of_writer(ask)?;
            let (lease, fresh) = self.lease_for_ticket(ask, round == 0, deadline).await?;
            let queue_keys = self.queue_keys(&ask.ticket)?;
            // We arm the wake before we send. Otherwise a release between the answer and the arming would be missed.
            if ask.wants_wake() && wake.is_none() {
                wake = Some(self.shared.signals.arm(&queue_keys.key));
            }
            let txn = self.prepare(ask, &queue_keys, lease, deadline).await?;
            ticket_leases.sending(&ask.ticket)?;
            let (kept, answer) = self
                .send(ask, &queue_keys, txn, (lease, fresh), deadline)
                .await;
            if answer.as_ref().err().is_none_or(RequestError::is_certain) {
                ticket_leases.answered(&ask.ticket);
            }
            match (kept, answer) {
                (_, Err(failure)) if failure.is_lease_gone() => {}
                (_, Err(failure)) => return Err(failure.error()),
                (_, Ok(answer)) if !fresh && self.may_share_lease(ask, &queue_keys, &answer) => {
                    let ended = self.end_shared_lease(&ask.ticket, lease.id, deadline);
                    ended.await?;
                }
                // The key may exist, but without a keep-alive its lease may be shorter than requested.
                (Err(failure), Ok(_)) => return Err(unclear(failure)),
                (Ok(false), Ok(_)) => {}
                (Ok(true), Ok(answer)) => {
                    if let Some(id) = queue::record_key_lease(&answer, ask, lease.id) {
                        ticket_leases.record_key_lease(&ask.ticket, id);
                        if id != lease.id {
                            continue;
                        }
                    }
                    return self
                        .attempt_from(ask, &queue_keys, &answer, lease, wake, deadline)
                        .await;
                }
            }
            ticket_leases.ended(&ask.ticket, lease.id);
        }
        Err(unsent(
            "the server ended every lease right after it had granted it",
        ))
    }

    /// For a downgrade: records that the reader takes over the place of its writer, before anything is sent.
    fn take_place_of_writer(&self, ask: &AttemptRequest) -> Result<()> {
        let Some(writer) = &ask.downgrade_of else {
            return Ok(());
        };
        let taken = self.shared.ticket_leases.join(&ask.ticket, writer)?;
        taken.map_or_else(|| Err(Error::lost(LostReason::Taken)), |_| Ok(()))
    }

    /// Sends the transaction of one attempt and, unless the lease is `fresh`, a keep-alive of its lease.
    async fn send(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        txn: TxnRequest,
        (lease, fresh): (Lease, bool),
        deadline: BootInstant,
    ) -> (
        Result<bool, RequestError>,
        Result<TxnResponse, RequestError>,
    ) {
        let asked = self.transact(txn, deadline);
        // An older lease may expire at any time, so a grant under it counts only after a successful keep-alive.
        if fresh {
            return (Ok(true), asked.await);
        }
        let is_young = lease.is_young(self.connection.endpoint.timers.now());
        let is_taken = self.shared.ticket_leases.is_taken(&ask.ticket.name);
        if ask.armed_by.is_some() || !is_taken || !is_young {
            // Run both concurrently: whichever executes first, both key and lease exist at that instant.
            return join(self.alive(&ask.ticket, lease, deadline), asked).await;
        }
        // The lock was just taken, so a refusal is likely. A refusal under a young lease needs no keep-alive, and we save
        // that request.
        let answer = asked.await;
        let first = |answer| match decide(ask, queue_keys, answer) {
            Ok(QueuePosition::First(_) | QueuePosition::Passed(_)) => true,
            // A second request may find that no key blocks a reader.
            Ok(QueuePosition::Somewhere(_)) => queue_keys.reads,
            Ok(QueuePosition::Behind(..) | QueuePosition::Nowhere) | Err(_) => false,
        };
        if answer.as_ref().is_ok_and(first) {
            return (self.alive(&ask.ticket, lease, deadline).await, answer);
        }
        (Ok(true), answer)
    }

    /// For a `try_acquire` of a lock that was just found taken: reads the queue before it writes. A read costs the
    /// server much less than a refused transaction.
    async fn looks_taken(&self, ask: &AttemptRequest, deadline: BootInstant) -> Result<bool> {
        let (ticket_leases, name) = (&self.shared.ticket_leases, &ask.ticket.name);
        if !ask.patience.is_zero()
            || !ticket_leases.is_taken(name)
            || ask.downgrade_of.is_some()
            || ticket_leases.lease(&ask.ticket)?.is_some()
        {
            return Ok(false);
        }
        // The ticket has no key yet, so the id in its keys does not matter.
        let queue_keys = QueueKeys::named(&self.shared.keys, &ask.ticket, 0, false);
        let look = TxnRequest {
            success: ops(queue_keys.first()),
            ..TxnRequest::default()
        };
        let seen = self.transact(look, deadline).await;
        let seen = seen.map_err(untouched)?;
        if queue_keys.are_of_semaphore(&seen.responses) {
            return Err(is_semaphore());
        }
        foreign_keys::refuse_first(&queue_keys.folder, &seen.responses)?;
        let taken = queue::latest(&seen.responses).is_some();
        if taken {
            ticket_leases.taken(name);
        }
        Ok(taken)
    }

    /// The lease of a ticket, and whether it was granted by this call. With `reuse`, a spare lease may be taken.
    pub(crate) async fn lease_for_ticket(
        &self,
        ask: &AttemptRequest,
        reuse: bool,
        deadline: BootInstant,
    ) -> Result<(Lease, bool)> {
        let ticket_leases = &self.shared.ticket_leases;
        if let Some(lease) = ticket_leases.lease(&ask.ticket)? {
            return Ok((lease, false));
        }
        if reuse && let Some(lease) = ticket_leases.reuse(&ask.ticket, whole_seconds(ask.lease))? {
            return Ok((lease, false));
        }
        let lease = self.lease(&ask.ticket, ask.lease, deadline).await?;
        Ok((lease, true))
    }

    /// Grants a new lease to a ticket and records it before anything is written under it.
    pub(crate) async fn lease(
        &self,
        ticket: &Ticket,
        length: Duration,
        deadline: BootInstant,
    ) -> Result<Lease> {
        // The lease has no keys yet. So no lock is affected, even if the outcome of this request is unknown.
        let granted = self.connection.grant(whole_seconds(length), deadline).await;
        let lease = granted.map_err(untouched)?;
        match self.shared.ticket_leases.granted(ticket, lease) {
            Ok(()) => Ok(lease),
            Err(withdrawn) => {
                self.revoke_in_background(vec![lease.id]);
                Err(withdrawn)
            }
        }
    }

    /// The ticket's key and queue. An error: the ticket has no lease yet, so its key has no name.
    fn queue_keys(&self, ticket: &Ticket) -> Result<QueueKeys> {
        let queue_keys = QueueKeys::of(self, ticket);
        queue_keys.ok_or_else(|| unsent("the ticket has no lease"))
    }

    /// Keeps the lease of a ticket alive. False: it no longer exists.
    pub(crate) async fn alive(
        &self,
        ticket: &Ticket,
        lease: Lease,
        deadline: BootInstant,
    ) -> Result<bool, RequestError> {
        let sent = self.connection.endpoint.timers.now();
        let kept = self.connection.keep_alive(&[lease.id], deadline).await?;
        let is_alive = kept.contains_key(&lease.id);
        if is_alive {
            self.shared.ticket_leases.kept_alive(ticket, lease.id, sent);
        }
        Ok(is_alive)
    }

    /// The transaction of one attempt, with a lease for its marker if it needs one.
    async fn prepare(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        lease: Lease,
        deadline: BootInstant,
    ) -> Result<TxnRequest> {
        // `try_acquire` gets the lock in this transaction or not at all, so its marker needs the longer lease now.
        // A waiter's marker gets it before the grant is reported.
        let marker = if ask.patience.is_zero() {
            self.marker_lease(ask, lease, deadline).await?
        } else {
            None
        };
        if !ask.delay.is_zero() {
            let ticket_leases = &self.shared.ticket_leases;
            ticket_leases.marking(&ask.ticket, ask.delay);
        }
        Ok(self.transaction(ask, queue_keys, lease.id, marker))
    }

    /// Builds the transaction of one attempt.
    fn transaction(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        lease: i64,
        marker: Option<i64>,
    ) -> TxnRequest {
        let Shared {
            keys,
            ticket_leases,
            ..
        } = &*self.shared;
        let joined = ask
            .downgrade_of
            .as_ref()
            .zip(ticket_leases.joined(&ask.ticket));
        if let Some((writer, joined)) = joined {
            return downgrade::transaction(ask, writer, (keys, queue_keys), joined, lease);
        }
        queue::transaction(ask, queue_keys, lease, marker)
    }

    /// Reads the key that blocks the ticket's own key, which has this creation revision. `None`: its own key has gone.
    async fn predecessor(
        &self,
        queue_keys: &QueueKeys,
        own: i64,
        deadline: BootInstant,
    ) -> Result<Option<QueuePosition>> {
        let look = TxnRequest {
            compare: vec![created(queue_keys.key.as_bytes(), own)],
            success: ops([Op::Range(get(&queue_keys.tokens))]
                .into_iter()
                .chain(queue_keys.ahead(own.saturating_sub(1)))),
            failure: Vec::new(),
        };
        let answer = self.connection.txn(look, deadline).await.map_err(unclear)?;
        let position = || {
            let ahead = queue::latest(answer.responses.get(1..).unwrap_or_default());
            let tokens = found(answer.responses.first());
            queue::waited(queue_keys, ahead, tokens, own, queue::now(&answer))
        };
        answer.succeeded.then(position).transpose()
    }

    /// The token of a ticket that holds the lock. `None`: its key has gone.
    async fn token(
        &self,
        queue_keys: &QueueKeys,
        position: &QueuePosition,
        deadline: BootInstant,
    ) -> Result<Option<i64>> {
        let revision = match position {
            QueuePosition::First(revision) => return Ok(Some(*revision)),
            QueuePosition::Passed(revision) => *revision,
            _ => return Ok(None),
        };
        let txn = TxnRequest {
            compare: vec![created(queue_keys.key.as_bytes(), revision)],
            success: ops([put(&queue_keys.tokens, "", 0)]),
            failure: Vec::new(),
        };
        let answer = self.connection.txn(txn, deadline).await.map_err(unclear)?;
        Ok(answer.succeeded.then(|| queue::now(&answer)))
    }

    /// Turns the answer of an attempt into its result, and starts to watch the key before ours if we wait.
    async fn attempt_from(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        answer: &TxnResponse,
        lease: Lease,
        wake: Option<Wake>,
        deadline: BootInstant,
    ) -> Result<Attempt> {
        let ticket_leases = &self.shared.ticket_leases;
        if answer.succeeded {
            self.record_creation(&ask.ticket, queue::now(answer), queue::now(answer));
        }
        let mut position = decide(ask, queue_keys, answer)?;
        if let QueuePosition::Somewhere(own) = position {
            self.record_creation(&ask.ticket, own, queue::now(answer));
            let Some(found) = self.predecessor(queue_keys, own, deadline).await? else {
                // Our key has gone meanwhile. A retry at once creates it again.
                return Ok(Attempt::held(wake, Duration::ZERO));
            };
            position = found;
        }
        match position {
            QueuePosition::First(revision) | QueuePosition::Passed(revision) => {
                self.record_creation(&ask.ticket, revision, queue::now(answer));
                // The marker must outlive the key before we report the grant. Otherwise the hold could expire without
                // a lock-delay. `try_acquire` has written its marker under a lease that is long enough.
                let marked = ask.delay.is_zero() || answer.succeeded && ask.patience.is_zero();
                if !marked
                    && !self
                        .outlive(ask, queue_keys, lease, revision, deadline)
                        .await?
                {
                    return Ok(Attempt::held(wake, Duration::ZERO));
                }
                if !ask.delay.is_zero() || queue_keys.place.is_some() {
                    ticket_leases.holds(&ask.ticket);
                }
                let Some(token) = self.token(queue_keys, &position, deadline).await? else {
                    return Ok(Attempt::held(wake, Duration::ZERO)); // our key has gone meanwhile
                };
                Ok(Attempt::Acquired(granted(token)))
            }
            QueuePosition::Behind(before, revision) => {
                ticket_leases.taken(&ask.ticket.name);
                if !ask.patience.is_zero() {
                    let ranges = vec![WatchRange::until_deleted(&before.key)];
                    let watcher = &self.shared.watcher;
                    watcher.follow(&queue_keys.key, ranges, revision);
                }
                // A waiter's retry is its keep-alive: if it comes in time, the waiter keeps its place in the queue.
                Ok(Attempt::held(wake, lease.ttl / 3))
            }
            QueuePosition::Nowhere | QueuePosition::Somewhere(_) => {
                ticket_leases.taken(&ask.ticket.name);
                ticket_leases.absent(&ask.ticket, queue::now(answer));
                Ok(Attempt::Held(Wait::default()))
            }
        }
    }
}

/// Reads a ticket's position from the answer to the transaction of an attempt.
fn decide(
    ask: &AttemptRequest,
    queue_keys: &QueueKeys,
    answer: &TxnResponse,
) -> Result<QueuePosition> {
    if ask.downgrade_of.is_some() {
        downgrade::decide(ask, queue_keys, answer)
    } else {
        queue::decide(ask, queue_keys, answer)
    }
}

/// The creation revision of the ticket's key is its fencing token, unless a reader that was a writer has a newer one.
fn granted(revision: i64) -> Grant {
    let token = FencingToken::new(u64::try_from(revision).unwrap_or_default());
    Grant {
        token: Some(token),
        ..Grant::default()
    }
}
