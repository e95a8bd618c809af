//! The task of a connection, beside a scripted server.

use std::time::Instant;

use super::*;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::topology::tests::endpoint_to;
use crate::store::redis::wire::driver::PushHandler;
use crate::store::redis::wire::live_connection::peer::{Peer, SETINFO, in_time, nobody};
use crate::store::redis::wire::pipeline::Subscription;
use crate::store::redis::wire::tests::{HANG_UP, ScriptedServer, loopback};
use crate::store::{WakeChannels, ready};

const LIMIT: Duration = Duration::from_secs(1);

/// A connection that is open, and all that its task needs. No channel needs it.
struct Opened {
    registry: Arc<SubscriptionRegistry>,
    session: Arc<PubSubConnection>,
    conn: Arc<LiveConnection>,
}

async fn opened() -> (Opened, Peer) {
    let (endpoint, background) = endpoint_to(loopback(1), LIMIT);
    let signals = WakeChannels::new(endpoint.timers.clone(), |_| {});
    let router = ChannelRouter::One(Arc::clone(&endpoint));
    let forms = PublishModes::Plain.forms();
    let registry = SubscriptionRegistry::new(forms, router, signals, background, |_, _| ready(()));
    let registry = Arc::new(registry);
    let session = Arc::new(PubSubConnection::new(endpoint));
    let (of_pushes, own) = (Arc::clone(&registry), Arc::clone(&session));
    let push_handler: PushHandler = Arc::new(move |push| of_pushes.on_push(&own, push));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (mut peer, login) = (Peer(theirs), nobody());
    let opening = LiveConnection::open(Box::pin(ours), &login, Some(push_handler));
    let greeting = async {
        peer.expects(&["HELLO 3", SETINFO[0], SETINFO[1]]).await;
        peer.says("%1\r\n+proto\r\n:3\r\n+OK\r\n+OK\r\n").await;
    };
    let (conn, ()) = tokio::join!(opening, greeting);
    let on = Opened {
        registry,
        session,
        conn: Arc::new(conn.unwrap()),
    };
    (on, peer)
}

fn named(sent: &Sent) -> &'static str {
    match sent {
        Sent::Done => "done",
        Sent::Refused(..) => "refused",
        Sent::Stuck(..) => "stuck",
        Sent::Passing(..) => "passing",
        Sent::Uncounted(..) => "uncounted",
        Sent::NotYetCounted(..) => "not yet counted",
        Sent::Lost => "lost",
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_command_decides_what_becomes_of_its_channel() {
    let confirmation = ">3\r\n+subscribe\r\n+x\r\n:1\r\n";
    for (own, ends, answer, expected) in [
        (false, false, confirmation, "done"),
        (false, false, "-NOPERM no\r\n", "refused"),
        (false, false, "-LOADING no\r\n", "passing"),
        (false, true, "-NOPERM no\r\n", "stuck"),
        (true, false, "-NOPERM no\r\n", "uncounted"),
        (true, false, "-LOADING no\r\n", "not yet counted"),
        // It would be counted as long as the connection lives, and hide others.
        (true, true, "-NOPERM no\r\n", "lost"),
        (true, true, "-MOVED 7 h:2\r\n", "done"),
        (false, false, ":1\r\n", "lost"),
        // None within the limit.
        (false, false, "", "lost"),
    ] {
        let (on, mut peer) = opened().await;
        let (form, channel) = (MessageForm::Plain, "x".into());
        let of = Subscription { form, ends };
        let command = SubscribeCommand { of, channel, own };
        let talk = async {
            let request = if ends { "UNSUBSCRIBE x" } else { "SUBSCRIBE x" };
            peer.expects(&[request]).await;
            peer.says(answer).await;
        };
        let sent = send(&on.registry, &on.session, Arc::clone(&on.conn), command);
        let (sent, ()) = tokio::join!(sent, talk);
        assert_eq!(named(&sent), expected, "{own} {ends} {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_a_ping_in_any_way_is_there() {
    for (answer, expected) in [
        ("+PONG\r\n", "done"),
        ("-NOPERM no\r\n", "done"),
        (":1\r\n", "lost"),
        ("", "lost"),
    ] {
        let (on, mut peer) = opened().await;
        let talk = async {
            peer.expects(&["PING"]).await;
            peer.says(answer).await;
        };
        let (sent, ()) = tokio::join!(ping(&on.session, Arc::clone(&on.conn)), talk);
        assert_eq!(named(&sent), expected, "{answer:?}");
    }
}

/// How long a connection is served, and whether it is lost in the end.
async fn served(on: &Opened) -> (Duration, bool) {
    let timers = on.registry.timers();
    let begun = timers.now();
    let end = serve(&on.registry, &on.session, Arc::clone(&on.conn)).await;
    (timers.now().since(begun), end.is_lost())
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_channels_is_kept_for_a_while() {
    let (on, mut peer) = opened().await;
    let talk = async {
        for _ in 0..KEPT_IDLE / PING_EVERY {
            peer.expects(&["PING"]).await;
            peer.says("+PONG\r\n").await;
        }
    };
    let ((lasted, is_lost), ()) = tokio::join!(served(&on), talk);
    let kept = CHECK_INTERVAL * KEPT_IDLE;
    assert!((kept..kept + LIMIT).contains(&lasted), "{lasted:?}");
    assert!(!is_lost);
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_a_server_that_does_not_answer_is_lost() {
    let (on, _peer) = opened().await;
    let (lasted, is_lost) = served(&on).await;
    let noticed = CHECK_INTERVAL * PING_EVERY + LIMIT;
    assert!((noticed..noticed + LIMIT).contains(&lasted), "{lasted:?}");
    assert!(is_lost);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_its_client_or_with_its_stream() {
    for is_closed in [true, false] {
        let (on, _peer) = opened().await;
        let ends = async {
            if is_closed {
                on.registry.close();
                on.session.notify.notify_one();
            } else {
                on.conn.pipeline.cut();
            }
        };
        let ((lasted, is_lost), ()) = tokio::join!(served(&on), ends);
        assert_eq!((lasted, is_lost), (Duration::ZERO, !is_closed));
    }
}

#[test]
fn only_connections_that_fail_at_once_are_opened_less_and_less_often() {
    let short = STEADY.saturating_sub(Duration::from_nanos(1));
    for (lasted, was_served, is_lost, expected) in [
        (short, false, true, (3, false)),
        (short, true, true, (0, false)),
        (short, false, false, (3, true)),
        (STEADY, false, true, (0, true)),
        (STEADY, true, false, (0, true)),
    ] {
        let after = after_connection(3, lasted, was_served, is_lost);
        assert_eq!(after, expected, "{lasted:?} {was_served} {is_lost}");
    }
}

/// A server or a proxy may close each connection at its first SUBSCRIBE.
#[tokio::test]
async fn a_server_that_closes_each_connection_is_asked_less_and_less_often() {
    let server = ScriptedServer::start().await;
    server.answers("SUBSCRIBE", &[HANG_UP]);
    let limit = Duration::from_secs(60);
    let (endpoint, background) = endpoint_to(server.address(), limit);
    let router = ChannelRouter::One(endpoint);
    let subscriber = Subscriber::new(&router, PublishModes::Plain, &background);
    let begun = Instant::now();
    tokio::select! {
        _ = subscriber.arm("x", limit) => panic!("nobody confirms it"),
        () = server.hears("SUBSCRIBE x", 6) => {}
    }
    // At least half of 20, 40, 80, 160 and 320 ms.
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(310), "{waited:?}");
}

#[tokio::test]
async fn a_lost_connection_is_replaced_and_its_waiter_is_woken() {
    let server = ScriptedServer::start().await;
    let limit = Duration::from_secs(60);
    let (endpoint, background) = endpoint_to(server.address(), limit);
    let router = ChannelRouter::One(Arc::clone(&endpoint));
    let subscriber = Subscriber::new(&router, PublishModes::Plain, &background);
    let mut wake = in_time(subscriber.arm("x", limit)).await.unwrap();
    endpoint.leave();
    in_time(wake.woken()).await;
    assert_eq!(server.heard("SUBSCRIBE x").len(), 2);
    assert!(subscriber.listens("x"));
}
