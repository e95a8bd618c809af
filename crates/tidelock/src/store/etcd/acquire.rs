//! Acquires a lock, in the way of `concurrency.Mutex`: each ticket has its own key, and the oldest key holds the lock.
//!
//! `try_acquire` writes its key only if the queue is empty. A waiter always writes its key, and has a place in the
//! queue from then on. An existing key is left unchanged, so a retry is idempotent.

use std::time::Duration;

use futures_util::future::join;

use crate::error::{Error, ErrorKind, Result};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{KeyValue, Op, TxnRequest, TxnResponse};
use crate::store::etcd::calls::{
    created, found, get, is_empty, newest, oldest, ops, put, whole_seconds,
};
use crate::store::etcd::errors::{RequestError, unclear, unexpected, unsent, untouched};
use crate::store::etcd::keys;
use crate::store::etcd::keys::Folder;
use crate::store::etcd::ticket_leases::Lease;
use crate::store::{Attempt, AttemptRequest, BootInstant, Grant, Ticket, Wait, Wake};
use crate::types::FencingToken;

/// A ticket's position in the queue.
pub(crate) enum QueuePosition {
    /// First in the queue: it holds the lock. With the creation revision of its key.
    First(i64),
    /// Behind another key. With that key, and the revision at which it was still there.
    Behind(KeyValue, i64),
    /// It has no key, and none was wanted: `try_acquire` on a lock that is taken.
    Nowhere,
    /// Its key is in the queue, but another request must find the key before it. With its creation revision.
    Somewhere(i64),
}

/// The lock algorithm: reads a ticket's position from the answer to [`Etcd::transaction`]. `known` is the creation
/// revision of its key that the transaction used, if it used one.
pub(crate) fn decide(
    ask: &AttemptRequest,
    queue_keys: &QueueKeys,
    answer: &TxnResponse,
    known: Option<i64>,
) -> Result<QueuePosition> {
    let now = now(answer);
    let range = |n: usize| found(answer.responses.get(n));
    let is_own = |kv: &&KeyValue| queue_keys.owns(&kv.key);
    if answer.succeeded && ask.patience.is_zero() {
        return Ok(QueuePosition::First(now));
    }
    if answer.succeeded {
        let first = range(1).and_then(|first| first.kvs.first());
        if first.as_ref().is_some_and(is_own) {
            return Ok(QueuePosition::First(now));
        }
        let last = range(2).map(|last| &*last.kvs).unwrap_or_default();
        let before = last.iter().find(|kv| !is_own(kv));
        let before = before.ok_or_else(|| {
            unexpected("the key of the ticket is not the first, but the reply has no earlier key")
        })?;
        return Ok(QueuePosition::Behind(before.clone(), now));
    }
    let own = range(0).ok_or_else(|| unexpected("the reply lacks the key of the ticket"))?;
    let first = range(1).and_then(|first| first.kvs.first());
    let Some(own) = own.kvs.first() else {
        return if ask.patience.is_zero() {
            Ok(QueuePosition::Nowhere)
        } else {
            Err(unexpected(
                "the comparison found the key of the ticket, but the read did not return it",
            ))
        };
    };
    if own.value != ask.ticket.owner.text().as_bytes() {
        return Err(Error::new(ErrorKind::WrongType)
            .because("a key of another client has the name of this ticket's key"));
    }
    if first.as_ref().is_some_and(is_own) {
        return Ok(QueuePosition::First(own.create_revision));
    }
    match range(2).and_then(|before| before.kvs.first()) {
        Some(before) if known == Some(own.create_revision) => {
            Ok(QueuePosition::Behind(before.clone(), now))
        }
        _ => Ok(QueuePosition::Somewhere(own.create_revision)),
    }
}

impl Etcd {
    /// See [`Backend::attempt`](crate::store::Backend::attempt).
    pub(crate) async fn acquire(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let deadline = self.connection.deadline();
        let ticket_leases = &self.shared.ticket_leases;
        let mut wake = None;
        if self.looks_taken(ask, deadline).await? {
            return Ok(Attempt::Held(Wait::default()));
        }
        // We retry in two cases: the reused lease has expired, and the key with it, or the key is under the lease of
        // another attempt of this ticket.
        for round in 0..3 {
            let (lease, fresh) = self.lease_for_ticket(ask, round == 0, deadline).await?;
            let queue_keys = self.queue_keys(&ask.ticket)?;
            // We arm the wake before we send. Otherwise a release between the answer and the arming would be missed.
            if ask.wants_wake() && wake.is_none() {
                wake = Some(self.shared.signals.arm(&queue_keys.key));
            }
            // `try_acquire` gets the lock in this transaction or not at all, so its marker needs the longer lease now.
            // A waiter's marker gets it before the grant is reported.
            let marker = if ask.patience.is_zero() {
                self.marker_lease(ask, lease, deadline).await?
            } else {
                None
            };
            let txn = self.transaction(ask, &queue_keys, lease.id, marker);
            if !ask.delay.is_zero() {
                ticket_leases.marking(&ask.ticket, ask.delay);
            }
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
                // The key may exist, but without a keep-alive its lease may be shorter than requested.
                (Err(failure), Ok(_)) => return Err(unclear(failure)),
                (Ok(false), Ok(_)) => {}
                (Ok(true), Ok(answer)) => {
                    if let Some(id) = record_key_lease(&answer, ask, lease) {
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
        let asked = self.connection.txn(txn, deadline);
        // An older lease may expire at any time, so a grant under it counts only after a successful keep-alive.
        if fresh {
            return (Ok(true), asked.await);
        }
        if ask.armed_by.is_some() || !self.shared.ticket_leases.is_taken(&ask.ticket.name) {
            // Run both concurrently: whichever executes first, both key and lease exist at that instant.
            return join(self.alive(lease, deadline), asked).await;
        }
        // The lock was just taken, so a refusal is likely. A refusal needs no keep-alive, and we save that request.
        let answer = asked.await;
        let first = |answer| is_first(ask, queue_keys, answer);
        if answer.as_ref().is_ok_and(first) {
            return (self.alive(lease, deadline).await, answer);
        }
        (Ok(true), answer)
    }

    /// For a `try_acquire` of a lock that was just found taken: reads the queue before it writes. A read costs the
    /// server much less than a refused transaction.
    async fn looks_taken(&self, ask: &AttemptRequest, deadline: BootInstant) -> Result<bool> {
        let (ticket_leases, name) = (&self.shared.ticket_leases, &ask.ticket.name);
        if !ask.patience.is_zero()
            || !ticket_leases.is_taken(name)
            || ticket_leases.lease(&ask.ticket)?.is_some()
        {
            return Ok(false);
        }
        let first = oldest(&self.shared.keys.folder(name));
        let first = self
            .connection
            .range(first, deadline)
            .await
            .map_err(untouched)?;
        if first.count > 0 {
            ticket_leases.taken(name);
        }
        Ok(first.count > 0)
    }

    /// The lease of a ticket, and whether it was granted by this call. With `reuse`, a spare lease may be taken.
    async fn lease_for_ticket(
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

    async fn alive(&self, lease: Lease, deadline: BootInstant) -> Result<bool, RequestError> {
        let kept = self.connection.keep_alive(&[lease.id], deadline).await?;
        Ok(kept.contains_key(&lease.id))
    }

    /// Builds the transaction of one attempt; [`decide`] reads its answer.
    fn transaction(
        &self,
        ask: &AttemptRequest,
        queue_keys: &QueueKeys,
        lease: i64,
        marker: Option<i64>,
    ) -> TxnRequest {
        let (QueueKeys { key, folder }, owner) = (queue_keys, ask.ticket.owner.text());
        let own = put(key, owner, lease);
        let marks = !ask.delay.is_zero();
        let marker = marks.then(|| put(&queue_keys.marker(), owner, marker.unwrap_or(lease)));
        let first = Op::Range(oldest(folder));
        if ask.patience.is_zero() {
            return TxnRequest {
                compare: vec![is_empty(folder)],
                success: ops([own].into_iter().chain(marker)),
                failure: ops([Op::Range(get(key)), first]),
            };
        }
        let mut look = vec![Op::Range(get(key)), first.clone()];
        if let Some(revision) = self.shared.ticket_leases.revision(&ask.ticket) {
            look.push(Op::Range(newest(folder, 1, revision.saturating_sub(1))));
        }
        TxnRequest {
            compare: vec![created(key.as_bytes(), 0)],
            // The newest key is now our own, so we also request the one before it. With a lock-delay our own marker may
            // be among them, so we request one more.
            success: ops([
                own,
                first,
                Op::Range(newest(folder, 2 + i64::from(marks), 0)),
            ]
            .into_iter()
            .chain(marker)),
            failure: ops(look),
        }
    }

    /// Reads the key before the ticket's own key, which has this creation revision.
    async fn predecessor(
        &self,
        queue_keys: &QueueKeys,
        own: i64,
        deadline: BootInstant,
    ) -> Result<Option<QueuePosition>> {
        let before = newest(&queue_keys.folder, 1, own - 1);
        let before = self.connection.range(before, deadline).await;
        let before = before.map_err(unclear)?;
        let revision = before.header.as_ref().map_or(0, |header| header.revision);
        let key = before.kvs.into_iter().next();
        Ok(key.map(|key| QueuePosition::Behind(key, revision)))
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
            ticket_leases.created(&ask.ticket, now(answer));
        }
        let mut position = decide(ask, queue_keys, answer, ticket_leases.revision(&ask.ticket))?;
        if let QueuePosition::Somewhere(own) = position {
            ticket_leases.created(&ask.ticket, own);
            let Some(behind) = self.predecessor(queue_keys, own, deadline).await? else {
                // The key before ours has gone meanwhile. A retry at once finds ours to be the first.
                return Ok(Attempt::held(wake, Duration::ZERO));
            };
            position = behind;
        }
        match position {
            QueuePosition::First(revision) => {
                ticket_leases.created(&ask.ticket, revision);
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
                if !ask.delay.is_zero() {
                    ticket_leases.holds(&ask.ticket);
                }
                Ok(Attempt::Acquired(granted(revision)))
            }
            QueuePosition::Behind(before, revision) => {
                ticket_leases.taken(&ask.ticket.name);
                if !ask.patience.is_zero() {
                    self.shared
                        .watcher
                        .follow(&queue_keys.key, &before.key, revision);
                }
                // A waiter's retry is its keep-alive: if it comes in time, the waiter keeps its place in the queue.
                Ok(Attempt::held(wake, lease.ttl / 3))
            }
            QueuePosition::Nowhere | QueuePosition::Somewhere(_) => {
                ticket_leases.taken(&ask.ticket.name);
                ticket_leases.absent(&ask.ticket);
                Ok(Attempt::Held(Wait::default()))
            }
        }
    }
}

/// A ticket's own key, and the key range of the queue it belongs to.
pub(crate) struct QueueKeys {
    pub(crate) key: String,
    pub(crate) folder: Folder,
}

impl QueueKeys {
    /// `None`: the ticket never had a lease, so no request can have created a key.
    pub(crate) fn of(store: &Etcd, ticket: &Ticket) -> Option<Self> {
        let id = store.shared.ticket_leases.id(ticket)?;
        Some(Self {
            key: store.shared.keys.own(&ticket.name, id),
            folder: store.shared.keys.folder(&ticket.name),
        })
    }

    /// The key of the ticket's lock-delay marker.
    pub(crate) fn marker(&self) -> String {
        keys::marker(&self.key)
    }

    /// Whether a key is the ticket's own key or its marker.
    pub(crate) fn owns(&self, key: &[u8]) -> bool {
        keys::marked(key).unwrap_or(key) == self.key.as_bytes()
    }
}

/// The lease of the ticket's key, if the key exists. It differs from the lease of this attempt if another attempt of
/// the ticket wrote the key; then the other lease needs the keep-alive.
fn record_key_lease(answer: &TxnResponse, ask: &AttemptRequest, lease: Lease) -> Option<i64> {
    if answer.succeeded {
        return Some(lease.id);
    }
    let own = found(answer.responses.first())?.kvs.first()?;
    (own.value == ask.ticket.owner.text().as_bytes()).then_some(own.lease)
}

/// Whether the answer shows the ticket's key as the oldest.
fn is_first(ask: &AttemptRequest, queue_keys: &QueueKeys, answer: &TxnResponse) -> bool {
    let first = found(answer.responses.get(1)).and_then(|first| first.kvs.first());
    let alone = answer.succeeded && ask.patience.is_zero();
    alone || first.is_some_and(|kv| queue_keys.owns(&kv.key))
}

/// The creation revision of the ticket's key is its fencing token.
fn granted(revision: i64) -> Grant {
    let token = FencingToken::new(u64::try_from(revision).unwrap_or_default());
    Grant {
        token: Some(token),
        ..Grant::default()
    }
}

/// The store's revision after the transaction.
fn now(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}
