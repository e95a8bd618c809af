//! The events of keys: the cached setting by itself, and the waiters beside a server that has it.

use tokio::time::advance;

use super::*;
use crate::error::ErrorKind;
use crate::store::LockKind;
use crate::store::redis::address::HostAddress;
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::tests::{ask, stock};
use crate::store::redis::topology::connection::ConnectionRuntime;
use crate::store::redis::topology::tests::endpoint_to;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::tests::replies::texts;
use crate::store::redis::wire::tests::{LIMIT, SILENCE, ScriptedServer, loopback};
use crate::types::OwnerMint;

/// A user who may not read the setting.
const FORBIDDEN: &str = "-NOPERM no\r\n";

/// The channel of the events of [`stock`].
const CHANNEL: &str = "__keyspace@0__:stock";

#[test]
fn both_ways_in_which_a_key_goes_must_be_told() {
    for enough in ["AK", "KA", "gxK", "AKE", "Kgx$"] {
        assert!(suffice(enough), "{enough}");
    }
    for little in ["", "AE", "Kg", "Kx", "gxE", "K"] {
        assert!(!suffice(little), "{little}");
    }
}

#[test]
fn only_an_event_that_frees_a_key_wakes() {
    for event in ["del", "expired", "evicted", "rename_from", "move_from"] {
        assert!(frees(event.as_bytes()));
    }
    for event in ["set", "expire", "pexpire", "incrby", "", "1"] {
        assert!(!frees(event.as_bytes()));
    }
}

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn one_asks_and_what_was_said_before_a_new_connection_does_not_count() {
    let (known, limit) = (EventSettings::default(), Duration::from_secs(10));
    assert!(known.begin(0, at(1), limit));
    assert!(!known.begin(0, at(5), limit) && !known.are_on());
    assert!(known.count_release(0, at(5)), "it is being asked");
    known.end(0, EventFlags::On, at(20));
    assert!(known.are_on() && !known.begin(0, at(49), limit));
    // The caller that started the refresh may have left.
    assert!(known.begin(0, at(50), limit));
    assert!(known.begin(1, at(51), limit), "after another connect");
    known.end(0, EventFlags::Off, at(52));
    assert!(known.are_on());
    known.end(1, EventFlags::Off, at(52));
    assert!(!known.are_on() && !known.count_release(1, at(52)));
    assert!(known.count_release(2, at(52)));
    assert!(known.begin(2, at(52), limit));
    assert!(
        known.count_release(2, at(52)),
        "the next one is being asked"
    );
}

#[test]
fn a_client_that_may_not_read_the_setting_asks_once_and_counts() {
    let (known, late) = (EventSettings::default(), at(1 << 30));
    assert!(known.begin(0, at(1), Duration::from_secs(1)));
    known.end(0, EventFlags::Forbidden, at(1));
    for _ in 0..2 * RELEASES {
        assert!(known.count_release(0, late) && !known.should_ask(0, late));
    }
    assert!(!known.are_on() && !known.begin(0, late, Duration::from_secs(1)));
}

#[test]
fn a_process_that_releases_often_asks_once_a_second_while_events_are_off() {
    let known = EventSettings::default();
    for _ in 1..RELEASES {
        assert!(known.count_release(0, at(1)) && !known.should_ask(0, at(1)));
    }
    assert!(known.count_release(0, at(1)) && known.should_ask(0, at(1)));
    assert!(known.count_release(0, at(1)) && !known.should_ask(0, at(1)));
    known.doubt(0, at(1));
    assert!(known.begin(0, at(1), Duration::from_secs(1)));
    known.doubt(0, at(1));
    assert!(!known.begin(0, at(1), Duration::from_secs(1)), "one asks");
    known.end(0, EventFlags::Off, at(2));
    for _ in 0..2 * RELEASES {
        assert!(!known.count_release(0, at(2)) && !known.should_ask(0, at(2)));
    }
    // Waiters still trust it.
    assert!(!known.begin(0, at(3), Duration::from_secs(1)));
    assert!(known.count_release(0, at(3)) && known.should_ask(0, at(3)));
    known.doubt(0, at(3));
    assert!(known.begin(0, at(3), Duration::from_secs(1)));
    known.end(0, EventFlags::On, at(3));
    assert!(known.count_release(0, at(4)) && !known.should_ask(0, at(4)));
}

/// An attempt of a caller that waits so long.
fn attempt(patience: Duration, armed_by: Option<usize>) -> AttemptRequest {
    AttemptRequest {
        patience,
        armed_by,
        ..ask(LockKind::Mutex)
    }
}

/// The answer of a server with these flags.
fn told(flags: &str) -> String {
    texts(&[SETTING, flags])
}

/// The events at this address, and a connection there that is not open yet.
fn events_at(address: HostAddress, limit: Duration) -> (KeyspaceEvents, Connection) {
    let (endpoint, background) = endpoint_to(address, limit);
    let connection = Connection::new(Arc::clone(&endpoint), ConnectionRuntime::Caller);
    let router = ChannelRouter::One(endpoint);
    let subscriber = Subscriber::new(&router, PublishModes::Plain, &background);
    let events = KeyspaceEvents::new(0, router, Arc::new(subscriber));
    (events, connection)
}

/// A client of a server that answers so to the question for its setting.
struct Asked {
    server: ScriptedServer,
    events: KeyspaceEvents,
    router: Router,
}

async fn asked(setting: &str, limit: Duration) -> Asked {
    let server = ScriptedServer::start().await;
    server.answers("CONFIG GET notify-keyspace-events", &[setting]);
    let (events, connection) = events_at(server.address(), limit);
    in_time(connection.get(connection.deadline()))
        .await
        .unwrap();
    Asked {
        server,
        events,
        router: Router::One(connection),
    }
}

impl Asked {
    async fn wake_for(&self, patience: Duration, armed_by: Option<usize>) -> Option<Wake> {
        let ask = attempt(patience, armed_by);
        in_time(self.events.wake_for(&ask, &self.router)).await
    }
}

#[tokio::test]
async fn a_waiter_subscribes_only_if_the_server_tells_its_events() {
    let (on, off) = (told("AK"), told(""));
    for (setting, listens) in [(&*on, true), (&*off, false), (FORBIDDEN, false)] {
        let on = asked(setting, LIMIT).await;
        assert!(on.events.pause(&stock()).is_none());
        let wake = on.wake_for(LIMIT, None).await;
        assert_eq!(wake.is_some(), listens, "{setting:?}");
        let subscribed = on.server.heard(&format!("SUBSCRIBE {CHANNEL}"));
        assert_eq!(subscribed.len(), usize::from(listens), "{setting:?}");
        // It polls seldom then, because a message may be lost.
        let pause = on.events.pause(&stock());
        assert_eq!(pause, listens.then_some(POLL_INTERVAL), "{setting:?}");
        let seen = on.events.releases_seen(&stock());
        assert_eq!(seen.is_some(), listens, "{setting:?}");
    }
}

/// Without a subscription nothing wakes a waiter, so it must not poll seldom.
#[tokio::test]
async fn a_server_that_tells_its_events_tells_them_only_to_those_who_listen() {
    let on = asked(&told("AK"), LIMIT).await;
    in_time(on.events.ask_setting(&stock(), &on.router)).await;
    assert_eq!(on.server.heard("CONFIG").len(), 1);
    assert!(on.events.pause(&stock()).is_none());
}

/// A server that restarts, or that another one replaces, ends the connection for commands too.
#[tokio::test]
async fn a_waiter_asks_for_the_setting_once_although_its_subscription_connects() {
    let on = asked(&told("AK"), LIMIT).await;
    for _ in 0..3 {
        assert!(on.wake_for(LIMIT, None).await.is_some());
    }
    assert_eq!(on.server.heard("CONFIG").len(), 1);
}

#[tokio::test]
async fn a_caller_without_patience_uses_a_subscription_only_if_there_is_one() {
    let on = asked(&told("AK"), LIMIT).await;
    assert!(on.wake_for(Duration::ZERO, None).await.is_none());
    assert!(on.server.heard("CONFIG").is_empty());
    let wake = on.wake_for(LIMIT, None).await;
    assert!(wake.is_some());
    assert!(on.wake_for(Duration::ZERO, None).await.is_some());
    // It has a wake already.
    for patience in [Duration::ZERO, LIMIT] {
        assert!(on.wake_for(patience, Some(0)).await.is_none());
    }
}

#[tokio::test]
async fn a_process_that_leaves_turns_to_others_listens_if_it_can_and_asks_once() {
    let on = asked(&told(""), LIMIT).await;
    for _ in 0..3 {
        in_time(on.events.listen(&stock(), &on.router)).await;
    }
    assert_eq!(on.server.heard("CONFIG").len(), 1);
    assert!(on.server.heard("SUBSCRIBE").is_empty());
    assert_eq!(on.events.channel(&stock()), None, "nobody can listen");
    let on = asked(&told("AK"), LIMIT).await;
    in_time(on.events.listen(&stock(), &on.router)).await;
    let subscribe = format!("SUBSCRIBE {CHANNEL}");
    on.server.hears(&subscribe, 1).await;
    assert_eq!(on.events.channel(&stock()).as_deref(), Some(CHANNEL));
}

#[tokio::test]
async fn a_process_that_releases_often_learns_whether_anybody_can_listen() {
    let on = asked(&told(""), LIMIT).await;
    for _ in 0..RELEASES {
        assert!(!on.events.should_ask(&stock()));
        assert_eq!(on.events.channel(&stock()).as_deref(), Some(CHANNEL));
    }
    assert!(on.events.should_ask(&stock()));
    in_time(on.events.ask_setting(&stock(), &on.router)).await;
    assert_eq!(on.server.heard("CONFIG").len(), 1);
    assert_eq!(on.events.channel(&stock()), None);
}

/// The request that follows needs the rest of the time.
#[tokio::test]
async fn the_setting_is_waited_for_only_for_a_part_of_the_response_timeout() {
    let limit = Duration::from_secs(2);
    let mute = || asked(SILENCE, limit);
    let (first, second, third) = tokio::join!(mute(), mute(), mute());
    let begun = std::time::Instant::now();
    let name = stock();
    let (wake, (), ()) = tokio::join!(
        first.wake_for(LIMIT, None),
        second.events.listen(&name, &second.router),
        third.events.ask_setting(&name, &third.router),
    );
    assert!(wake.is_none());
    // A quarter of it, and time for a busy machine.
    assert!(begun.elapsed() < limit * 3 / 4, "{:?}", begun.elapsed());
}

/// Such clients may ask again and again, and no server counts them.
#[tokio::test(start_paused = true)]
async fn other_clients_are_expected_for_a_while_after_one_of_them_held_the_lock() {
    let (events, _connection) = events_at(loopback(1), LIMIT);
    let awaited = |others, polled, releases_seen| {
        Released::Awaited(Awaited {
            others,
            foreign: 0,
            polled,
            releases_seen,
        })
    };
    let (count, last) = (4, BootInstant::from_nanos(1));
    let heard = Some(ReleasesSeen { count, last });
    for (listeners, before, expected) in [
        (0, None, Released::Freed),
        (3, None, awaited(3, false, 0)),
        (3, heard, awaited(2, false, 5)),
        (1, heard, Released::Freed),
    ] {
        assert_eq!(events.freed(&stock(), listeners, before), expected);
    }
    let text = |owner: &str| Reply::Text(owner.as_bytes().to_vec());
    let owner = OwnerMint::new().fresh();
    events.saw(&stock(), &text(owner.text()));
    assert_eq!(events.freed(&stock(), 0, None), Released::Freed);
    events.saw(&stock(), &text("worker-7"));
    assert_eq!(events.freed(&stock(), 0, None), awaited(0, true, 0));
    advance(Duration::from_secs(60)).await;
    assert_eq!(events.freed(&stock(), 0, None), Released::Freed);
}

#[tokio::test]
async fn the_doctor_learns_whether_a_user_may_listen() {
    for is_allowed in [true, false] {
        let server = ScriptedServer::start().await;
        if !is_allowed {
            server.answers("SUBSCRIBE", &[FORBIDDEN]);
        }
        let (events, _connection) = events_at(server.address(), LIMIT);
        let can_listen = in_time(events.can_listen(&stock(), LIMIT)).await;
        assert_eq!(can_listen, is_allowed);
        events.close();
        assert!(!in_time(events.can_listen(&stock(), LIMIT)).await);
    }
}

#[tokio::test]
async fn the_doctor_shows_the_setting_if_the_user_may_read_it() {
    let told = told("AK");
    for (answer, expected) in [
        (&*told, Ok(Some("AK".to_owned()))),
        (FORBIDDEN, Ok(None)),
        ("-LOADING no\r\n", Err(ErrorKind::Unavailable)),
    ] {
        let on = asked(answer, LIMIT).await;
        let Router::One(connection) = &on.router else {
            panic!("one server");
        };
        let shown = in_time(setting(connection)).await;
        assert_eq!(shown.map_err(|error| error.kind()), expected, "{answer:?}");
    }
}
