//! How operators see session locks, and take them from their holders.

use tokio_postgres::types::Type;

use super::*;
use crate::snapshot::{Holder, Severity};
use crate::store::postgres::session::inspect::HOLDER;
use crate::store::postgres::tests::wire::null;
use crate::store::postgres::tests::{LIMIT, skip, stock};

/// A part of the statements that end sessions.
const END: &str = "array_agg(l.pid)";

/// A part of the statement about the server.
const SETTINGS: &str = "server_version";

/// A session that nobody holds the key in.
fn nobody() -> ServerAnswer {
    ours(null(Type::INT4))
}

#[tokio::test]
async fn a_snapshot_shows_the_own_hold_or_the_session_of_somebody_else() {
    let server = sessions().await;
    let store = server.session_store().await;
    server.on(HOLDER, [nobody(), ours(int(9))]);
    let snapshot = store.front.inspect(&stock()).await.unwrap();
    assert!(!snapshot.is_locked());
    let snapshot = store.front.inspect(&stock()).await.unwrap();
    assert_eq!(snapshot.holders, [Holder::new("session 9", 1)]);
    assert_eq!(snapshot.expires_in, None);
    let ask = once(LockKind::Mutex);
    store.front.attempt(&ask).await.outcome.unwrap();
    let snapshot = store.front.inspect(&stock()).await.unwrap();
    let owner = ask.ticket.owner.text();
    assert_eq!(snapshot.holders, [Holder::new(owner, 1)]);
    assert!(snapshot.expires_in.is_some_and(|left| left <= LEASE));
    assert_eq!(server.count(HOLDER), 2);
    assert_eq!(server.count(KEY), 1, "a key is asked for once");
}

#[tokio::test]
async fn a_list_names_the_own_locks_that_fit_the_pattern() {
    let server = sessions().await;
    let store = server.session_store().await;
    store
        .front
        .attempt(&once(LockKind::Mutex))
        .await
        .outcome
        .unwrap();
    for (pattern, names) in [("*", &["stock"][..]), ("st*", &["stock"]), ("x*", &[])] {
        let page = store.front.list(pattern, None).await.unwrap();
        assert_eq!(page.names, names, "{pattern}");
    }
}

#[tokio::test]
async fn keys_of_names_that_nobody_uses_are_remembered() {
    let server = sessions().await;
    let store = server.session_store().await;
    server.on(HOLDER, [nobody()]);
    for name in ["stock", "till", "stock"] {
        let name = Name::new(name).unwrap();
        store.front.inspect(&name).await.unwrap();
    }
    assert_eq!(server.count(KEY), 2);
}

#[tokio::test]
async fn a_force_release_gives_the_own_lock_back() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    store.front.attempt(&ask).await.outcome.unwrap();
    // A session in which another owner was seen, who is not there any more.
    server.on(END, [ours(null(Type::INT4_ARRAY))]);
    let mut seen = Snapshot::free("stock");
    seen.holders = vec![Holder::new("session 9", 1)];
    let forced = store.front.force_release(&stock(), Some(&seen)).await;
    assert!(!forced.unwrap());
    assert_eq!(server.count(GIVE), 0);
    seen.holders = vec![Holder::new(ask.ticket.owner.text(), 1)];
    let forced = store.front.force_release(&stock(), Some(&seen)).await;
    assert!(forced.unwrap());
    assert_eq!((server.count(GIVE), server.count(END)), (1, 1));
    store
        .front
        .attempt(&once(LockKind::Mutex))
        .await
        .outcome
        .unwrap();
    let forced = store.front.force_release(&stock(), None).await;
    assert!(forced.unwrap());
    assert_eq!((server.count(GIVE), server.count(END)), (2, 1));
}

/// A caller that was told that the lock is free could be refused otherwise.
#[tokio::test]
async fn a_force_release_waits_until_the_session_of_the_holder_has_ended() {
    let server = sessions().await;
    let store = server.session_store().await;
    server.on(END, [ours(Cell::Ints(vec![9, 8]))]);
    for (looks, count) in [
        (vec![ours(int(9)), ours(int(8)), nobody()], 3),
        // Another session has it by now.
        (vec![ours(int(7))], 1),
    ] {
        let before = server.count(HOLDER);
        server.on(HOLDER, looks);
        let forced = store.front.force_release(&stock(), None).await;
        assert!(forced.unwrap());
        assert_eq!(server.count(HOLDER) - before, count);
    }
    // From here on nothing means that the lock stays as it was.
    server.on(HOLDER, [CANCELLED]);
    let forced = store.front.force_release(&stock(), None).await;
    assert!(forced.unwrap_err().outcome_unknown());
    server.on(HOLDER, [ours(int(9))]);
    let (before, name) = (server.count(HOLDER), stock());
    let forced = store.front.force_release(&name, None);
    let (forced, ()) = tokio::join!(forced, async {
        server.hears(HOLDER, before + 2).await;
        skip(LIMIT).await;
    });
    assert!(forced.unwrap_err().outcome_unknown());
}

#[tokio::test]
async fn a_force_release_of_what_was_seen_ends_no_other_session() {
    let server = sessions().await;
    let store = server.session_store().await;
    server.on(END, [ours(null(Type::INT4_ARRAY))]);
    let mut seen = Snapshot::free("stock");
    for (owners, list) in [
        (&[][..], "IN (NULL)"),
        (&["c:1", "session x"], "IN (NULL)"),
        (&["session 9", "c:1", "session 8"], "IN (NULL, 9, 8)"),
    ] {
        seen.holders = owners.iter().map(|&owner| Holder::new(owner, 1)).collect();
        let forced = store.front.force_release(&stock(), Some(&seen)).await;
        assert!(!forced.unwrap());
        let asked = server.heard(END);
        let text = &asked[asked.len() - 1].text;
        assert!(text.contains(list), "{owners:?}: {text}");
    }
    store.front.force_release(&stock(), None).await.unwrap();
    let asked = server.heard(END);
    assert!(!asked[asked.len() - 1].text.contains("IN (NULL"));
}

#[tokio::test]
async fn the_doctor_names_a_server_that_bears_any_silence() {
    let server = sessions().await;
    let store = server.session_store().await;
    for (silence, severity) in [
        ("", Severity::Advice),
        ("0", Severity::Advice),
        ("40s", Severity::Good),
    ] {
        let settings = [flag(true), text("17.2"), text(silence)];
        server.on(SETTINGS, [row(settings)]);
        let findings = store.front.diagnose().await.unwrap();
        let found = findings.iter().find(|it| it.subject == "silence").unwrap();
        assert_eq!(found.severity, severity, "{silence}");
        let version = findings.iter().any(|it| it.found == "PostgreSQL 17.2");
        assert!(version, "{findings:?}");
    }
}
