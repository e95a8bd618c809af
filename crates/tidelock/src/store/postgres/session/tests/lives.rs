//! How a session opens, is kept, and ends.

use super::*;
use crate::store::ReplicaAck;
use crate::store::postgres::connect;
use crate::store::postgres::tests::wire::NOTHING;
use crate::store::postgres::tests::{LIMIT, env, skip};

/// Renews the lock of this ticket. In short what is told.
async fn renewed(store: &Store, ticket: &Ticket) -> String {
    let renewal = Renewal {
        ticket: ticket.clone(),
        lease: LEASE,
        wish: ReplicaAck::Off,
    };
    match store.front.renew(&[renewal]).await {
        Ok(each) => format!("{each:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

#[tokio::test]
async fn a_session_that_is_not_ours_alone_or_on_a_standby_is_an_error() {
    let standby = || row([int(7), text(""), flag(true)]);
    for (marks, kind, said) in [
        // An earlier client has left its mark.
        (
            vec![marked("ab")],
            ErrorKind::Unsupported,
            "a pooler shares",
        ),
        (vec![NOTHING], ErrorKind::Unsupported, "a pooler shares"),
        // Another connection leads to no session.
        (
            vec![marked(""), NOTHING],
            ErrorKind::Unsupported,
            "a pooler shares",
        ),
        (vec![standby()], ErrorKind::Unavailable, "name the primary"),
        (
            vec![CANCELLED],
            ErrorKind::Unavailable,
            "the server says no",
        ),
    ] {
        let server = sessions().await;
        server.on(MARK, marks.clone());
        let url = server.url("&locks=session");
        let opened = connect(&url, &env()).await;
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), kind, "{marks:?}: {error}");
        assert!(error.to_string().contains(said), "{marks:?}: {error}");
    }
}

#[tokio::test]
async fn a_mark_that_another_client_would_find_is_taken_away() {
    let server = sessions().await;
    server.on(MARK, [marked(""), NOTHING]);
    let url = server.url("&locks=session");
    let opened = connect(&url, &env()).await;
    opened.unwrap_err();
    let set = server.heard(SET);
    assert!(!set[0].params[0].is_empty());
    assert_eq!(set[1].params, [""]);
    assert!(set[0].connection != set[1].connection);
}

#[tokio::test]
async fn a_session_is_looked_for_from_another_connection_three_times() {
    let server = sessions().await;
    server.session_store().await;
    let looks = server.heard(MARK);
    assert_eq!(looks.len(), 4);
    assert!(
        looks[1..]
            .iter()
            .all(|it| it.connection != looks[0].connection)
    );
    assert_eq!(server.count(SIGN), 3);
    let set = server.heard(SET);
    assert_eq!((set.len(), set[0].connection), (1, looks[0].connection));
}

#[tokio::test]
async fn a_renewal_keeps_only_what_this_session_holds() {
    let server = sessions().await;
    let store = server.session_store().await;
    let (ask, stranger) = (once(LockKind::Mutex), ticket(LockKind::Mutex));
    store.front.attempt(&ask).await.outcome.unwrap();
    assert_eq!(renewed(&store, &ask.ticket).await, "[Kept]");
    assert_eq!(renewed(&store, &stranger).await, "[Gone]");
    assert_eq!(server.count(SIGN), 3 + 2);
    server.on(SIGN, [CANCELLED, not_ours()]);
    assert_eq!(renewed(&store, &ask.ticket).await, "Unavailable");
    // The session is shared, so nothing is held any more.
    assert_eq!(renewed(&store, &ask.ticket).await, "[Gone]");
    assert_eq!(renewed(&store, &ask.ticket).await, "[Gone]");
    assert_eq!(server.count(SIGN), 3 + 4, "there is no session");
}

#[tokio::test]
async fn a_session_shows_life_after_a_third_of_the_silence_that_the_server_bears() {
    let server = sessions().await;
    let _store = server.session_store().await;
    skip(LEASE / 3).await;
    server.hears(SIGN, 4).await;
}

#[tokio::test]
async fn a_session_that_was_silent_for_too_long_is_given_up() {
    let server = sessions().await;
    let store = server.session_store().await;
    let bond = bond_of(store.front.attempt(&once(LockKind::Mutex)).await);
    server.on(SIGN, [ServerAnswer::Silence]);
    skip(LEASE / 3).await;
    server.hears(SIGN, 4).await;
    assert!(!bond.is_severed());
    skip(LEASE).await;
    while !bond.is_severed() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lock_that_is_not_renewed_is_given_back_when_its_lease_ends() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = AttemptRequest {
        lease: LEASE / 10,
        ..once(LockKind::Mutex)
    };
    store.front.attempt(&ask).await.outcome.unwrap();
    skip(LEASE / 20).await;
    // An answer of the server has passed the task of the leases.
    assert_eq!(renewed(&store, &ticket(LockKind::Mutex)).await, "[Gone]");
    assert_eq!(server.count(GIVE), 0);
    skip(LEASE / 20).await;
    server.hears(GIVE, 1).await;
    assert_eq!(renewed(&store, &ask.ticket).await, "[Gone]");
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted");
    assert_eq!(server.count(GIVE), 1);
}

#[tokio::test]
async fn a_lock_that_was_renewed_lasts() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = AttemptRequest {
        lease: LEASE / 10,
        ..once(LockKind::Mutex)
    };
    store.front.attempt(&ask).await.outcome.unwrap();
    assert_eq!(renewed(&store, &ask.ticket).await, "[Kept]");
    skip(LEASE / 5).await;
    assert_eq!(renewed(&store, &ask.ticket).await, "[Kept]");
    assert_eq!(server.count(GIVE), 0);
}

#[tokio::test]
async fn a_session_that_is_not_open_in_time_is_an_error() {
    let server = sessions().await;
    server.on(MARK, [ServerAnswer::Silence]);
    let (url, env) = (server.url("&locks=session"), env());
    let opened = connect(&url, &env);
    let (opened, ()) = tokio::join!(opened, async {
        server.hears(MARK, 1).await;
        skip(LIMIT).await;
    });
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().ends_with("no connection in time"),
        "{error}"
    );
}
