//! Renewal: one stream keeps all leases of a batch alive, and concurrently one transaction reads their keys.
//!
//! The read is necessary because a key can be deleted while its lease lives on: by an operator, or by `force_release`.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::error::{Error, ErrorKind, Result};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{KeyValue, Op, TxnRequest, TxnResponse};
use crate::store::etcd::calls::{created, found, get, is_under, ops, put, says, whole_seconds};
use crate::store::etcd::errors::{RequestError, unexpected, untouched};
use crate::store::etcd::queue::QueueKeys;
use crate::store::etcd::ticket_leases::Lease;
use crate::store::{BootInstant, BoxFuture, Renewal, Renewed, Ticket};

/// Bounds the keys that one transaction reads. etcd allows 128 operations by default, and fewer if its operator says so.
const MAX_KEYS_PER_TXN: usize = 100;

/// What was seen of the key of one hold. `Ok(None)`: a key that the hold needs does not exist.
type SeenKey = Result<Option<KeyValue>>;

impl Etcd {
    /// Renews a batch; the results have the same order.
    pub(crate) async fn renew_batch(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let deadline = self.connection.deadline();
        // Concurrently: the parts share the deadline, and one whose keys are refused takes several round trips.
        let parts = batch.chunks(MAX_KEYS_PER_TXN);
        let renewed = join_all(parts.map(|part| self.keep_some(part, deadline))).await;
        let lengths = batch.chunks(MAX_KEYS_PER_TXN).map(<[Renewal]>::len);
        joined(lengths.zip(renewed), Renewed::Failed)
    }

    async fn keep_some(&self, batch: &[Renewal], deadline: BootInstant) -> Result<Vec<Renewed>> {
        let ticket_leases = &self.shared.ticket_leases;
        let places = batch.iter().map(|one| QueueKeys::of(self, &one.ticket));
        let places: Vec<Option<QueueKeys>> = places.collect();
        let lease = |one: &Renewal| ticket_leases.lease(&one.ticket).ok().flatten();
        let leases: Vec<Option<Lease>> = batch.iter().map(lease).collect();
        let own: Vec<&QueueKeys> = places.iter().flatten().collect();
        let (alive, seen) = join(
            self.begin_anew(batch, &leases, deadline),
            self.see(&own, deadline),
        )
        .await;
        let (alive, mut seen) = (alive?, seen?.into_iter());
        let mut answers = Vec::with_capacity(batch.len());
        for (n, one) in batch.iter().enumerate() {
            let key = match places[n] {
                // `seen` only has entries for tickets that can have a key.
                Some(_) => seen
                    .next()
                    .unwrap_or_else(|| Err(unexpected("the reply has too few keys"))),
                None => Ok(None),
            };
            let kept = leases[n].and_then(|lease| alive.get(&lease.id));
            let length = kept.map(|kept| kept.as_ref().copied().map_err(same));
            let fate = key
                .and_then(|key| Ok(self.fate(one, key.as_ref(), leases[n], length.transpose()?)));
            answers.push(match fate {
                Ok(HoldFate::Kept) => Renewed::Kept,
                Ok(HoldFate::Gone) => Renewed::Gone,
                Ok(HoldFate::Elsewhere) => elsewhere(),
                Ok(HoldFate::TooShort(old)) => self.lengthen(one, old, deadline).await,
                Err(error) => Renewed::Failed(error),
            });
        }
        Ok(answers)
    }

    /// Keeps the leases of a batch alive, those of markers first. If the stream breaks midway, a key whose marker was not
    /// renewed would get too short a lock-delay. Returns the leases that exist, as [`keep_apart`](Self::keep_apart) does.
    async fn begin_anew(
        &self,
        batch: &[Renewal],
        leases: &[Option<Lease>],
        deadline: BootInstant,
    ) -> Result<HashMap<i64, Result<Duration>>> {
        let ticket_leases = &self.shared.ticket_leases;
        let markers = batch
            .iter()
            .flat_map(|one| ticket_leases.markers(&one.ticket));
        let markers: Vec<i64> = markers.collect();
        let in_doubt = batch.iter().flat_map(|one| {
            let ids = ticket_leases.in_doubt(&one.ticket).into_iter();
            ids.map(move |id| (&one.ticket, id))
        });
        let in_doubt: Vec<(&Ticket, i64)> = in_doubt.collect();
        let leases = leases.iter().flatten().map(|lease| lease.id);
        let leases = in_doubt.iter().map(|(_, id)| *id).chain(leases);
        let ids: Vec<i64> = markers.iter().copied().chain(leases).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let alive = self.keep_apart(&ids, deadline).await;
        let alive = alive.map_err(RequestError::error)?;
        for lost in markers.iter().filter(|id| !alive.contains_key(id)) {
            tracing::warn!(
                lease = lost,
                "the lease of the lock-delay has expired; if this hold ends without a release, there is no delay"
            );
        }
        for (ticket, id) in in_doubt {
            // The server refuses whatever would use a lease that has ended.
            if !alive.contains_key(&id) {
                ticket_leases.ended(ticket, id);
            }
        }
        Ok(alive)
    }

    /// Keeps leases alive, in their order. Returns those that exist, each with its time to live, or with the refusal of the
    /// server.
    ///
    /// Since 3.7 the server refuses to keep a lease alive if the user may no longer write a key that is under it, and the stream
    /// ends there. All locks of the batch would be lost with that one. So each half of a refused stream is sent again by
    /// itself, one after the other because of their order. It may be repeated: it only makes the leases longer.
    fn keep_apart<'a>(
        &'a self,
        ids: &'a [i64],
        deadline: BootInstant,
    ) -> BoxFuture<'a, Result<HashMap<i64, Result<Duration>>, RequestError>> {
        Box::pin(async move {
            let timers = &self.connection.endpoint.timers;
            let failure = match self.connection.keep_alive(ids, deadline).await {
                Ok(alive) => return Ok(alive.into_iter().map(|(id, ttl)| (id, Ok(ttl))).collect()),
                Err(failure) => failure,
            };
            if !failure.may_concern_a_part() || timers.now() >= deadline {
                return Err(failure);
            }
            if let [id] = ids {
                return Ok(HashMap::from([(*id, Err(failure.error()))]));
            }
            let (some, others) = ids.split_at(ids.len() / 2);
            let mut all = self.keep_apart(some, deadline).await?;
            all.extend(self.keep_apart(others, deadline).await?);
            Ok(all)
        })
    }

    /// Reads the keys of some holds, in order. Fails only if none of them could be read.
    ///
    /// The server refuses a transaction as a whole: because of one key that the user may no longer read, or of more keys than
    /// its `--max-txn-ops` allows. All locks of the batch would be lost with that one, although their leases are kept alive.
    /// So each half of a refused transaction is read again by itself. It is a read, so it may be repeated.
    fn see<'a>(
        &'a self,
        places: &'a [&'a QueueKeys],
        deadline: BootInstant,
    ) -> BoxFuture<'a, Result<Vec<SeenKey>>> {
        Box::pin(async move {
            let timers = &self.connection.endpoint.timers;
            match self.see_at_once(places, deadline).await {
                Err(failure)
                    if places.len() > 1
                        && failure.may_concern_a_part()
                        && timers.now() < deadline => {}
                seen => return seen.map_err(RequestError::error),
            }
            let (some, others) = places.split_at(places.len() / 2);
            let halves = join(self.see(some, deadline), self.see(others, deadline));
            let (seen, also) = halves.await;
            joined([(some.len(), seen), (others.len(), also)], Err)
        })
    }

    /// Reads the keys of some holds in one transaction.
    async fn see_at_once(
        &self,
        places: &[&QueueKeys],
        deadline: BootInstant,
    ) -> Result<Vec<SeenKey>, RequestError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let look = TxnRequest {
            success: ops(places.iter().map(|place| Op::Range(place.hold()))),
            ..TxnRequest::default()
        };
        let seen = self.transact(look, deadline).await?;
        let keys = places.iter().enumerate().map(|(n, place)| -> SeenKey {
            let range = found(seen.responses.get(n));
            let range = range.ok_or_else(|| unexpected("the reply lacks a key"))?;
            Ok(place.held(&range.kvs).cloned())
        });
        Ok(keys.collect())
    }

    /// Decides the result of one renewal from its key and its lease.
    fn fate(
        &self,
        one: &Renewal,
        key: Option<&KeyValue>,
        lease: Option<Lease>,
        length: Option<Duration>,
    ) -> HoldFate {
        let ticket_leases = &self.shared.ticket_leases;
        let Some(key) = key.filter(|key| self.is_own(&one.ticket, key)) else {
            return HoldFate::Gone;
        };
        let Some(lease) = lease.filter(|lease| lease.id == key.lease) else {
            ticket_leases.record_key_lease(&one.ticket, key.lease);
            return HoldFate::Elsewhere;
        };
        match length {
            None => HoldFate::Gone,
            Some(length) if length < one.lease => HoldFate::TooShort(lease),
            Some(_) => HoldFate::Kept,
        }
    }

    /// Whether this is still the ticket's key. One that was created again has lost its place in the queue, and the hold with
    /// it.
    fn is_own(&self, ticket: &Ticket, key: &KeyValue) -> bool {
        let known = self.shared.ticket_leases.revision(ticket);
        key.value == ticket.owner.text().as_bytes()
            && known.is_none_or(|known| known == key.create_revision)
    }

    /// Gives a hold a longer lease. A lease's length is fixed, so the key moves from its lease `old` to a new one; it keeps
    /// its place in the queue.
    async fn lengthen(&self, one: &Renewal, old: Lease, deadline: BootInstant) -> Renewed {
        let moved = self.move_key(&one.ticket, (old.id, one.lease), deadline);
        moved.await.unwrap_or_else(Renewed::Failed)
    }

    /// Moves a ticket's keys from the lease `old` to new leases.
    async fn move_key(
        &self,
        ticket: &Ticket,
        (old, length): (i64, Duration),
        deadline: BootInstant,
    ) -> Result<Renewed> {
        let ticket_leases = &self.shared.ticket_leases;
        let new = self.lease(ticket, length, deadline).await?;
        let keys = QueueKeys::of(self, ticket);
        let keys = keys.ok_or_else(|| unexpected("the hold has no key"))?;
        let (markers, delay) = (ticket_leases.markers(ticket), ticket_leases.delay(ticket));
        let marker = if delay.is_zero() {
            None
        } else {
            Some(self.new_marker_lease(ticket, new, delay, deadline).await?)
        };
        let own_place = keys.place.is_some();
        let leases = (old, new.id, marker);
        let all = self.move_to(ticket, &keys, leases, own_place);
        let mut answer = self.send_move(ticket, all, deadline).await?;
        if !answer.succeeded && own_place && ticket_leases.is_followed(ticket) {
            // A reader may have taken over the place of this writer. Then the place stays where it is.
            let own = self.move_to(ticket, &keys, leases, false);
            answer = self.send_move(ticket, own, deadline).await?;
        }
        let needless: Vec<i64> = if answer.succeeded {
            [old].into_iter().chain(markers).collect()
        } else {
            [new.id].into_iter().chain(marker).collect()
        };
        for id in &needless {
            ticket_leases.ended(ticket, *id);
        }
        self.revoke_in_background(needless);
        if answer.succeeded {
            return Ok(Renewed::Kept);
        }
        let key = found(answer.responses.first()).and_then(|range| range.kvs.first());
        let key = key.filter(|key| self.is_own(ticket, key) && key.lease != old);
        Ok(key.map_or(Renewed::Gone, |key| {
            ticket_leases.record_key_lease(ticket, key.lease);
            elsewhere()
        }))
    }

    /// The transaction that moves a key from the lease `old`, and its marker, to new leases, and with `own_place` the
    /// ticket's place. If it is refused, it reads the key.
    fn move_to(
        &self,
        ticket: &Ticket,
        keys: &QueueKeys,
        (old, new, marker): (i64, i64, Option<i64>),
        own_place: bool,
    ) -> TxnRequest {
        let (key, owner) = (&keys.key, ticket.owner.text());
        // Without the second condition, a move that arrives late would take the key from the lease of a later move, which
        // may be longer.
        let mut compare = vec![says(key, owner), is_under(key, old)];
        if let Some(revision) = self.shared.ticket_leases.revision(ticket) {
            compare.push(created(key.as_bytes(), revision));
        }
        let marker = marker.map(|id| put(&keys.marker(), owner, id));
        let place = keys.place.as_deref().filter(|_| own_place);
        // Without this condition we would take the place from a reader that has taken it over.
        compare.extend(place.map(|place| says(place, owner)));
        let place = place.map(|place| put(place, owner, new));
        TxnRequest {
            compare,
            success: ops([put(key, owner, new)]
                .into_iter()
                .chain(marker)
                .chain(place)),
            failure: ops([Op::Range(get(key))]),
        }
    }

    async fn send_move(
        &self,
        ticket: &Ticket,
        txn: TxnRequest,
        deadline: BootInstant,
    ) -> Result<TxnResponse> {
        let ticket_leases = &self.shared.ticket_leases;
        ticket_leases.sending(ticket)?;
        let moved = self.connection.txn(txn, deadline).await;
        // With an unknown outcome the request still counts as in flight, so a withdrawal revokes the leases.
        if moved.as_ref().err().is_none_or(RequestError::is_certain) {
            ticket_leases.answered(ticket);
        }
        moved.map_err(RequestError::error)
    }

    /// Grants a lease for a key that is not a lock.
    pub(crate) async fn side_lease(&self, ttl: Duration, deadline: BootInstant) -> Result<Lease> {
        self.connection
            .grant(whole_seconds(ttl), deadline)
            .await
            .map_err(untouched)
    }
}

/// The state of one hold, from its key and its lease.
enum HoldFate {
    Kept,
    Gone,
    /// The key is under another lease than we assumed: the outcome of an earlier move was unknown.
    Elsewhere,
    /// The lease that the key is under is too short.
    TooShort(Lease),
}

/// Joins the results of the parts of a batch, each with its number of locks. The error of a part is that of each lock in
/// it. Fails only if all parts did.
fn joined<T>(
    parts: impl IntoIterator<Item = (usize, Result<Vec<T>>)>,
    failed: impl Fn(Error) -> T,
) -> Result<Vec<T>> {
    let (mut all, mut answered, mut first_error) = (Vec::new(), false, None);
    for (length, part) in parts {
        match part {
            Ok(each) => {
                answered = true;
                all.extend(each);
            }
            Err(error) => {
                all.extend((0..length).map(|_| failed(same(&error))));
                first_error = first_error.or(Some(error));
            }
        }
    }
    match first_error {
        Some(error) if !answered => Err(error),
        _ => Ok(all),
    }
}

/// The same error for another lock. It keeps its kind: the caller of `extend` is told it.
fn same(error: &Error) -> Error {
    Error::new(error.kind()).because(error.detail().unwrap_or_default())
}

/// The renewal of a key that is under another lease than we assumed.
fn elsewhere() -> Renewed {
    let why = "its key stood under another lease; asked again it is known";
    Renewed::Failed(Error::new(ErrorKind::OutcomeUnknown).because(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Error {
        Error::new(ErrorKind::Refused).because("permission denied")
    }

    #[test]
    fn a_part_that_failed_fails_for_each_of_its_locks_and_for_no_other() {
        let kept = || Ok(vec![Renewed::Kept]);
        let parts = [(1, kept()), (2, Err(refused())), (1, kept())];
        let all = joined(parts, Renewed::Failed).unwrap();
        let [
            Renewed::Kept,
            Renewed::Failed(one),
            Renewed::Failed(other),
            Renewed::Kept,
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        for error in [one, other] {
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert_eq!(error.detail(), Some("permission denied"));
        }
    }

    #[test]
    fn a_batch_whose_parts_have_all_failed_fails() {
        let late = Error::new(ErrorKind::OutcomeUnknown);
        let parts = [(1, Err(refused())), (1, Err(late))];
        let error = joined(parts, Renewed::Failed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(joined([], Renewed::Failed).unwrap().is_empty());
    }
}
