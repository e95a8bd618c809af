//! Tests of latches and counting semaphores beside a scripted server.

use tokio::time::Instant;

use super::*;
use crate::store::redis::tests::{LEASE, ask};
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::tests::{LIMIT, SILENCE, ScriptedServer, skip};
use crate::store::{LockKind, Store};

fn counts(store: &Store) -> &dyn Counts {
    store.front.extensions().counts.unwrap()
}

fn start() -> Name {
    Name::new("start").unwrap()
}

#[tokio::test]
async fn each_change_is_said_to_its_script_with_the_answers_that_came() {
    let server = ScriptedServer::start().await;
    server.on("EVALSHA", "[ 0 1 2 ]");
    let store = server.store().await;
    let (id, settled) = (
        ask(LockKind::Mutex).ticket.owner,
        [ask(LockKind::Mutex).ticket.owner],
    );
    let (mut latches, mut semaphores) = (Vec::new(), Vec::new());
    for (change, said) in [
        (CountChange::Latch(LatchChange::SetIfNew(3)), "new 3"),
        (CountChange::Latch(LatchChange::CountDown), "down 0"),
        (CountChange::Latch(LatchChange::Delete), "delete 0"),
        (
            CountChange::Semaphore(SemaphoreChange::SetIfNew(4)),
            "new 4",
        ),
        (CountChange::Semaphore(SemaphoreChange::Add(-5)), "add -5"),
        (CountChange::Semaphore(SemaphoreChange::Take(6)), "take 6"),
        (
            CountChange::Semaphore(SemaphoreChange::GiveBack(7)),
            "back 7",
        ),
        (CountChange::Semaphore(SemaphoreChange::Drain), "drain 0"),
        (CountChange::Semaphore(SemaphoreChange::Undo), "undo 0"),
    ] {
        let changed = counts(&store).change(&start(), change, &id, &settled).await;
        let expected = CountChanged {
            changed: true,
            count: 2,
        };
        assert_eq!(changed.unwrap(), expected);
        let other = &settled[0];
        match change.kind() {
            CountKind::Latch => latches.push(format!(
                "start tidelock:latch:{{start}}:{id} {{start}}:timeout tidelock:latch:{{start}}:{other} | {said} redisson_countdownlatch__channel__{{start}} publish 300000"
            )),
            CountKind::Semaphore => semaphores.push(format!(
                "start tidelock:semaphore:{{start}}:{id} tidelock:semaphore:{{start}}:{other} | {said} redisson_sc:{{start}} publish 300000"
            )),
        }
    }
    assert_eq!(server.calls(&scripts::CHANGE_LATCH), latches);
    assert_eq!(server.calls(&scripts::CHANGE_SEMAPHORE), semaphores);
}

#[tokio::test]
async fn the_reply_to_a_change_says_whether_it_was_made_and_what_is_left() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    let id = ask(LockKind::Mutex).ticket.owner;
    let open = CountChange::Latch(LatchChange::CountDown);
    let take = CountChange::Semaphore(SemaphoreChange::Take(1));
    for (change, reply, expected) in [
        (open, "[ 0 1 2 ]", Ok((true, 2))),
        (take, "[ 0 0 '5 ]", Ok((false, 5))),
        // The user may not publish: the change counts all the same.
        (open, "[ 0 1 0 x ]", Ok((true, 0))),
        (
            open,
            "[ 7 list ]",
            Err("the key is list (WRONGTYPE) and no latch"),
        ),
        (
            take,
            "[ 7 list ]",
            Err("the key is list (WRONGTYPE) and no semaphore"),
        ),
        (take, "[ 0 1 x ]", Err("makes no sense")),
        (take, "[ 1 1 2 ]", Err("makes no sense")),
    ] {
        server.on("EVALSHA", reply);
        match (
            counts(&store).change(&start(), change, &id, &[]).await,
            expected,
        ) {
            (Ok(seen), Ok(expected)) => assert_eq!((seen.changed, seen.count), expected),
            (Err(error), Err(said)) => assert!(error.to_string().contains(said), "{error}"),
            (changed, _) => panic!("{reply}: {changed:?}"),
        }
    }
}

#[tokio::test]
async fn a_count_is_read_by_the_script_of_its_kind() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    for (kind, script, keys, other) in [
        (
            CountKind::Latch,
            &scripts::LATCH_COUNT,
            "start {start}:timeout",
            "no latch",
        ),
        (
            CountKind::Semaphore,
            &scripts::SEMAPHORE_COUNT,
            "start",
            "no semaphore",
        ),
    ] {
        server.on_script(script, "[ 0 4 ]");
        assert_eq!(counts(&store).count(&start(), kind).await.unwrap(), 4);
        assert_eq!(server.calls(script), [format!("{keys} | ")]);
        for (reply, said) in [
            ("[ 7 hash ]", other),
            ("[ 0 x ]", "makes no sense"),
            ("[ 1 4 ]", "makes no sense"),
        ] {
            server.on_script(script, reply);
            let error = counts(&store).count(&start(), kind).await.unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

/// A client of Redisson may hear only one form of a message in a cluster, and so may this one.
#[tokio::test]
async fn a_waiter_that_may_miss_the_message_asks_every_second() {
    for (is_cluster, refused, is_armed, recheck) in [
        (false, "", true, LEASE / 3),
        (false, "SUBSCRIBE", false, Duration::from_secs(1)),
        (true, "", true, LEASE / 3),
        (true, "SSUBSCRIBE", true, Duration::from_secs(1)),
    ] {
        for (kind, channel) in [
            (
                CountKind::Latch,
                "redisson_countdownlatch__channel__{start}",
            ),
            (CountKind::Semaphore, "redisson_sc:{start}"),
        ] {
            let server = ScriptedServer::start().await;
            if !refused.is_empty() {
                server.on(refused, "-NOPERM no");
            }
            let store = if is_cluster {
                server.cluster().await
            } else {
                server.store().await
            };
            let wait = counts(&store).arm(&start(), kind).await.unwrap();
            assert_eq!(wait.wake.is_some(), is_armed, "{refused}");
            assert_eq!(wait.recheck, Some(recheck), "{refused}");
            let subscribed = format!("SUBSCRIBE {channel}");
            assert_eq!(server.heard(&subscribed), [subscribed.as_str()]);
        }
    }
}

/// The caller looks at the number then.
#[tokio::test]
async fn a_mute_subscription_is_waited_for_for_a_part_of_the_time() {
    let server = ScriptedServer::start().await;
    server.answers("SUBSCRIBE", &[SILENCE]);
    let store = server.store().await;
    let name = start();
    let begun = Instant::now();
    let silence = async {
        server.hears("SUBSCRIBE", 1).await;
        skip(LIMIT / 2).await;
    };
    let arming = counts(&store).arm(&name, CountKind::Latch);
    let (wait, ()) = in_time(async { tokio::join!(arming, silence) }).await;
    assert!(wait.unwrap().wake.is_none());
    let waited = begun.elapsed();
    assert!(waited < LIMIT, "{waited:?}");
}

/// The channel of such a latch would be in another slot than its key.
#[tokio::test]
async fn in_a_cluster_the_name_of_a_latch_has_no_braces() {
    let server = ScriptedServer::start().await;
    server.on("EVALSHA", "[ 0 4 ]");
    let name = Name::new("{shop}start").unwrap();
    let (single, cluster) = (server.store().await, server.cluster().await);
    for (store, kind, is_allowed) in [
        (&single, CountKind::Latch, true),
        (&cluster, CountKind::Latch, false),
        (&cluster, CountKind::Semaphore, true),
    ] {
        let count = counts(store).count(&name, kind).await;
        let refused = count.err().map(|error| error.kind());
        let expected = (!is_allowed).then_some(ErrorKind::InvalidName);
        assert_eq!(refused, expected, "{kind:?}");
    }
    assert!(
        counts(&cluster)
            .count(&start(), CountKind::Latch)
            .await
            .is_ok()
    );
    assert!(single.plain.unwrap().front.extensions().counts.is_none());
}
