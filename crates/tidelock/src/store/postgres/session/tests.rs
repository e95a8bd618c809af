//! Session locks at a scripted server.

mod callers;
mod lives;
mod operators;
mod pauses;
mod silences;
mod withdrawals;

use super::*;
use crate::error::ErrorKind;
use crate::store::liveness::tests::gone;
use crate::store::postgres::session::life::{GIVE, SIGN, TAKE};
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::wire::{Cell, ServerAnswer, big, flag, int, row, text};
use crate::store::postgres::tests::{LEASE, LIMIT, env, in_short, once, ticket};
use crate::store::{Attempt, Bond};

/// The state of a store that has no session yet.
pub(super) fn without_session(connection: Connection) -> Shared {
    let env = env();
    Shared {
        connection,
        timers: env.timers,
        background: env.background,
        span: LEASE,
        limit: LIMIT,
        session: Mutex::default(),
        closed: AtomicBool::new(false),
        opening: tokio::sync::Mutex::default(),
        withdrawn: Mutex::default(),
        notify: Arc::default(),
    }
}

/// A part of the statement that asks for the key of a name.
const KEY: &str = "hashtextextended";

/// A part of the statement that looks which session this is.
const MARK: &str = "SELECT pg_backend_pid(), coalesce";

/// A part of the statement that sets the mark of a session.
const SET: &str = "SELECT set_config('tidelock.session'";

/// A statement that the server has cancelled.
const CANCELLED: ServerAnswer = ServerAnswer::Fails("57014");

/// The answer to a statement that ran in our session.
fn ours(second: Cell) -> ServerAnswer {
    row([flag(true), second])
}

/// The answer to a statement that ran in the session of another client.
fn not_ours() -> ServerAnswer {
    row([flag(false), flag(false)])
}

/// The answer about a session with this mark.
fn marked(mark: &str) -> ServerAnswer {
    row([int(7), text(mark), flag(false)])
}

/// A server with sessions of our own, which grants every lock. All names have the same key.
async fn sessions() -> ScriptedDatabase {
    let server = ScriptedDatabase::start().await;
    server.on(MARK, [marked("")]);
    server.on(SET, [row([text("")])]);
    server.on("count(set_config(name", [ours(big(5))]);
    server.on(KEY, [ours(big(42))]);
    for statement in [SIGN, TAKE, GIVE] {
        server.on(statement, [ours(flag(true))]);
    }
    server
}

impl ScriptedDatabase {
    /// The store of session locks at this server.
    async fn session_store(&self) -> Store {
        self.store_with("&locks=session").await
    }

    /// How many requests had this part so far.
    fn count(&self, part: &str) -> usize {
        self.heard(part).len()
    }
}

/// The bond of a grant.
fn bond_of(reply: AttemptReply) -> Bond {
    match reply.outcome.unwrap() {
        Attempt::Acquired(grant) => grant.bond.unwrap(),
        Attempt::Held(wait) => panic!("{wait:?}"),
    }
}

#[tokio::test]
async fn a_session_lock_is_taken_only_if_the_server_says_so() {
    let server = sessions().await;
    let store = server.session_store().await;
    for (answer, told) in [
        (ours(flag(false)), "held"),
        (ServerAnswer::Rows(Vec::new()), "Unsupported"),
        (not_ours(), "Unsupported"),
        (ours(flag(true)), "granted"),
    ] {
        server.on(TAKE, [answer.clone()]);
        let reply = store.front.attempt(&once(LockKind::Mutex)).await;
        assert_eq!(in_short(&reply), told, "{answer:?}");
    }
    // A session that another client may use is given up each time.
    assert_eq!(server.count(SET), 3);
}

/// The server would grant it once more to the same session, and one release would not free it then.
#[tokio::test]
async fn a_second_ticket_of_this_process_is_refused_without_a_request() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    let reply = store.front.attempt(&ask).await;
    assert_eq!(in_short(&reply), "granted");
    let other = AttemptRequest {
        ticket: Ticket {
            name: Name::new("till").unwrap(),
            ..ticket(LockKind::Mutex)
        },
        ..once(LockKind::Mutex)
    };
    let reply = store.front.attempt(&other).await;
    let Ok(Attempt::Held(wait)) = reply.outcome else {
        panic!("another name with the same key");
    };
    let recheck = wait.recheck.unwrap();
    assert!(recheck > LEASE / 2 && recheck <= LEASE, "{recheck:?}");
    // A repeated attempt of the holder.
    let reply = store.front.attempt(&ask).await;
    assert_eq!(in_short(&reply), "granted");
    assert_eq!(server.count(TAKE), 1);
}

#[tokio::test]
async fn a_lock_whose_attempt_failed_on_the_server_is_given_back_at_once() {
    let server = sessions().await;
    let store = server.session_store().await;
    server.on(TAKE, [CANCELLED, ours(flag(true))]);
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "Unavailable");
    server.hears(GIVE, 1).await;
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted");
    assert_eq!(server.count(GIVE), 1);
}

#[tokio::test]
async fn what_an_earlier_attempt_left_is_given_back_before_the_next_one() {
    let server = sessions().await;
    let store = server.session_store().await;
    server.on(TAKE, [CANCELLED, ours(flag(true))]);
    server.on(GIVE, [CANCELLED, CANCELLED, ours(flag(true))]);
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "Unavailable");
    server.hears(GIVE, 1).await;
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "Unavailable");
    assert_eq!((server.count(GIVE), server.count(TAKE)), (2, 1));
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted");
    assert_eq!((server.count(GIVE), server.count(TAKE)), (3, 2));
}

#[tokio::test]
async fn nothing_is_sent_for_a_caller_that_has_left() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = AttemptRequest {
        liveness: gone(),
        ..once(LockKind::Mutex)
    };
    let reply = store.front.attempt(&ask).await;
    assert_eq!(in_short(&reply), "Unavailable");
    assert_eq!(server.count(TAKE), 0);
}

#[tokio::test]
async fn only_the_holder_releases_its_lock() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    let stranger = ticket(LockKind::Mutex);
    let released = store.front.release(&ask.ticket).await;
    assert_eq!(released.unwrap(), Released::NotHeld, "its key is not known");
    store.front.attempt(&ask).await.outcome.unwrap();
    let released = store.front.release(&stranger).await;
    assert_eq!(released.unwrap(), Released::NotHeld);
    assert_eq!(server.count(GIVE), 0);
    let released = store.front.release(&ask.ticket).await;
    assert_eq!(released.unwrap(), Released::Freed);
    let released = store.front.release(&ask.ticket).await;
    assert_eq!(released.unwrap(), Released::NotHeld);
    assert_eq!(server.count(GIVE), 1);
    // It is free: the next one asks the server.
    store
        .front
        .attempt(&once(LockKind::Mutex))
        .await
        .outcome
        .unwrap();
    assert_eq!(server.count(TAKE), 2);
}

#[tokio::test]
async fn a_release_that_failed_is_no_release_and_may_be_repeated() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    store.front.attempt(&ask).await.outcome.unwrap();
    // The second one has found nothing to unlock, but the first one has not told that it unlocked.
    server.on(GIVE, [CANCELLED, ours(flag(false))]);
    let released = store.front.release(&ask.ticket).await;
    assert_eq!(released.unwrap_err().kind(), ErrorKind::Unavailable);
    let reply = store.front.attempt(&ask).await;
    assert_eq!(in_short(&reply), "granted", "after it was given back");
    assert_eq!((server.count(GIVE), server.count(TAKE)), (2, 2));
    server.on(GIVE, [CANCELLED, ours(flag(false))]);
    store.front.release(&ask.ticket).await.unwrap_err();
    let released = store.front.release(&ask.ticket).await;
    assert_eq!(released.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_ticket_that_was_withdrawn_takes_no_lock_later() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    store.front.attempt(&ask).await.outcome.unwrap();
    let withdrawn = store.front.withdraw(&ask.ticket).await;
    assert_eq!(withdrawn.unwrap(), Released::Freed);
    let reply = store.front.attempt(&ask).await;
    assert_eq!(in_short(&reply), "Cancelled");
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted");
    assert_eq!(server.count(TAKE), 2);
}

#[tokio::test]
async fn a_lock_ends_with_its_session() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    let bond = bond_of(store.front.attempt(&ask).await);
    assert!(!bond.is_severed());
    server.on(GIVE, [ServerAnswer::HangsUp]);
    let released = store.front.release(&ask.ticket).await;
    assert_eq!(released.unwrap(), Released::NotHeld);
    while !bond.is_severed() {
        tokio::task::yield_now().await;
    }
    // The next attempt has a session of its own.
    let reply = store.front.attempt(&once(LockKind::Mutex)).await;
    assert_eq!(in_short(&reply), "granted");
    assert_eq!(server.count(SET), 2);
}

#[tokio::test]
async fn a_release_after_the_close_tells_nothing_of_the_lock() {
    let server = sessions().await;
    let store = server.session_store().await;
    let ask = once(LockKind::Mutex);
    let bond = bond_of(store.front.attempt(&ask).await);
    store.front.close().await;
    let released = store.front.release(&ask.ticket).await;
    assert!(released.unwrap_err().outcome_unknown());
    // Both connections: that of the session and that which looked for a pooler.
    server.hears("TERMINATE", 2).await;
    assert!(!bond.is_severed(), "the holders were told before");
}
