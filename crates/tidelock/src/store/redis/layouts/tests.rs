//! Tests of what all layouts share, beside a scripted server.

use tokio::time::Instant;

use super::*;
use crate::error::ErrorKind;
use crate::store::redis::keys;
use crate::store::redis::tests::{LEASE, ONE_REPLICA, ask, patient, ticket};
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::script::Script;
use crate::store::redis::wire::tests::{LIMIT, SILENCE, ScriptedServer, skip};
use crate::store::{Acknowledged, Attempt, Backend, Grant, ReplicaAck, Store};
use crate::types::FencingToken;

/// The error of a server that lets scripts use declared keys only.
const UNDECLARED: &str = "-ERR script tried accessing undeclared key";

/// The callers' side of the store, for its locks or for its plain ones.
fn front(store: &Store, is_plain: bool) -> &dyn Backend {
    match &store.plain {
        Some(plain) if is_plain => &*plain.front,
        _ => &*store.front,
    }
}

fn renewal(ticket: &Ticket, wish: ReplicaAck) -> Renewal {
    Renewal {
        ticket: ticket.clone(),
        lease: LEASE,
        wish,
    }
}

/// The script needs the rest of it.
#[tokio::test]
async fn an_attempt_waits_for_a_mute_subscription_for_a_part_of_the_time() {
    let (mutex, fair) = (patient(LockKind::Mutex), patient(LockKind::Fair));
    let own = keys::fair_channel(&fair.ticket.name, fair.ticket.owner.text());
    let own = format!("SUBSCRIBE {own}");
    let head = "SUBSCRIBE redisson_lock__channel:{stock}:u:7";
    for (ask, mute, part, refusal) in [
        (&mutex, "SUBSCRIBE", LIMIT / 2, "[ 0 5000 ]"),
        // The head of a queue of Redisson.
        (&mutex, head, LIMIT / 4, "[ 0 5000 u:7 ]"),
        (&fair, "SUBSCRIBE", LIMIT / 2, "[ 0 -2 x ]"),
        (&fair, own.as_str(), LIMIT / 4, "[ 0 -2 x ]"),
    ] {
        let server = ScriptedServer::start().await;
        server.answers(mute, &[SILENCE]);
        server.on_script(&scripts::ACQUIRE, refusal);
        server.on_script(&scripts::FAIR_ACQUIRE, refusal);
        let store = server.store().await;
        let begun = Instant::now();
        let silence = async {
            server.hears(mute, 1).await;
            skip(part).await;
        };
        let attempt = store.front.attempt(ask);
        in_time(async { tokio::join!(attempt, silence) }).await;
        let waited = begun.elapsed();
        assert!(waited < LIMIT, "{mute}: {waited:?}");
    }
}

/// Each kind is written in a form of its own, and a script for another form would refuse it or, worse, change it.
#[tokio::test]
async fn each_kind_of_lock_has_scripts_of_its_own() {
    let locks = [&scripts::ACQUIRE, &scripts::RENEW, &scripts::RELEASE];
    let fair = [
        &scripts::FAIR_ACQUIRE,
        &scripts::RENEW,
        &scripts::FAIR_RELEASE,
    ];
    let sides = [
        &scripts::ACQUIRE_SIDE,
        &scripts::RENEW_SIDE,
        &scripts::RELEASE_SIDE,
    ];
    let permits = [
        &scripts::ACQUIRE_PERMITS,
        &scripts::RENEW_PERMITS,
        &scripts::RELEASE_PERMITS,
    ];
    let plain = [
        &scripts::PLAIN_ACQUIRE,
        &scripts::PLAIN_RENEW,
        &scripts::PLAIN_RELEASE,
    ];
    for (kind, is_plain, own) in [
        (LockKind::Mutex, false, locks),
        (LockKind::Fenced, false, locks),
        (LockKind::Spin, false, locks),
        (LockKind::Fair, false, fair),
        (LockKind::FairFenced, false, fair),
        (LockKind::Read, false, sides),
        (LockKind::WriteFenced, false, sides),
        (LockKind::Permits(2), false, permits),
        (LockKind::Mutex, true, plain),
        (LockKind::Fenced, true, plain),
    ] {
        let server = ScriptedServer::start().await;
        let [acquire, renew, release]: [&Script; 3] = own;
        server.on_script(acquire, "[ 1 '7 0 ]");
        server.on_script(renew, "[ 1 ]");
        server.on_script(release, "1");
        let store = server.store().await;
        let front = front(&store, is_plain);
        let ask = ask(kind);
        let AttemptReply { outcome, in_doubt } = front.attempt(&ask).await;
        let Ok(Attempt::Acquired(Grant { token, .. })) = outcome else {
            panic!("{kind:?}: {outcome:?}");
        };
        let token = token.map(FencingToken::get);
        assert_eq!(token, kind.is_fenced().then_some(7));
        assert!(!in_doubt);
        let renewed = front.renew(&[renewal(&ask.ticket, ReplicaAck::Off)]).await;
        assert!(matches!(renewed.unwrap()[..], [Renewed::Kept]), "{kind:?}");
        for released in [front.release(&ask.ticket), front.withdraw(&ask.ticket)] {
            assert_eq!(released.await.unwrap(), Released::Freed, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_grant_stands_once_as_many_replicas_have_it_as_the_policy_wants() {
    for (reached, released, expected) in [
        ("1", "1", Ok(Some((1, 1)))),
        ("0", "1", Err((ErrorKind::Unavailable, false))),
        ("0", "-OOM full", Err((ErrorKind::OutcomeUnknown, true))),
    ] {
        let server = ScriptedServer::start().await;
        server.on("INFO replication", ONE_REPLICA);
        server.on("WAIT 1 ", reached);
        server.on_script(&scripts::ACQUIRE, "1");
        server.on_script(&scripts::RELEASE, released);
        let store = server.store().await;
        let ask = AttemptRequest {
            wish: ReplicaAck::Any,
            ..ask(LockKind::Mutex)
        };
        let AttemptReply { outcome, in_doubt } = store.front.attempt(&ask).await;
        let count = |told: Acknowledged| (told.needed, told.reached);
        let seen = match outcome {
            Ok(Attempt::Acquired(grant)) => Ok(grant.acknowledged.map(count)),
            Ok(Attempt::Held(wait)) => panic!("{wait:?}"),
            Err(error) => {
                let text = error.to_string();
                let is_kept = text.contains("could not be given back");
                assert_eq!(is_kept, in_doubt, "{error}");
                // Its reader learns why.
                assert_eq!(text.contains("OOM full"), in_doubt, "{error}");
                Err((error.kind(), in_doubt))
            }
        };
        assert_eq!(seen, expected);
        // A grant that does not stand is given back, without a tombstone: the same ticket may try again.
        let owner = ask.ticket.owner.text();
        let given_back: Vec<String> = seen
            .is_err()
            .then(|| format!("stock | {owner}"))
            .into_iter()
            .collect();
        assert_eq!(server.calls(&scripts::RELEASE), given_back);
    }
}

#[tokio::test]
async fn replicas_are_not_asked_if_the_policy_wants_none() {
    let server = ScriptedServer::start().await;
    server.on("INFO replication", ONE_REPLICA);
    server.on_script(&scripts::ACQUIRE, "1");
    server.on_script(&scripts::RENEW, "[ 1 ]");
    let store = server.store().await;
    let ask = ask(LockKind::Mutex);
    let granted = store.front.attempt(&ask).await.outcome.unwrap();
    assert!(matches!(
        granted,
        Attempt::Acquired(Grant {
            acknowledged: None,
            ..
        })
    ));
    let renewed = store
        .front
        .renew(&[renewal(&ask.ticket, ReplicaAck::Off)])
        .await;
    assert!(matches!(renewed.unwrap()[..], [Renewed::Kept]));
    assert_eq!(server.heard("WAIT"), [""; 0]);
}

/// A replica connects after the client. `Any` trusts for a few seconds that there is none; the stricter policies must not.
#[tokio::test]
async fn a_strict_policy_looks_for_new_replicas_at_each_grant() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE, "1");
    server.on_script(&scripts::RELEASE, "1");
    let store = server.store().await;
    server.on("INFO replication", ONE_REPLICA);
    for (wish, stands) in [(ReplicaAck::Any, true), (ReplicaAck::Majority, false)] {
        let ask = AttemptRequest {
            wish,
            ..ask(LockKind::Mutex)
        };
        let outcome = store.front.attempt(&ask).await.outcome;
        assert_eq!(outcome.is_ok(), stands, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_renewal_counts_once_the_replicas_have_it() {
    for (reached, stands) in [("1", true), ("0", false)] {
        let server = ScriptedServer::start().await;
        server.on("INFO replication", ONE_REPLICA);
        server.on("WAIT 1 ", reached);
        server.on_script(&scripts::RENEW, "[ 1 0 ]");
        let store = server.store().await;
        let batch =
            [ReplicaAck::Any, ReplicaAck::Any].map(|wish| renewal(&ticket(LockKind::Mutex), wish));
        let renewed = store.front.renew(&batch).await.unwrap();
        match &renewed[..] {
            [Renewed::Kept, Renewed::Gone] => assert!(stands),
            [Renewed::Failed(error), Renewed::Gone] => {
                assert!(!stands && error.kind() == ErrorKind::Unavailable, "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_forced_release_is_that_of_the_layout() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::FORCE_RELEASE, "[ 1 ]");
    server.on_script(&scripts::PLAIN_FORCE_RELEASE, "0");
    let store = server.store().await;
    let name = Name::new("stock").unwrap();
    assert!(store.front.force_release(&name, None).await.unwrap());
    let plain = store.plain.unwrap();
    assert!(!plain.front.force_release(&name, None).await.unwrap());
}

/// The scripts only learn that the key has another type. The error says what it is, so that the user finds the program.
#[tokio::test]
async fn the_error_for_a_key_that_is_no_lock_says_what_the_key_is() {
    let foreign = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for (is, text, said) in [
        ("+list", "nil", "the key is a list (WRONGTYPE)"),
        (
            "+string",
            "'42",
            "the key is a semaphore or a latch, a number",
        ),
        ("+string", "'blue", "the key is a string"),
        // The error stays as it was.
        ("-NOPERM no", "nil", "(server: WRONGTYPE"),
        ("+string", "-NOPERM no", "(server: WRONGTYPE"),
    ] {
        for (kind, script) in [
            (LockKind::Mutex, &scripts::ACQUIRE),
            (LockKind::Fair, &scripts::FAIR_ACQUIRE),
        ] {
            let server = ScriptedServer::start().await;
            server.on_script(script, foreign);
            server.on("TYPE stock", is);
            server.on("GETRANGE stock 0 20", text);
            let store = server.store().await;
            let error = store.front.attempt(&ask(kind)).await.outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
    // A script that has looked at the key says more than its type.
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::ACQUIRE, "[ 3 write ]");
    let store = server.store().await;
    let attempt = store.front.attempt(&ask(LockKind::Mutex)).await;
    assert_eq!(attempt.outcome.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(server.heard("TYPE"), [""; 0]);
}

/// Redisson reads the counter as a number of Lua, which is exact up to 2^53.
#[tokio::test]
async fn a_counter_is_raised_as_far_as_its_readers_count() {
    const LAST: u64 = (1 << 53) - 1;
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let name = Name::new("stock").unwrap();
    let raise = |is_plain: bool, newest: u64| {
        let extensions = front(&store, is_plain).extensions();
        extensions.token_counter.unwrap().raise(&name, newest)
    };
    server.on_script(&scripts::RAISE_TOKEN, "[ 1 '9 ]");
    assert_eq!(raise(false, LAST).await.unwrap(), 9);
    assert_eq!(raise(true, LAST + 1).await.unwrap(), 9);
    let error = raise(false, LAST + 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    let said = "the next token would be 9007199254740993;";
    assert!(error.to_string().contains(said), "{error}");
    let sent = [
        format!("redisson_lock_token:{{stock}} | {LAST}"),
        format!("tidelock:token:{{stock}}:stock | {}", LAST + 1),
    ];
    assert_eq!(server.calls(&scripts::RAISE_TOKEN), sent);
    for (reply, expected) in [
        ("[ 1 nil ]", Ok(0)),
        ("[ 1 -1 ]", Err(ErrorKind::OutcomeUnknown)),
        ("[ 1 ]", Err(ErrorKind::OutcomeUnknown)),
        ("[ 4 '007 ]", Err(ErrorKind::WrongType)),
        ("[ 4 ]", Err(ErrorKind::WrongType)),
    ] {
        server.on_script(&scripts::RAISE_TOKEN, reply);
        let raised = raise(false, 9).await.map_err(|error| error.kind());
        assert_eq!(raised, expected, "{reply}");
    }
}

#[tokio::test]
async fn an_undeclared_tombstone_is_declared_once_the_server_asks_for_it() {
    for (is_plain, acquire, release) in [
        (false, &scripts::ACQUIRE, &scripts::RELEASE),
        (true, &scripts::PLAIN_ACQUIRE, &scripts::PLAIN_RELEASE),
    ] {
        let server = ScriptedServer::start().await;
        let call = format!("EVALSHA {}", acquire.sha());
        server.in_turn(&call, &[UNDECLARED, "1"]);
        let store = server.store().await;
        let front = front(&store, is_plain);
        let ask = ask(LockKind::Mutex);
        for _ in 0..2 {
            front.attempt(&ask).await.outcome.unwrap();
        }
        let owner = ask.ticket.owner.text();
        let grave = keys::tombstone(&ask.ticket.name, owner);
        let declared = format!("stock {grave} | 30000 {owner}");
        let sent = [format!("stock | 30000 {owner}"), declared.clone(), declared];
        assert_eq!(server.calls(acquire), sent);
        server.on_script(release, "1");
        front.withdraw(&ask.ticket).await.unwrap();
        let withdrawn = server.calls(release);
        let start = format!("stock {grave} | ");
        assert!(withdrawn[0].starts_with(&start), "{withdrawn:?}");
        // Another error is no reason to ask again.
        server.on_script(acquire, "-OOM full");
        assert!(front.attempt(&ask).await.outcome.is_err());
        assert_eq!(server.calls(acquire).len(), 4);
    }
}

/// The withdrawal may be the first request that the server refuses so, and its caller has no other way to keep out a late
/// attempt.
#[tokio::test]
async fn a_withdrawal_declares_its_tombstone_once_the_server_asks_for_it() {
    for (is_plain, script) in [(false, &scripts::RELEASE), (true, &scripts::PLAIN_RELEASE)] {
        for (first, requests, is_done) in [(UNDECLARED, 2, true), ("-OOM full", 1, false)] {
            let server = ScriptedServer::start().await;
            server.in_turn(&format!("EVALSHA {}", script.sha()), &[first, "1"]);
            let store = server.store().await;
            let front = front(&store, is_plain);
            let ticket = ticket(LockKind::Mutex);
            assert_eq!(front.withdraw(&ticket).await.is_ok(), is_done);
            let sent = server.calls(script);
            let grave = keys::tombstone(&ticket.name, ticket.owner.text());
            assert_eq!(sent.len(), requests);
            assert_eq!(sent[requests - 1].contains(&grave), is_done, "{sent:?}");
        }
    }
}

#[tokio::test]
async fn an_attempt_and_its_withdrawal_declare_the_same_keys_in_a_cluster() {
    let server = ScriptedServer::start().await;
    server.on("EVALSHA", "1");
    let store = server.cluster().await;
    let ask = patient(LockKind::Mutex);
    let owner = ask.ticket.owner.text();
    let grave = keys::tombstone(&ask.ticket.name, owner);
    store.front.attempt(&ask).await.outcome.unwrap();
    store.front.withdraw(&ask.ticket).await.unwrap();
    store.front.release(&ask.ticket).await.unwrap();
    let sent = [format!("stock {grave} | 30000 {owner} sleeps")];
    assert_eq!(server.calls(&scripts::ACQUIRE), sent);
    let sent = [
        format!("stock {grave} | {owner} settling 300000"),
        format!("stock | {owner} settling"),
    ];
    assert_eq!(server.calls(&scripts::RELEASE), sent);
}
