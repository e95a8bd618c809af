//! Keys in the queue of a lock that no lock has made.
//!
//! A queue is a range of keys, and any program can write there. So does each client whose prefix begins with our prefix and
//! the name of the lock. We refuse such a key where it would block a ticket, or would be shown or deleted as a holder.
//! Otherwise a waiter would wait for it without end, and a forced release would delete the data of another program.

use crate::error::{Error, ErrorKind, Result};
use crate::store::etcd::api::{KeyValue, ResponseOp};
use crate::store::etcd::calls::found;
use crate::store::etcd::keys::{Folder, READ, WRITE};

/// Bounds the characters of a key in an error.
const MAX_SHOWN: usize = 200;

/// Fails if one of these keys of a queue is foreign.
///
/// # Errors
/// [`ErrorKind::WrongType`]. It names the key, but not its value, which may be a secret.
pub(crate) fn refuse<'a>(
    folder: &Folder,
    kvs: impl IntoIterator<Item = &'a KeyValue>,
) -> Result<()> {
    match kvs.into_iter().find(|kv| !is_of_lock(folder, kv)) {
        Some(kv) => Err(foreign(&kv.key)),
        None => Ok(()),
    }
}

/// As [`refuse`], for the first key in each of these ranges of a queue.
pub(crate) fn refuse_first(folder: &Folder, ranges: &[ResponseOp]) -> Result<()> {
    let firsts = ranges
        .iter()
        .filter_map(|one| found(Some(one))?.kvs.first());
    refuse(folder, firsts)
}

/// Whether a key of this queue belongs to a holder or a waiter, or stands beside such a key.
///
/// All of them have a lease. In the queue, or in the folder of a side, they begin with a hexadecimal number, which `.` and
/// more may follow: a later version may have other suffixes. The number may be longer than the id of a lease: the
/// read-write lock of etcd's experimental recipes has the time there.
fn is_of_lock(folder: &Folder, kv: &KeyValue) -> bool {
    let Some(rest) = kv.key.strip_prefix(&*folder.first) else {
        return false;
    };
    let mut sides = [READ, WRITE].into_iter();
    let id = sides.find_map(|side| rest.strip_prefix(side.as_bytes()));
    let id = id.unwrap_or(rest);
    let number = id.split(|b| *b == b'.').next().unwrap_or_default();
    let is_hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    kv.lease != 0 && !number.is_empty() && number.iter().all(is_hex) && !id.contains(&b'/')
}

fn foreign(key: &[u8]) -> Error {
    let key = String::from_utf8_lossy(key);
    let key: String = key.chars().take(MAX_SHOWN).collect();
    Error::new(ErrorKind::WrongType).because(format!(
        "the key {key} is in the queue of this lock, but it is none of a holder or a waiter. If it is of a client whose \
         prefix begins with the prefix and the name of this lock, give that client another prefix; otherwise use another \
         name, or delete the key if nobody needs it"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::etcd::api::{Done, Op, PutResponse, RangeResponse, RequestOp, TxnResponse};
    use crate::store::etcd::keys::{Keys, marker};
    use crate::store::etcd::queue::{self, QueueKeys};
    use crate::store::{AttemptRequest, LockKind, Name, ReplicaAck, Ticket};
    use crate::types::OwnerMint;

    fn kv(key: impl Into<String>, lease: i64) -> KeyValue {
        KeyValue {
            key: key.into().into_bytes(),
            value: b"secret".to_vec(),
            lease,
            ..KeyValue::default()
        }
    }

    #[test]
    fn keys_of_locks_are_told_from_those_of_others() {
        let (keys, name) = (Keys::new("shop"), Name::new("a").unwrap());
        let folder = keys.folder(&name);
        let kinds = [LockKind::Mutex, LockKind::Read, LockKind::Write];
        let own = kinds.map(|kind| keys.own(&name, kind, 0x1f));
        let beside = [marker(&own[0]), keys.place(&name, 0x1f)];
        let others = [
            "shop/a/694d81417acb5a01", // `etcdctl lock`, and `concurrency.NewMutex`
            "shop/a/read/1732579200123456789", // `recipe.NewRWMutex`
            "shop/a/1f.later",
        ];
        let others = others.map(str::to_owned);
        for key in own.into_iter().chain(beside).chain(others) {
            assert!(refuse(&folder, [&kv(&*key, 7)]).is_ok(), "{key}");
            assert!(refuse(&folder, [&kv(&*key, 0)]).is_err(), "{key}");
        }
        let nested = Keys::new("shop/a");
        let inner = Name::new("beef").unwrap();
        let inner = [
            nested.own(&inner, LockKind::Mutex, 0x1f),
            nested.own(&inner, LockKind::Read, 0x1f),
            nested.own(&inner, LockKind::Permits(2), 0x1f),
            nested.tokens(&inner),
            nested.mark(&inner, "1f"),
            nested.client_of("1f"),
        ];
        let plain = ["shop/a/x", "shop/a/", "shop/a/read/"];
        for key in inner.into_iter().chain(plain.map(str::to_owned)) {
            let error = refuse(&folder, [&kv(&*key, 7)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType, "{key}");
            let text = error.to_string();
            assert!(text.contains(&key) && !text.contains("secret"), "{text}");
        }
    }

    /// What etcd answers if `only` is the only other key that it has.
    fn answers(ops: &[RequestOp], only: &KeyValue) -> Vec<ResponseOp> {
        let answer = |one: &RequestOp| match &one.op {
            Some(Op::Range(range)) => {
                let inside = range.key <= only.key && only.key < range.range_end;
                Done::Range(RangeResponse {
                    kvs: inside.then(|| only.clone()).into_iter().collect(),
                    ..RangeResponse::default()
                })
            }
            _ => Done::Put(PutResponse::default()),
        };
        let answer = |one| ResponseOp {
            done: Some(answer(one)),
        };
        ops.iter().map(answer).collect()
    }

    #[test]
    fn a_ticket_behind_a_foreign_key_is_refused() {
        let details = kv("a/%clients/1f", 7);
        for kind in [LockKind::Mutex, LockKind::Read, LockKind::Write] {
            for patience in [Duration::ZERO, Duration::from_secs(1)] {
                let ticket = Ticket {
                    kind,
                    name: Name::new("a").unwrap(),
                    owner: OwnerMint::new().fresh(),
                };
                let ask = AttemptRequest {
                    patience,
                    ..AttemptRequest::once(ticket, Duration::from_secs(1), ReplicaAck::Off)
                };
                let keys = QueueKeys::named(&Keys::new(""), &ask.ticket, 0x1f, false);
                let txn = queue::transaction(&ask, &keys, 7, None);
                // A ticket that waits writes its key, any other one finds that the queue is not empty.
                let succeeded = !patience.is_zero();
                let ops = if succeeded {
                    &txn.success
                } else {
                    &txn.failure
                };
                let answer = TxnResponse {
                    succeeded,
                    responses: answers(ops, &details),
                    ..TxnResponse::default()
                };
                let refused = queue::decide(&ask, &keys, &answer).err();
                let refused = refused.map(|error| error.kind());
                assert_eq!(refused, Some(ErrorKind::WrongType), "{kind:?} {patience:?}");
            }
        }
    }

    #[test]
    fn the_key_in_the_error_is_escaped_and_bounded() {
        let folder = Keys::new("").folder(&Name::new("a").unwrap());
        let key = format!("a/\u{1b}[31m{}", "x".repeat(9000));
        let text = refuse(&folder, [&kv(key, 0)]).unwrap_err().to_string();
        assert!(
            text.contains(r"a/\u{1b}[31mx") && text.len() < 1000,
            "{text}"
        );
    }
}
