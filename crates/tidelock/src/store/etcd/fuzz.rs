//! Fuzz targets: properties that must hold for any answer of etcd and for any URL.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::{Duration, UNIX_EPOCH};

use prost::Message;

use crate::error::Result;
use crate::snapshot::ClientInfo;
use crate::store::etcd::address::Address;
use crate::store::etcd::api::{
    AuthenticateResponse, KeyValue, LeaseResponse, MemberListResponse, RangeResponse,
    StatusResponse, TxnResponse, WatchResponse,
};
use crate::store::etcd::keys::{Keys, stands_beside};
use crate::store::etcd::permit_keys::PermitKeys;
use crate::store::etcd::permit_steps::PermitStep;
use crate::store::etcd::permit_view::PermitView;
use crate::store::etcd::queue::{self, QueueKeys};
use crate::store::etcd::queue_view::KeyQueue;
use crate::store::etcd::{calls, downgrade, inspect};
use crate::store::fuzz::FuzzLogin;
use crate::store::{AttemptRequest, LockKind, Name, ReplicaAck, Ticket};

pub(crate) fn url(text: &str) -> Result<FuzzLogin> {
    let target = Address::parse(text)?;
    let places: Vec<String> = target.places.iter().map(ToString::to_string).collect();
    let shown = format!(
        "{target:?} {places:?} {:?} {}",
        target.places, target.prefix
    );
    Ok(FuzzLogin {
        user: target.user,
        password: target.password,
        shown,
    })
}

/// Decodes `bytes`; the first byte selects the message type.
pub(crate) fn answer(bytes: &[u8]) {
    let Some((&which, bytes)) = bytes.split_first() else {
        return;
    };
    match which % 8 {
        0 => both(TxnResponse::decode(bytes).ok(), stand),
        1 => both(RangeResponse::decode(bytes).ok(), range),
        2 => both(LeaseResponse::decode(bytes).ok(), |lease| {
            calls::seconds(lease.ttl);
        }),
        3 => both(WatchResponse::decode(bytes).ok(), |_| {}),
        4 => both(AuthenticateResponse::decode(bytes).ok(), |_| {}),
        5 => both(StatusResponse::decode(bytes).ok(), |_| {}),
        6 => both(MemberListResponse::decode(bytes).ok(), |_| {}),
        _ => {
            inspect::read(bytes);
            let (host, program) = (
                String::from_utf8_lossy(bytes),
                String::from_utf8_lossy(bytes),
            );
            details(&host, &program);
        }
    }
}

/// Calls `look` on the message, and checks that encoding and decoding returns the same message.
fn both<M: Message + Default + PartialEq>(message: Option<M>, look: impl Fn(&M)) {
    if let Some(message) = message {
        look(&message);
        assert!(M::decode(&*message.encode_to_vec()).is_ok_and(|again| again == message));
    }
}

/// Reads any answer to an attempt. Reading it must not panic.
fn stand(answer: &TxnResponse) {
    let ticket = Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").expect("a name"),
        owner: crate::types::OwnerMint::new().fresh(),
    };
    for patience in [Duration::ZERO, Duration::from_secs(1)] {
        let lease = Duration::from_secs(30);
        let ask = AttemptRequest {
            patience,
            ..AttemptRequest::once(ticket.clone(), lease, ReplicaAck::Off)
        };
        let keys = Keys::new("");
        semaphore(&keys, &ask, answer);
        for kind in [LockKind::Mutex, LockKind::Read, LockKind::Write] {
            let mut ask = ask.clone();
            ask.ticket.kind = kind;
            let own = QueueKeys {
                known: Some(7),
                ..QueueKeys::named(&keys, &ask.ticket, 0x1f, kind.is_read())
            };
            // An invalid answer must be an error, so we ignore the result.
            let _ = queue::decide(&ask, &own, answer);
            let _ = downgrade::decide(&ask, &own, answer);
        }
    }
}

/// Reads any answer as that of a semaphore.
fn semaphore(keys: &Keys, ask: &AttemptRequest, answer: &TxnResponse) {
    let own = PermitKeys::named(keys, &ask.ticket.name, 2, 0x1f);
    let Ok(view) = PermitView::of(&own, answer) else {
        return;
    };
    let queues = !ask.patience.is_zero();
    if let Ok(PermitStep::Holds(held)) = own.step(&view, ask.ticket.owner.text(), queues, 7) {
        assert_eq!(held.owner, ask.ticket.owner.text());
    }
    view.watched_by(&own);
    for entry in view.holders.iter().chain(&view.waiters) {
        assert!(!entry.shown_owner().is_empty());
    }
}

fn range(found: &RangeResponse) {
    let keys = Keys::new("");
    inspect::waiters(found.count);
    if let Some(kv) = inspect::holder(found) {
        assert!(!stands_beside(&kv.key), "a marker holds nothing");
    }
    let queue = KeyQueue::of(&keys.folder(&Name::new("a").expect("a name")), &found.kvs);
    assert!(queue.holders().iter().all(|kv| !stands_beside(&kv.key)));
    queue.waiters();
    inspect::next(found);
    for kv in &found.kvs {
        owner(kv);
        if let Some(name) = keys.name_of(&kv.key) {
            assert!(!name.is_empty());
        }
    }
}

fn owner(kv: &KeyValue) {
    assert!(!inspect::owner(kv).is_empty());
    inspect::read(&kv.value);
}

/// The details of a client with this start time, as they are read back.
pub(crate) fn client(since: u64) -> Option<ClientInfo> {
    inspect::read(format!("host\n7\nshop\n{since}").as_bytes())
}

fn details(host: &str, program: &str) {
    let since = UNIX_EPOCH + Duration::from_millis(5);
    let info = ClientInfo::new(host, 7, program, since).run_by(Some(program));
    let seen = inspect::read(inspect::written(&info).as_bytes()).expect("details are read");
    assert_eq!((seen.pid, seen.since), (7, since));
}

pub(crate) fn name(name: &Name) {
    for prefix in ["", "shop/locks"] {
        let keys = Keys::new(prefix);
        let folder = keys.folder(name);
        let inside = |key: &[u8]| *folder.first <= *key && *key < *folder.end;
        for kind in [LockKind::Mutex, LockKind::Read, LockKind::Write] {
            let key = keys.own(name, kind, 0x1f);
            assert_eq!(keys.name_of(key.as_bytes()).as_deref(), Some(name.as_str()));
            assert!(inside(key.as_bytes()));
            let all = keys.all();
            assert!(all.first.as_slice() <= key.as_bytes());
            assert!(all.end == [0] || key.as_bytes() < all.end.as_slice());
        }
        // The key of a similar name must not be in this queue.
        for other in [
            format!("{}/a", name.as_str()),
            format!("{}0", name.as_str()),
        ] {
            if let Ok(other) = Name::new(other) {
                assert!(!inside(keys.own(&other, LockKind::Mutex, 0x1f).as_bytes()));
            }
        }
        assert!(!inside(keys.client_of("abc").as_bytes()));
    }
}

/// The time to live of a key that is written for this lease.
pub(crate) fn kept(lease: Duration) -> Duration {
    Duration::from_secs(calls::whole_seconds(lease))
}
