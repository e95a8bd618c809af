//! The queue of a lock: the keys of a ticket, the transaction of an attempt, and what its answer means.
//!
//! The oldest key holds the lock. A reader has its key in a folder of its own, `NAME/read/`, so one range before that
//! folder and one behind it contain all keys that a reader waits for: a reader holds the lock when none of them is older
//! than its own key.

use crate::error::{Error, ErrorKind, Result};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{
    KeyValue, Op, RangeRequest, RangeResponse, ResponseOp, TxnRequest, TxnResponse,
};
use crate::store::etcd::calls::{created, found, get, is_empty, newest, oldest, ops, put};
use crate::store::etcd::errors::unexpected;
use crate::store::etcd::foreign_keys;
use crate::store::etcd::keys::{self, Folder, Keys};
use crate::store::kinds::is_semaphore;
use crate::store::{AttemptRequest, Ticket};

/// A ticket's position in the queue.
pub(crate) enum QueuePosition {
    /// No key in the queue blocks it: it holds the lock. With the creation revision of its key.
    First(i64),
    /// As [`First`](Self::First), but a reader that was a writer has got a token since the key was created.
    Passed(i64),
    /// Behind another key. With that key, and the revision at which it was still there.
    Behind(KeyValue, i64),
    /// It has no key, and none was wanted: `try_acquire` on a lock that is taken.
    Nowhere,
    /// Its key is in the queue, but another request must find the key before it. With its creation revision.
    Somewhere(i64),
}

/// A ticket's own keys, and the key range of the queue it belongs to.
pub(crate) struct QueueKeys {
    pub(crate) key: String,
    pub(crate) folder: Folder,
    /// A writer's second key, which keeps its place for the reader that it may become; of a reader that was a writer, that
    /// writer's. It has the creation revision of the writer's key.
    pub(crate) place: Option<String>,
    pub(crate) reads: bool,
    /// See [`Keys::tokens`].
    pub(crate) tokens: String,
    /// The creation revision of the ticket's key, if the client knew it when these keys were named. A transaction and the
    /// reading of its answer both go by it. If each asked for itself, another attempt of the ticket could learn it in
    /// between, and an answer without the keys ahead would read like one that found none.
    pub(crate) known: Option<i64>,
    /// See [`Keys::number`]. No lock enters a queue with this key.
    pub(crate) number: String,
}

impl QueueKeys {
    /// `None`: the ticket never had a lease, so no request can have created a key.
    pub(crate) fn of(store: &Etcd, ticket: &Ticket) -> Option<Self> {
        let ticket_leases = &store.shared.ticket_leases;
        let id = ticket_leases.id(ticket)?;
        let joined = ticket_leases.joined(ticket).is_some();
        Some(Self {
            known: ticket_leases.revision(ticket),
            ..Self::named(&store.shared.keys, ticket, id, joined)
        })
    }

    /// `joined`: the ticket is a reader that has the place of a writer.
    pub(crate) fn named(keys: &Keys, ticket: &Ticket, id: i64, joined: bool) -> Self {
        let Ticket { kind, name, .. } = ticket;
        let writes = kind.is_read_write() && !kind.is_read();
        Self {
            key: keys.own(name, *kind, id),
            folder: keys.folder(name),
            place: (writes || joined).then(|| keys.place(name, id)),
            reads: kind.is_read(),
            tokens: keys.tokens(name),
            known: None,
            number: keys.number(name),
        }
    }

    /// Whether one of these ranges begins with the number of permits of a semaphore.
    pub(crate) fn are_of_semaphore(&self, ranges: &[ResponseOp]) -> bool {
        let mut firsts = ranges
            .iter()
            .filter_map(|one| found(Some(one))?.kvs.first());
        firsts.any(|kv| kv.key == self.number.as_bytes())
    }

    /// The key of the ticket's lock-delay marker.
    pub(crate) fn marker(&self) -> String {
        keys::marker(&self.key)
    }

    /// Whether a key is one of the ticket's own keys.
    pub(crate) fn owns(&self, key: &[u8]) -> bool {
        let place = self.place.as_deref().map(str::as_bytes);
        keys::marked(key).unwrap_or(key) == self.key.as_bytes() || place == Some(key)
    }

    /// Whether the ticket is a reader that has the place of a writer.
    pub(crate) fn has_joined(&self) -> bool {
        self.reads && self.place.is_some()
    }

    /// Reads the keys that a hold needs. Only a reader that was a writer has two: its own, and the place directly behind
    /// it in the order of the bytes.
    pub(crate) fn hold(&self) -> RangeRequest {
        let mut range = get(&self.key);
        if self.has_joined() {
            range.range_end = format!("{}/", self.key).into_bytes(); // `/` is the byte after `.`
        }
        range
    }

    /// The ticket's key, from the answer to [`hold`](Self::hold). `None`: one of the keys that the hold needs is missing.
    pub(crate) fn held<'a>(&self, kvs: &'a [KeyValue]) -> Option<&'a KeyValue> {
        let of = |key: &str| kvs.iter().find(|kv| kv.key == key.as_bytes());
        let own = of(&self.key)?;
        let place = self.place.as_deref().filter(|_| self.reads);
        let whole = place.is_none_or(|place| of(place).is_some_and(|kv| kv.value == own.value));
        whole.then_some(own)
    }

    /// The ranges with the keys that block this ticket.
    fn blocking(&self) -> Vec<Folder> {
        if self.reads {
            self.folder.without_readers().into()
        } else {
            vec![self.folder.clone()]
        }
    }

    /// Reads the newest key in each of these ranges, created at revision `up_to` or before it; 0 means no bound.
    pub(crate) fn ahead(&self, up_to: i64) -> impl Iterator<Item = Op> + use<> {
        let ranges = self.blocking().into_iter();
        ranges.map(move |range| Op::Range(newest(&range, 1, up_to)))
    }

    /// For a ticket without a key: reads whether the lock is free for it.
    pub(crate) fn first(&self) -> impl Iterator<Item = Op> + use<> {
        let ranges = self.blocking().into_iter();
        ranges.map(|range| Op::Range(oldest(&range)))
    }
}

/// The newest key of several ranges. `None`: they are empty.
pub(crate) fn latest(ranges: &[ResponseOp]) -> Option<&KeyValue> {
    let firsts = ranges
        .iter()
        .filter_map(|one| found(Some(one))?.kvs.first());
    firsts.max_by_key(|kv| kv.create_revision)
}

/// Builds the transaction of one attempt; [`decide`] reads its answer.
pub(crate) fn transaction(
    ask: &AttemptRequest,
    queue_keys: &QueueKeys,
    lease: i64,
    marker: Option<i64>,
) -> TxnRequest {
    let (QueueKeys { key, folder, .. }, owner) = (queue_keys, ask.ticket.owner.text());
    let own = put(key, owner, lease);
    if queue_keys.reads {
        return reader_transaction(ask, queue_keys, own);
    }
    let marks = !ask.delay.is_zero();
    let marker = marks.then(|| put(&queue_keys.marker(), owner, marker.unwrap_or(lease)));
    let place = queue_keys.place.as_deref();
    let place = place.map(|place| put(place, owner, lease));
    let beside = marker.into_iter().chain(place);
    let first = Op::Range(oldest(folder));
    let tokens = Op::Range(get(&queue_keys.tokens));
    if ask.patience.is_zero() {
        return TxnRequest {
            compare: vec![is_empty(folder)],
            success: ops([own].into_iter().chain(beside)),
            failure: ops([Op::Range(get(key)), tokens, first]),
        };
    }
    let mut look = vec![Op::Range(get(key)), tokens, first.clone()];
    if let Some(revision) = queue_keys.known {
        look.extend(queue_keys.ahead(revision.saturating_sub(1)));
    }
    // The newest keys are now our own, so we request one more than we write.
    let mine = 1 + i64::from(marks) + i64::from(queue_keys.place.is_some());
    let last = Op::Range(newest(folder, mine + 1, 0));
    TxnRequest {
        compare: vec![
            created(key.as_bytes(), 0),
            created(queue_keys.number.as_bytes(), 0),
        ],
        success: ops([own, first, last].into_iter().chain(beside)),
        failure: ops(look),
    }
}

/// The same for a reader. `try_acquire` writes its key only if no key blocks a reader.
fn reader_transaction(ask: &AttemptRequest, queue_keys: &QueueKeys, own: Op) -> TxnRequest {
    let look = [&queue_keys.key, &queue_keys.tokens, &queue_keys.number];
    let look = look.into_iter().map(|key| Op::Range(get(key)));
    let blocking: Vec<Op> = match queue_keys.known {
        Some(revision) => queue_keys.ahead(revision.saturating_sub(1)).collect(),
        // They tell a lock that is taken from a queue that is blocked by a foreign key.
        None if ask.patience.is_zero() => queue_keys.first().collect(),
        None => Vec::new(),
    };
    let failure = ops(look.chain(blocking));
    let mut compare = vec![created(queue_keys.key.as_bytes(), 0)];
    let mut success = vec![own];
    if ask.patience.is_zero() {
        compare.extend(queue_keys.blocking().iter().map(is_empty));
    } else {
        compare.push(created(queue_keys.number.as_bytes(), 0));
        success.extend(queue_keys.ahead(0));
    }
    TxnRequest {
        compare,
        success: ops(success),
        failure,
    }
}

/// The lock algorithm: reads a ticket's position from the answer to [`transaction`].
///
/// # Errors
/// [`ErrorKind::WrongType`] if the name is a semaphore, or if a key that no lock has made blocks the ticket.
pub(crate) fn decide(
    ask: &AttemptRequest,
    queue_keys: &QueueKeys,
    answer: &TxnResponse,
) -> Result<QueuePosition> {
    let now = now(answer);
    let range = |n: usize| found(answer.responses.get(n));
    let is_own = |kv: &&KeyValue| queue_keys.owns(&kv.key);
    if answer.succeeded && ask.patience.is_zero() {
        return Ok(QueuePosition::First(now));
    }
    if answer.succeeded && queue_keys.reads {
        let ahead = latest(answer.responses.get(1..).unwrap_or_default());
        return position(queue_keys, ahead, now, now);
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
        return behind(queue_keys, before, now);
    }
    let own = range(0).ok_or_else(|| unexpected("the reply lacks the key of the ticket"))?;
    let Some(own) = own.kvs.first() else {
        // A waiter is refused only if its key is there, or the number of permits of a semaphore.
        let look = answer.responses.get(2..).unwrap_or_default();
        if !ask.patience.is_zero() || queue_keys.are_of_semaphore(look) {
            return Err(is_semaphore());
        }
        foreign_keys::refuse_first(&queue_keys.folder, look)?;
        return Ok(QueuePosition::Nowhere);
    };
    if own.value != ask.ticket.owner.text().as_bytes() {
        return Err(Error::new(ErrorKind::WrongType)
            .because("a key of another client has the name of this ticket's key"));
    }
    let known = queue_keys.known == Some(own.create_revision);
    if queue_keys.reads {
        let ahead = latest(answer.responses.get(3..).unwrap_or_default());
        return if known {
            waited(queue_keys, ahead, range(1), own.create_revision, now)
        } else {
            Ok(QueuePosition::Somewhere(own.create_revision))
        };
    }
    let first = range(2).and_then(|first| first.kvs.first());
    if first.as_ref().is_some_and(is_own) {
        return waited(queue_keys, None, range(1), own.create_revision, now);
    }
    match range(3).and_then(|before| before.kvs.first()) {
        Some(before) if known => behind(queue_keys, before, now),
        _ => Ok(QueuePosition::Somewhere(own.create_revision)),
    }
}

/// The position of a key that was created at revision `own` and has waited since, behind the newest key `ahead` of it that
/// blocks it. `tokens`: the key that remembers a token.
///
/// # Errors
/// [`ErrorKind::WrongType`] if no lock has made the key `ahead`.
pub(crate) fn waited(
    queue_keys: &QueueKeys,
    ahead: Option<&KeyValue>,
    tokens: Option<&RangeResponse>,
    own: i64,
    now: i64,
) -> Result<QueuePosition> {
    let newest = tokens.and_then(|tokens| tokens.kvs.first());
    if ahead.is_none() && newest.is_some_and(|newest| newest.mod_revision > own) {
        return Ok(QueuePosition::Passed(own));
    }
    position(queue_keys, ahead, own, now)
}

/// As [`waited`], of a key that was created just now.
fn position(
    queue_keys: &QueueKeys,
    ahead: Option<&KeyValue>,
    own: i64,
    now: i64,
) -> Result<QueuePosition> {
    match ahead {
        Some(before) => behind(queue_keys, before, now),
        None => Ok(QueuePosition::First(own)),
    }
}

/// The position behind this key. Fails if no lock has made it: nobody may ever delete it.
fn behind(queue_keys: &QueueKeys, before: &KeyValue, now: i64) -> Result<QueuePosition> {
    foreign_keys::refuse(&queue_keys.folder, [before])?;
    Ok(QueuePosition::Behind(before.clone(), now))
}

/// The lease of the ticket's key, if the key exists. It differs from the lease of this attempt if another attempt of
/// the ticket wrote the key; then the other lease needs the keep-alive.
pub(crate) fn record_key_lease(
    answer: &TxnResponse,
    ask: &AttemptRequest,
    lease: i64,
) -> Option<i64> {
    if answer.succeeded {
        return Some(lease);
    }
    let own = own_key(answer)?;
    (own.value == ask.ticket.owner.text().as_bytes()).then_some(own.lease)
}

/// The key with the name of the ticket's key, from the answer to an attempt that was refused.
pub(crate) fn own_key(answer: &TxnResponse) -> Option<&KeyValue> {
    found(answer.responses.first())?.kvs.first()
}

/// The store's revision after the transaction.
pub(crate) fn now(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

#[cfg(test)]
mod tests;
