//! Answers to attempts that no model of a server gives at will: about keys that came or went meanwhile, and answers that
//! lack something.

mod transactions;

use std::time::Duration;

use super::*;
use crate::store::etcd::api::{Done, Header};
use crate::store::{LockKind, Name, ReplicaAck};
use crate::types::OwnerMint;

/// A key of the queue `a`, created at this revision.
fn kv(key: &str, value: &str, revision: i64) -> KeyValue {
    KeyValue {
        key: format!("a/{key}").into_bytes(),
        value: value.as_bytes().to_vec(),
        create_revision: revision,
        mod_revision: revision,
        lease: 7,
    }
}

fn range(kvs: Vec<KeyValue>) -> ResponseOp {
    let range = RangeResponse {
        kvs,
        ..RangeResponse::default()
    };
    ResponseOp {
        done: Some(Done::Range(range)),
    }
}

fn answer(succeeded: bool, responses: Vec<ResponseOp>) -> TxnResponse {
    TxnResponse {
        header: Some(Header { revision: 20 }),
        succeeded,
        responses,
    }
}

/// An attempt of a caller that waits, and its keys. `known`: the creation revision of its key.
fn waits(kind: LockKind, known: Option<i64>) -> (AttemptRequest, QueueKeys) {
    let ticket = Ticket {
        kind,
        name: Name::new("a").unwrap(),
        owner: OwnerMint::new().fresh(),
    };
    let second = Duration::from_secs(1);
    let ask = AttemptRequest {
        patience: second,
        ..AttemptRequest::once(ticket, second, ReplicaAck::Off)
    };
    let keys = QueueKeys {
        known,
        ..QueueKeys::named(&Keys::new(""), &ask.ticket, 0x1f, false)
    };
    (ask, keys)
}

/// The position as a text.
fn shown(position: Result<QueuePosition>) -> String {
    match position {
        Ok(QueuePosition::First(revision)) => format!("first {revision}"),
        Ok(QueuePosition::Passed(revision)) => format!("passed {revision}"),
        Ok(QueuePosition::Behind(kv, seen)) => {
            format!("behind {} at {seen}", String::from_utf8_lossy(&kv.key))
        }
        Ok(QueuePosition::Nowhere) => "nowhere".to_owned(),
        Ok(QueuePosition::Somewhere(revision)) => format!("somewhere {revision}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

#[test]
fn a_key_that_was_there_before_is_placed_by_what_is_known_of_it() {
    let ahead = || kv("1e", "other:1", 5);
    let none = || range(Vec::new());
    for (known, first, before, position) in [
        (None, kv("1f", "", 9), None, "first 9"),
        (Some(9), kv("1f", "", 9), None, "first 9"),
        // The answer has the keys ahead only if the revision was known, and only those ahead of that revision.
        (None, ahead(), None, "somewhere 9"),
        (Some(9), ahead(), Some(ahead()), "behind a/1e at 20"),
        (Some(9), ahead(), None, "somewhere 9"),
        (Some(8), ahead(), Some(ahead()), "somewhere 9"),
    ] {
        let (ask, keys) = waits(LockKind::Mutex, known);
        let own = kv("1f", ask.ticket.owner.text(), 9);
        let look = vec![
            range(vec![own]),
            none(),
            range(vec![first]),
            range(before.into_iter().collect()),
        ];
        let told = shown(decide(&ask, &keys, &answer(false, look)));
        assert_eq!(told, position, "{known:?}");
    }
}

#[test]
fn a_reader_holds_the_lock_if_nothing_that_blocks_it_is_older() {
    let token = |revision| range(vec![kv("%tokens/a", "", revision)]);
    let none = || range(Vec::new());
    for (known, tokens, ahead, position) in [
        (None, none(), none(), "somewhere 9"),
        (Some(8), none(), none(), "somewhere 9"),
        (Some(9), none(), none(), "first 9"),
        // A reader that was a writer has got a token since.
        (Some(9), token(10), none(), "passed 9"),
        (Some(9), token(9), none(), "first 9"),
        (
            Some(9),
            token(10),
            range(vec![kv("write/1e", "other:1", 5)]),
            "behind a/write/1e at 20",
        ),
    ] {
        let (ask, keys) = waits(LockKind::Read, known);
        let own = kv("read/1f", ask.ticket.owner.text(), 9);
        let look = vec![range(vec![own]), tokens, none(), none(), ahead];
        let told = shown(decide(&ask, &keys, &answer(false, look)));
        assert_eq!(told, position, "{known:?}");
    }
}

#[test]
fn a_new_key_is_behind_the_newest_that_is_not_its_own() {
    let (ask, keys) = waits(LockKind::Write, None);
    let owner = ask.ticket.owner.text();
    let own = || {
        [
            kv("write/1f", owner, 20),
            kv("read/1f.downgrade", owner, 20),
            kv("write/1f.delay", owner, 20),
        ]
    };
    let put = || ResponseOp { done: None };
    let (old, newer) = (kv("1d", "other:1", 4), kv("1e", "other:2", 5));
    let last = own().into_iter().chain([newer]).collect();
    let behind = answer(true, vec![put(), range(vec![old.clone()]), range(last)]);
    let told = shown(decide(&ask, &keys, &behind));
    assert_eq!(told, "behind a/1e at 20");
    for one in own() {
        let first = answer(
            true,
            vec![put(), range(vec![one.clone()]), range(vec![one])],
        );
        assert_eq!(shown(decide(&ask, &keys, &first)), "first 20");
    }
    // An answer that contradicts itself is never a grant.
    let senseless = answer(true, vec![put(), range(vec![old]), range(own().to_vec())]);
    let told = shown(decide(&ask, &keys, &senseless));
    assert_eq!(told, "OutcomeUnknown");
    let told = shown(decide(&ask, &keys, &answer(false, Vec::new())));
    assert_eq!(told, "OutcomeUnknown");
}

#[test]
fn the_lease_of_a_key_counts_only_if_the_key_is_of_this_ticket() {
    let (ask, _) = waits(LockKind::Mutex, None);
    let seen = |value: &str| answer(false, vec![range(vec![kv("1f", value, 9)])]);
    let own = seen(ask.ticket.owner.text());
    assert_eq!(record_key_lease(&own, &ask, 8), Some(7));
    assert_eq!(record_key_lease(&seen("other:1"), &ask, 8), None);
    let refused = answer(false, vec![range(Vec::new())]);
    assert_eq!(record_key_lease(&refused, &ask, 8), None);
    let written = answer(true, Vec::new());
    assert_eq!(record_key_lease(&written, &ask, 8), Some(8));
}

#[test]
fn a_hold_needs_its_place_only_if_it_was_that_of_a_writer() {
    let (ask, reader) = waits(LockKind::Read, None);
    let owner = ask.ticket.owner.text();
    let key = kv("read/1f", owner, 9);
    assert!(reader.held(std::slice::from_ref(&key)).is_some());
    assert!(reader.hold().range_end.is_empty() && !reader.has_joined());
    let joined = QueueKeys::named(&Keys::new(""), &ask.ticket, 0x1f, true);
    assert!(joined.has_joined());
    assert_eq!(joined.hold().range_end, b"a/read/1f/");
    assert!(joined.held(std::slice::from_ref(&key)).is_none());
    let place = kv("read/1f.downgrade", owner, 5);
    assert!(joined.held(&[key, place]).is_some());
    // A writer holds the lock without its place.
    let (ask, writer) = waits(LockKind::Write, None);
    let key = kv("write/1f", ask.ticket.owner.text(), 9);
    assert!(writer.held(&[key]).is_some() && !writer.has_joined());
}
