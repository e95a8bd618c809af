//! Renewals, and the lease task.

use super::*;
use crate::store::BootInstant;
use crate::store::tests::log::ThreadLog;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::types::Drift;

/// The read of a node in the queue of `stock`.
const EXISTS: &str = "exists /tidelock/stock/_c_";

async fn renewed(store: &ZooKeeper, ask: &AttemptRequest) -> Result<Renewed> {
    let mut each = store.renew(&[renewal(ask)]).await?;
    assert_eq!(each.len(), 1);
    Ok(each.remove(0))
}

/// How long the bond of this session is proved.
fn proved(session: &ZooKeeperSession, now: BootInstant) -> Duration {
    let exact = Drift {
        share: 0.0,
        fixed: Duration::ZERO,
    };
    session.bond().until(&exact).since(now)
}

#[tokio::test]
async fn a_renewal_extends_the_hold_and_the_proof_of_its_session() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    skip(LEASE / 2).await;
    let session = store.0.connection.current().unwrap();
    let now = store.0.timers.now();
    assert!(proved(&session, now) <= LEASE / 2);
    let renewed = renewed(&store, &held).await.unwrap();
    assert!(matches!(renewed, Renewed::Kept), "{renewed:?}");
    assert!(proved(&session, now) >= LEASE);
    assert!(store.0.registry.next_check() >= now + LEASE);
}

#[tokio::test]
async fn a_hold_whose_node_is_another_one_now_is_lost() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    let path = server.path_of(&held.ticket);
    server.tree(|tree| tree.remove(&path));
    for is_made_again in [false, true] {
        if is_made_again {
            server.tree(|tree| tree.make_for(FOREIGN, &path, b""));
        }
        let renewed = renewed(&store, &held).await.unwrap();
        assert!(matches!(renewed, Renewed::Gone), "{renewed:?}");
    }
    let renewed = renewed(&store, &ask(LockKind::Mutex)).await.unwrap();
    assert!(matches!(renewed, Renewed::Gone), "it holds nothing");
}

/// The leader answers the `sync`. Another server, cut off from it, still answers reads for a while.
#[tokio::test]
async fn a_renewal_without_an_answer_of_the_leader_proves_nothing() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    let session = store.0.connection.current().unwrap();
    let now = store.0.timers.now();
    let proof = proved(&session, now);
    server.on("sync", ServerFault::Refuses(THROTTLED));
    let error = renewed(&store, &held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    server.on("sync", ServerFault::LosesReply);
    let error = unanswered(&server, "sync", renewed(&store, &held)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(proved(&session, now), proof);
    let kept = renewed(&store, &held).await.unwrap();
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
}

#[tokio::test]
async fn a_read_that_is_refused_fails_the_renewal_of_one_lock() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let [one, two] = [LockKind::Read; 2].map(ask);
    granted(&store, &one).await;
    granted(&store, &two).await;
    server.on(EXISTS, ServerFault::Refuses(THROTTLED));
    let each = store.renew(&[renewal(&one), renewal(&two)]).await.unwrap();
    let failed = matches!(each[..], [Renewed::Failed(_), Renewed::Kept]);
    assert!(failed, "{each:?}");
}

#[tokio::test]
async fn a_failure_in_one_session_leaves_the_locks_of_another_alone() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let long = ask(LockKind::Read);
    let short = AttemptRequest {
        lease: LEASE / 2,
        ..ask(LockKind::Read)
    };
    granted(&store, &long).await;
    granted(&store, &short).await;
    let [of_long, of_short] =
        [&store.0.connection, &store.0.short[0]].map(|it| it.current().unwrap().id());
    assert_eq!(server.sessions().len(), 2);
    let batch = [renewal(&long), renewal(&short), renewal(&long)];
    server.on_session(of_short, "sync", ServerFault::Refuses(THROTTLED));
    let each = store.renew(&batch).await.unwrap();
    let alone = matches!(each[..], [Renewed::Kept, Renewed::Failed(_), Renewed::Kept]);
    assert!(alone, "{each:?}");
    server.on_session(of_long, "sync", ServerFault::Refuses(THROTTLED));
    let each = store.renew(&batch).await.unwrap();
    let alone = matches!(
        each[..],
        [Renewed::Failed(_), Renewed::Kept, Renewed::Failed(_)]
    );
    assert!(alone, "{each:?}");
}

#[tokio::test]
async fn a_hold_that_nobody_renews_ends_with_its_lease() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    granted(&store, &held).await;
    let path = server.path_of(&held.ticket);
    // While this process lives, nobody else deletes the node.
    server.on("delete", ServerFault::Refuses(THROTTLED));
    server.on("delete", ServerFault::Refuses(NO_AUTH));
    skip(LEASE).await;
    server.hears("delete", 3).await;
    let delete = format!("delete {path}");
    assert!(server.heard("delete").iter().all(|text| *text == delete));
    assert!(server.children(STOCK).is_empty());
    let gone = renewed(&store, &held).await.unwrap();
    assert!(matches!(gone, Renewed::Gone), "{gone:?}");
}

/// The base path is made with the first lock, and the leader says so.
#[tokio::test]
async fn an_answer_of_the_leader_counts_although_it_does_not_know_the_path() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let held = ask(LockKind::Mutex);
    server.on("sync", ServerFault::Refuses(NO_NODE));
    granted(&store, &held).await;
    server.on("sync", ServerFault::Refuses(NO_NODE));
    let kept = renewed(&store, &held).await.unwrap();
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
}

/// Its name is unknown, so it is found by its prefix.
#[tokio::test]
async fn a_node_whose_create_has_no_reply_ends_too_and_its_ticket_is_in_doubt() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| tree.make(STOCK, b""));
    server.on(CREATE, ServerFault::LosesReply);
    let lost = patient(LockKind::Mutex);
    unanswered(&server, CREATE, failed(&store, &lost)).await;
    server.on("delete", ServerFault::Refuses(THROTTLED));
    skip(LEASE * 2 + LIMIT).await;
    server.hears("delete", 2).await;
    assert!(server.children(STOCK).is_empty());
    let reply = store.attempt(&lost).await;
    assert!(reply.in_doubt && reply.outcome.unwrap_err().outcome_unknown());
}

#[tokio::test]
async fn a_session_is_proved_anew_before_it_could_expire_and_not_more_often() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let session = store.0.connection.current().unwrap();
    let (now, second) = (store.0.timers.now(), Duration::from_secs(1));
    // Nodes live for 30 s of the session timeout of 40 s at least.
    session.confirmed(now);
    assert_eq!(session.next_keep_alive(now + LEASE), BootInstant::FAR);
    let longer = now + LEASE + second;
    assert_eq!(session.next_keep_alive(longer), now + second * 15);
    session.asked(now + second * 14);
    let next = session.next_keep_alive(longer);
    assert_eq!(next, now + second * 14 + LEASE / 8);
    session.confirmed(now + second * 10);
    session.confirmed(now + second * 5);
    assert_eq!(
        session.next_keep_alive(longer + second * 10),
        now + second * 25
    );
}

/// The server grants half of the session timeout that the lease needs.
#[tokio::test]
async fn a_hold_longer_than_its_session_is_kept_by_requests_to_the_leader() {
    let server = TestServer::start().await;
    server.grants(20_000);
    let store = server.store().await;
    let bond = granted(&store, &ask(LockKind::Read)).await.bond;
    let bond = bond.expect("a session");
    granted(&store, &ask(LockKind::Read)).await;
    let session = store.0.connection.current().unwrap();
    let second = Duration::from_secs(1);
    let syncs = server.heard("sync /tidelock").len();
    for round in 1..=2 {
        skip(second * 8).await;
        let now = store.0.timers.now();
        server.hears("sync /tidelock", syncs + round).await;
        in_time(async {
            while proved(&session, now) < second * 14 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let heard = server.heard("sync /tidelock").len();
        assert_eq!(heard, syncs + round, "one for both");
    }
    assert!(bond.is_connected() && !bond.is_severed());
}

/// The server writes requests to its disk that it refuses, too. Somebody must hear that the lock stays taken.
#[tokio::test]
async fn a_delete_that_is_refused_for_good_is_told_of_once_and_repeated_ever_more_seldom() {
    const REFUSALS: usize = 8;

    for is_known in [true, false] {
        let log = ThreadLog::start();
        let server = TestServer::start().await;
        let store = server.store().await;
        server.tree(|tree| tree.make(STOCK, b""));
        let late = patient(LockKind::Mutex);
        if is_known {
            granted(&store, &late).await;
        } else {
            server.on(CREATE, ServerFault::LosesReply);
            unanswered(&server, CREATE, failed(&store, &late)).await;
        }
        for _ in 0..REFUSALS {
            server.on("delete", ServerFault::Refuses(NO_AUTH));
        }
        let session = store.0.connection.current().unwrap();
        let (over, second) = (LEASE * 2 + LIMIT, Duration::from_secs(1));
        let start = store.0.timers.now();
        skip(over).await;
        in_time(async {
            while server.heard("delete").len() <= REFUSALS {
                skip(Duration::from_millis(50)).await;
                // Deletes that were due are sent before it.
                session.client.sync("/tidelock").await.unwrap();
            }
        })
        .await;
        // The last two of the eight pauses alone take four seconds.
        let lasted = store.0.timers.now().since(start);
        assert!(lasted > over + second * 3, "{lasted:?}");
        assert!(server.children(STOCK).is_empty());
        assert_eq!(log.count("could not be deleted"), 1, "{is_known}");
    }
}
