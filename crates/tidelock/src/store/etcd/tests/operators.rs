//! What operators see and do: one lock, the list of locks, forced releases, details of clients, and findings.

mod forced_releases;

use std::time::SystemTime;

use super::*;
use crate::snapshot::{Mode, Severity};

const KEY: &str = "shop/stock/1a";

#[tokio::test]
async fn a_lock_is_shown_with_its_holder_its_token_and_its_waiters() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert!(!seen.is_locked());
    assert_eq!((seen.token, seen.waiters), (None, Some(0)));
    let holds = ask(LockKind::Mutex);
    let token = etcd.grants(&holds).await;
    for _ in 0..2 {
        etcd.refuses(&patient(LockKind::Mutex)).await;
    }
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.token.map(FencingToken::get), Some(token));
    assert_eq!((seen.waiters, seen.expires_in), (Some(2), Some(LEASE)));
    assert_eq!(seen.holders.len(), 1);
    let holder = &seen.holders[0];
    assert_eq!(holder.owner, holds.ticket.owner.text());
    assert_eq!((holder.mode, holder.holds), (Mode::Exclusive, 1));
    server.set(|settings| settings.left = Some(0));
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.expires_in, Some(Duration::from_millis(1)));
}

/// The lease ends between the look and the question how much is left of it.
#[tokio::test]
async fn a_hold_that_has_just_ended_is_not_shown() {
    for kind in [LockKind::Mutex, LockKind::Read] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        etcd.grants(&ask(kind)).await;
        let ends = Turn::Meanwhile(|model| {
            model.end_lease(FIRST);
        });
        server.in_turn("LeaseTimeToLive", &[ends]);
        let seen = etcd.inspect(&stock()).await.unwrap();
        assert!(!seen.is_locked(), "{kind:?}");
    }
}

#[tokio::test]
async fn markers_of_a_delay_are_neither_holders_nor_waiters() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let delayed = |patience| AttemptRequest {
        patience,
        delay: Duration::from_secs(10),
        ..ask(LockKind::Mutex)
    };
    etcd.grants(&delayed(Duration::ZERO)).await;
    etcd.refuses(&delayed(LIMIT)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters), (1, Some(1)));
    server.etcd(|model| model.end_lease(FIRST));
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters), (0, Some(1)));
    // A forced release ends the delay too.
    assert!(etcd.force_release(&stock(), None).await.unwrap());
    assert!(server.key("shop/stock/1a.delay").is_none());
    assert!(etcd.force_release(&stock(), None).await.unwrap());
    assert!(server.keys().is_empty());
    assert!(!etcd.force_release(&stock(), None).await.unwrap());
}

#[tokio::test]
async fn the_sides_of_a_lock_are_shown_with_the_newest_token() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holders[0].mode, Mode::Write);
    let reader = AttemptRequest {
        downgrade_of: Some(writer.ticket.owner.clone()),
        lease: LEASE / 2,
        ..ask(LockKind::Read)
    };
    let token = etcd.grants(&reader).await;
    etcd.release(&writer.ticket).await.unwrap();
    etcd.refuses(&patient(LockKind::Write)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters), (1, Some(1)));
    assert_eq!(seen.holders[0].mode, Mode::Read);
    assert_eq!(seen.expires_in, Some(LEASE / 2));
    assert_eq!(seen.token.map(FencingToken::get), Some(token));
}

#[tokio::test]
async fn the_lease_of_several_readers_that_ends_first_is_shown() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    for lease in [LEASE, LEASE / 2, LEASE * 2] {
        let reader = AttemptRequest {
            lease,
            ..ask(LockKind::Read)
        };
        etcd.grants(&reader).await;
    }
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.holders.len(), 3);
    assert_eq!(seen.expires_in, Some(LEASE / 2));
    assert_eq!(seen.token.map(FencingToken::get), Some(4));
}

#[tokio::test]
async fn a_token_is_verified_by_the_present_holder_only() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let name = stock();
    let is_good = async |token| etcd.verify(&name, FencingToken::new(token)).await.unwrap();
    assert!(!is_good(1).await);
    let writer = ask(LockKind::Write);
    let first = etcd.grants(&writer).await;
    assert!(is_good(first).await && !is_good(first + 1).await);
    let reader = AttemptRequest {
        downgrade_of: Some(writer.ticket.owner.clone()),
        ..ask(LockKind::Read)
    };
    let second = etcd.grants(&reader).await;
    assert!(is_good(second).await);
    etcd.release(&reader.ticket).await.unwrap();
    etcd.release(&writer.ticket).await.unwrap();
    assert!(!is_good(second).await && !is_good(first).await);
    let next = etcd.grants(&ask(LockKind::Mutex)).await;
    assert!(is_good(next).await && !is_good(second).await);
    server.in_turn("Txn", &[Turn::Lost]);
    let error = etcd.verify(&name, FencingToken::new(next)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_forced_release_takes_the_lock_from_the_holder_that_was_seen_only() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let name = stock();
    let first = ask(LockKind::Mutex);
    etcd.grants(&first).await;
    let seen = etcd.inspect(&name).await.unwrap();
    etcd.release(&first.ticket).await.unwrap();
    let freed = etcd.force_release(&name, Some(&seen)).await.unwrap();
    assert!(!freed, "nobody holds it");
    let second = ask(LockKind::Mutex);
    etcd.grants(&second).await;
    let freed = etcd.force_release(&name, Some(&seen)).await.unwrap();
    assert!(!freed, "somebody else holds it");
    let seen = etcd.inspect(&name).await.unwrap();
    let freed = etcd.force_release(&name, Some(&seen)).await.unwrap();
    assert!(freed && server.keys().is_empty());
    let kept = etcd.renews(&second.ticket, LEASE).await;
    assert!(matches!(kept, Renewed::Gone), "{kept:?}");
}

#[tokio::test]
async fn a_forced_release_of_readers_that_were_seen_leaves_a_waiting_writer() {
    for sees in [false, true] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        let name = stock();
        for _ in 0..2 {
            etcd.grants(&ask(LockKind::Read)).await;
        }
        let writer = patient(LockKind::Write);
        etcd.refuses(&writer).await;
        let seen = etcd.inspect(&name).await.unwrap();
        let seen = Some(&seen).filter(|_| sees);
        assert!(etcd.force_release(&name, seen).await.unwrap());
        assert_eq!(
            server.keys(),
            ["shop/stock/read/1c.downgrade", "shop/stock/write/1c"]
        );
        etcd.grants(&writer).await;
        // Its place goes with it.
        let seen = etcd.inspect(&name).await.unwrap();
        let seen = Some(&seen).filter(|_| sees);
        assert!(etcd.force_release(&name, seen).await.unwrap());
        assert!(server.keys().is_empty());
    }
}

/// A reader comes between the look and the deletion, again and again.
#[tokio::test]
async fn a_forced_release_of_what_was_seen_gives_up_if_the_queue_always_changes() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Read)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    let turns = |number: usize| {
        let rewritten = Turn::Meanwhile(|model| {
            let kv = model.key("shop/stock/read/1a").unwrap().clone();
            model.put_by_hand("shop/stock/write/beef", "x", kv.lease);
            model.delete_by_hand("shop/stock/write/beef");
            model.put_by_hand("shop/stock/write/beef", "x", kv.lease);
        });
        let rounds = std::iter::repeat_n([Turn::Usual, rewritten], number);
        rounds.flatten().collect::<Vec<_>>()
    };
    server.in_turn("Txn", &turns(8));
    let error = etcd.force_release(&stock(), Some(&seen)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(server.key("shop/stock/read/1a").is_some());
    server.in_turn("Txn", &turns(7));
    assert!(etcd.force_release(&stock(), Some(&seen)).await.unwrap());
}

#[tokio::test]
async fn a_forced_release_without_a_reply_is_not_reported_as_done() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    // The look itself changes nothing.
    server.in_turn("Range", &[Turn::Lost]);
    let error = etcd.force_release(&stock(), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    server.in_turn("Txn", &[Turn::Lost]);
    let error = etcd.force_release(&stock(), Some(&seen)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(server.key(KEY).is_some());
    server.in_turn("Txn", &[Turn::Lost]);
    let error = etcd.force_release(&stock(), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
}

#[tokio::test]
async fn a_foreign_key_is_neither_shown_nor_deleted_as_a_holder() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let seen = Snapshot::free("stock");
    for key in ["shop/stock/readme", "shop/stock/read/me"] {
        server.etcd(|model| model.put_by_hand(key, "", 0));
        let shown = etcd.inspect(&stock()).await.unwrap_err();
        let forced = etcd.force_release(&stock(), None).await.unwrap_err();
        let seen = etcd.force_release(&stock(), Some(&seen)).await.unwrap_err();
        for error in [shown, forced, seen] {
            assert_eq!(error.kind(), ErrorKind::WrongType, "{key}");
        }
        server.etcd(|model| model.delete_by_hand(key));
    }
}

#[tokio::test]
async fn all_pages_together_list_each_held_lock() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let lease = server.etcd(|model| model.grant(60));
    server.etcd(|model| {
        for number in 0..600 {
            model.put_by_hand(&format!("shop/lock {number}/1f"), "owner", lease);
        }
        model.put_by_hand("shop/by chance/1f", "", 0);
    });
    let (mut names, mut after) = (Vec::new(), None::<String>);
    for _ in 0..3 {
        let page = etcd.list("*", after.as_deref()).await.unwrap();
        names.extend(page.names);
        after = page.next;
    }
    assert_eq!(after, None);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 600);
    let page = etcd.list("lock 59?", Some("596")).await.unwrap();
    assert_eq!(page.names.len(), 6);
    let page = etcd.list("*", Some("no cursor")).await.unwrap();
    assert_eq!((page.names.len(), page.next), (0, None));
}

#[tokio::test]
async fn the_details_of_a_client_are_shown_until_it_removes_them() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let mint = OwnerMint::new();
    let holds = Ticket {
        owner: mint.fresh(),
        ..ticket(LockKind::Mutex)
    };
    let holds = AttemptRequest::once(holds, LEASE, ReplicaAck::Off);
    etcd.grants(&holds).await;
    let info = ClientInfo::new("web-1", 7, "shop", SystemTime::UNIX_EPOCH);
    let client = mint.client();
    etcd.announce(client, Some(&info)).await.unwrap();
    let key = format!("shop/%clients/{}", client.as_str());
    assert_eq!(server.ttl_of(&key), Some(3600));
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.holders[0].client.as_ref(), Some(&info));
    etcd.announce(client, None).await.unwrap();
    assert!(server.key(&key).is_none());
    assert_eq!(server.leases(), [FIRST]);
    // There is nothing to remove any more.
    etcd.announce(client, None).await.unwrap();
    assert_eq!(server.connections("LeaseRevoke").len(), 1);
    // Details that could not be written leave no lease.
    server.in_turn("Put", &[NO_LEADER]);
    assert!(etcd.announce(client, Some(&info)).await.is_err());
    etcd.settles().await;
    assert_eq!(server.leases(), [FIRST]);
}

/// The findings, each with its severity and what was found.
async fn findings(etcd: &Etcd) -> Vec<(Severity, String)> {
    let findings = etcd.diagnose().await.unwrap().into_iter();
    findings
        .map(|finding| (finding.severity, finding.to_string()))
        .collect()
}

#[tokio::test]
async fn the_doctor_tells_what_weakens_the_locks_of_a_cluster() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let good = findings(&etcd).await;
    assert!(
        good.iter().all(|(how, _)| *how == Severity::Good),
        "{good:?}"
    );
    assert!(
        good.iter().any(|(_, text)| text.contains("1 may fail")),
        "{good:?}"
    );
    etcd.settles().await;
    assert!(server.leases().is_empty());
    assert!(server.keys().is_empty());
    let change: [(fn(&mut settings::Settings), _, _); 6] = [
        (|it| it.members = 1, Severity::Advice, "1 in the cluster"),
        (|it| it.members = 4, Severity::Advice, "4 in the cluster"),
        (|it| it.hides_members = true, Severity::Advice, "cannot see"),
        (|it| it.shortest = 31, Severity::Advice, "31 s"),
        (
            |it| it.alarms = vec!["NOSPACE".to_owned()],
            Severity::Danger,
            "NOSPACE",
        ),
        (
            |it| it.is_read_only = true,
            Severity::Danger,
            "may not write",
        ),
    ];
    for (change, severity, told) in change {
        server.set(|it| *it = settings::Settings::default());
        server.set(change);
        let found = findings(&etcd).await;
        let bad: Vec<_> = found
            .iter()
            .filter(|(how, _)| *how != Severity::Good)
            .collect();
        assert_eq!(bad.len(), 1, "{found:?}");
        assert_eq!(bad[0].0, severity);
        assert!(bad[0].1.contains(told), "{found:?}");
    }
}
