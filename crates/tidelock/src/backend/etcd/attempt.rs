//! Acquiring, as `concurrency.Mutex` does it: a key of one's own, and the one that was created first holds.
//!
//! Who only asks writes its key if nobody else has one. Who waits writes it in any case, and has a place in the queue
//! from then on. A key that is there already is left as it is: asked again, nothing counts twice.

use std::time::Duration;

use futures_util::future::join;

use super::Etcd;
use super::api::{KeyValue, Op, TxnRequest, TxnResponse};
use super::calls::{created, found, get, is_empty, newest, oldest, ops, put, whole_seconds};
use super::claims::Lease;
use super::errors::{Trouble, unexpected, unsent};
use super::keys::{self, Folder};
use crate::backend::{Ask, Attempt, Grant, Moment, Ticket, Wait, Wake};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::FencingToken;

/// Where a ticket stands.
pub(super) enum Stand {
    /// First in the queue.
    First(i64),
    /// Behind somebody: on which key to wait, and from which revision on.
    Behind(KeyValue, i64),
    /// It has no place, and did not want one.
    Nowhere,
    /// Its key is there, and who is before it must be asked for.
    Somewhere(i64),
}

impl Etcd {
    /// See [`Backend::attempt`](crate::backend::Backend::attempt).
    pub(super) async fn decide(&self, ask: &Ask) -> Result<Attempt> {
        let deadline = self.link.deadline();
        let claims = &self.shared.claims;
        let waits = !ask.patience.is_zero() && !ask.armed;
        let mut wake = None;
        if self.looks_taken(ask, deadline).await? {
            return Ok(Attempt::Held(Wait::default()));
        }
        // A lease that was there may have ended while we waited, and with it our place; and the key may stand under the
        // lease of another attempt of this ticket.
        for round in 0..3 {
            let (lease, fresh) = self.a_lease(ask, round == 0, deadline).await?;
            let place = self.place(&ask.ticket)?;
            if waits && wake.is_none() {
                wake = Some(self.shared.signals.arm(&place.key));
            }
            // Who only asks has the lock at once, if at all.
            let marker = if ask.patience.is_zero() {
                self.marker_lease(ask, lease, deadline).await?
            } else {
                None
            };
            let txn = self.question(ask, &place, lease.id, marker);
            if !ask.delay.is_zero() {
                claims.marking(&ask.ticket, ask.delay);
            }
            claims.sending(&ask.ticket)?;
            let asked = self.link.txn(txn, deadline);
            let (kept, answer) = if fresh {
                (Ok(true), asked.await)
            } else if ask.armed || !claims.is_taken(&ask.ticket.name) {
                // Side by side: whichever comes first, at that instant both the key and its lease are there.
                join(self.alive(lease, deadline), asked).await
            } else {
                // Most likely it is refused: then there is nothing to be proved.
                let answer = asked.await;
                let first = answer
                    .as_ref()
                    .is_ok_and(|answer| is_first(ask, &place, answer));
                let kept = if first {
                    self.alive(lease, deadline).await
                } else {
                    Ok(true)
                };
                (kept, answer)
            };
            if answer.as_ref().err().is_none_or(Trouble::is_certain) {
                claims.answered(&ask.ticket);
            }
            match (kept, answer) {
                (_, Err(trouble)) if trouble.is_lease_gone() => {}
                (_, Err(trouble)) => return Err(trouble.error()),
                // The key may be there, but nothing proves that it will be for as long as was asked for.
                (Err(trouble), Ok(_)) => return Err(unclear(trouble)),
                (Ok(false), Ok(_)) => {}
                (Ok(true), Ok(answer)) => {
                    if let Some(id) = stands_under(&answer, ask, lease) {
                        claims.stands_under(&ask.ticket, id);
                        if id != lease.id {
                            continue;
                        }
                    }
                    return self
                        .judge(ask, &place, &answer, lease, wake, deadline)
                        .await;
                }
            }
            claims.ended(&ask.ticket, lease.id);
        }
        Err(unsent(
            "the server ends leases as soon as it has granted them",
        ))
    }

    /// Who only asks about a lock that was taken a moment ago looks first: that costs the server much less than a refusal.
    async fn looks_taken(&self, ask: &Ask, deadline: Moment) -> Result<bool> {
        let (claims, name) = (&self.shared.claims, &ask.ticket.name);
        if !ask.patience.is_zero() || !claims.is_taken(name) || claims.lease(&ask.ticket)?.is_some()
        {
            return Ok(false);
        }
        let first = oldest(&self.shared.keys.folder(name));
        let first = self.link.range(first, deadline).await.map_err(untouched)?;
        if first.count > 0 {
            claims.taken(name);
        }
        Ok(first.count > 0)
    }

    /// The lease of a ticket, and whether it has been granted just now.
    async fn a_lease(&self, ask: &Ask, reuse: bool, deadline: Moment) -> Result<(Lease, bool)> {
        let claims = &self.shared.claims;
        if let Some(lease) = claims.lease(&ask.ticket)? {
            return Ok((lease, false));
        }
        if reuse && let Some(lease) = claims.reuse(&ask.ticket, whole_seconds(ask.lease))? {
            return Ok((lease, false));
        }
        let lease = self.lease(&ask.ticket, ask.lease, deadline).await?;
        Ok((lease, true))
    }

    /// A new lease for a ticket, noted before anything is written under it.
    pub(super) async fn lease(
        &self,
        ticket: &Ticket,
        length: Duration,
        deadline: Moment,
    ) -> Result<Lease> {
        // A lease under which nothing stands: whatever becomes of it, no lock is touched.
        let granted = self.link.grant(whole_seconds(length), deadline).await;
        let lease = granted.map_err(untouched)?;
        match self.shared.claims.granted(ticket, lease) {
            Ok(()) => Ok(lease),
            Err(withdrawn) => {
                self.let_go(vec![lease.id]);
                Err(withdrawn)
            }
        }
    }

    /// Where its key is or will be.
    fn place(&self, ticket: &Ticket) -> Result<Place> {
        let place = Place::of(self, ticket);
        place.ok_or_else(|| unsent("a ticket without a lease"))
    }

    async fn alive(&self, lease: Lease, deadline: Moment) -> Result<bool, Trouble> {
        let kept = self.link.keep_alive(&[lease.id], deadline).await?;
        Ok(kept.contains_key(&lease.id))
    }

    fn question(&self, ask: &Ask, place: &Place, lease: i64, marker: Option<i64>) -> TxnRequest {
        let (Place { key, folder }, owner) = (place, ask.ticket.owner.text());
        let own = put(key, owner, lease);
        let marks = !ask.delay.is_zero();
        let marker = marks.then(|| put(&place.marker(), owner, marker.unwrap_or(lease)));
        let first = Op::Range(oldest(folder));
        if ask.patience.is_zero() {
            return TxnRequest {
                compare: vec![is_empty(folder)],
                success: ops([own].into_iter().chain(marker)),
                failure: ops([Op::Range(get(key)), first]),
            };
        }
        let mut look = vec![Op::Range(get(key)), first.clone()];
        if let Some(revision) = self.shared.claims.revision(&ask.ticket) {
            look.push(Op::Range(newest(folder, 1, revision.saturating_sub(1))));
        }
        TxnRequest {
            compare: vec![created(key.as_bytes(), 0)],
            // The last of others is behind one's own.
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

    async fn judge(
        &self,
        ask: &Ask,
        place: &Place,
        answer: &TxnResponse,
        lease: Lease,
        wake: Option<Wake>,
        deadline: Moment,
    ) -> Result<Attempt> {
        let claims = &self.shared.claims;
        if answer.succeeded {
            claims.created(&ask.ticket, now(answer));
        }
        let stand = match stand(ask, place, answer, claims.revision(&ask.ticket))? {
            Stand::Somewhere(own) => {
                claims.created(&ask.ticket, own);
                let before = newest(&place.folder, 1, own - 1);
                let before = self.link.range(before, deadline).await.map_err(unclear)?;
                let revision = before.header.as_ref().map_or(0, |header| header.revision);
                match before.kvs.into_iter().next() {
                    Some(before) => Stand::Behind(before, revision),
                    // It has left meanwhile. Asked again, this one is found to be the first.
                    None => return Ok(held(wake, Duration::ZERO)),
                }
            }
            stand => stand,
        };
        match stand {
            Stand::First(revision) => {
                claims.created(&ask.ticket, revision);
                if !ask.delay.is_zero() {
                    let marked = answer.succeeded && ask.patience.is_zero();
                    if !marked && !self.outlive(ask, place, lease, revision, deadline).await? {
                        return Ok(held(wake, Duration::ZERO));
                    }
                    claims.holds(&ask.ticket);
                }
                let token = u64::try_from(revision).unwrap_or_default();
                Ok(Attempt::Acquired(Grant {
                    token: Some(FencingToken::new(token)),
                    ..Grant::default()
                }))
            }
            Stand::Behind(before, revision) => {
                claims.taken(&ask.ticket.name);
                if !ask.patience.is_zero() {
                    self.shared
                        .watcher
                        .follow(&place.key, &before.key, revision);
                }
                // Whoever asks again in time keeps its place: that is the sign of life of one that waits.
                Ok(held(wake, lease.ttl / 3))
            }
            Stand::Nowhere | Stand::Somewhere(_) => {
                claims.taken(&ask.ticket.name);
                claims.absent(&ask.ticket);
                Ok(Attempt::Held(Wait::default()))
            }
        }
    }
}

/// Where a ticket has its key, and those before it have theirs.
pub(super) struct Place {
    pub(super) key: String,
    pub(super) folder: Folder,
}

impl Place {
    /// `None`: nothing was ever sent that could have made a key.
    pub(super) fn of(store: &Etcd, ticket: &Ticket) -> Option<Self> {
        let id = store.shared.claims.id(ticket)?;
        Some(Self {
            key: store.shared.keys.own(&ticket.name, id),
            folder: store.shared.keys.folder(&ticket.name),
        })
    }

    /// The key of its marker.
    pub(super) fn marker(&self) -> String {
        keys::marker(&self.key)
    }

    /// It is its key, or the marker beside it.
    pub(super) fn owns(&self, key: &[u8]) -> bool {
        keys::marked(key).unwrap_or(key) == self.key.as_bytes()
    }
}

/// The lease of its key, if it is there: the one it was asked with, unless another attempt of this ticket has written it,
/// under a lease of its own. Then it is that one which must be proved.
fn stands_under(answer: &TxnResponse, ask: &Ask, lease: Lease) -> Option<i64> {
    if answer.succeeded {
        return Some(lease.id);
    }
    let own = found(answer.responses.first())?.kvs.first()?;
    (own.value == ask.ticket.owner.text().as_bytes()).then_some(own.lease)
}

/// Its key is the oldest.
fn is_first(ask: &Ask, place: &Place, answer: &TxnResponse) -> bool {
    let first = found(answer.responses.get(1)).and_then(|first| first.kvs.first());
    let alone = answer.succeeded && ask.patience.is_zero();
    alone || first.is_some_and(|kv| place.owns(&kv.key))
}

fn held(wake: Option<Wake>, recheck: Duration) -> Attempt {
    Attempt::Held(Wait {
        wake,
        recheck: Some(recheck),
    })
}

/// Reads the answer to [`Etcd::question`].
pub(super) fn stand(
    ask: &Ask,
    place: &Place,
    answer: &TxnResponse,
    known: Option<i64>,
) -> Result<Stand> {
    let now = now(answer);
    let range = |n: usize| found(answer.responses.get(n));
    let is_own = |kv: &&KeyValue| place.owns(&kv.key);
    if answer.succeeded && ask.patience.is_zero() {
        return Ok(Stand::First(now));
    }
    if answer.succeeded {
        let first = range(1).and_then(|first| first.kvs.first());
        if first.as_ref().is_some_and(is_own) {
            return Ok(Stand::First(now));
        }
        let last = range(2).map(|last| &*last.kvs).unwrap_or_default();
        let before = last.iter().find(|kv| !is_own(kv));
        let before = before.ok_or_else(|| unexpected("a queue without a first"))?;
        return Ok(Stand::Behind(before.clone(), now));
    }
    let own = range(0).ok_or_else(|| unexpected("nothing was looked up"))?;
    let first = range(1).and_then(|first| first.kvs.first());
    let Some(own) = own.kvs.first() else {
        return if ask.patience.is_zero() {
            Ok(Stand::Nowhere)
        } else {
            Err(unexpected("the key is there and is not"))
        };
    };
    if own.value != ask.ticket.owner.text().as_bytes() {
        return Err(Error::new(ErrorKind::WrongType)
            .because("somebody else's key has the name that this ticket's must have"));
    }
    if first.as_ref().is_some_and(is_own) {
        return Ok(Stand::First(own.create_revision));
    }
    match range(2).and_then(|before| before.kvs.first()) {
        Some(before) if known == Some(own.create_revision) => {
            Ok(Stand::Behind(before.clone(), now))
        }
        _ => Ok(Stand::Somewhere(own.create_revision)),
    }
}

/// The revision of the store after the answer.
fn now(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

/// The lock may have been touched.
fn unclear(trouble: Trouble) -> Error {
    let error = trouble.error();
    match error.kind() {
        ErrorKind::Unavailable => {
            Error::new(ErrorKind::OutcomeUnknown).because(error.detail().unwrap_or_default())
        }
        _ => error,
    }
}

/// Whatever became of it, no lock was touched.
pub(super) fn untouched(trouble: Trouble) -> Error {
    let error = trouble.error();
    match error.kind() {
        ErrorKind::OutcomeUnknown => {
            Error::new(ErrorKind::Unavailable).because(error.detail().unwrap_or_default())
        }
        _ => error,
    }
}
