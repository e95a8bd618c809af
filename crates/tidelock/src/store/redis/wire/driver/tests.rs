//! Tests of the driver, beside a scripted server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use futures_util::{FutureExt, poll};
use tokio::io::AsyncReadExt;

use super::*;
use crate::store::redis::wire::live_connection::LiveConnection;
use crate::store::redis::wire::live_connection::peer::{
    GREETED, HANDSHAKE, Peer, connected, in_time, is_broken, nobody, request_of,
};
use crate::store::redis::wire::pipeline::PendingRequest;
use crate::store::redis::wire::tests::values::text;

/// Replies that the server sent before it closed the connection count, even if writes fail already.
#[tokio::test]
async fn last_answers_are_heard() {
    let (conn, mut peer) = connected().await;
    let (one, two) = (request_of("ONE"), request_of("TWO"));
    let mut first = Box::pin(conn.ask(&one));
    assert!(poll!(first.as_mut()).is_pending());
    peer.expects(&["ONE"]).await;
    peer.says(":1\r\n").await;
    let mut second = Box::pin(conn.ask(&two));
    assert!(poll!(second.as_mut()).is_pending());
    drop(peer);
    let both = async { tokio::join!(first, second) };
    let (first, second) = in_time(both).await;
    assert_eq!(first, Ok(Reply::Int(1)));
    is_broken(&second, "before the answer");
}

/// A server whose replies we do not read stops reading. So we must read while a write is blocked.
#[tokio::test]
async fn both_sides_may_be_full_at_once() {
    let (ours, theirs) = tokio::io::duplex(64);
    let mut peer = Peer(theirs);
    let login = nobody();
    let opening = <LiveConnection>::open(Box::pin(ours), &login, None);
    let handshake = async {
        peer.expects(&HANDSHAKE).await;
        peer.says(GREETED).await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, handshake) }).await;
    let conn = conn.unwrap();
    let long = "x".repeat(1000);
    let request = request_of(&long);
    let serve = async {
        for _ in 0..20 {
            peer.expects(&[&long]).await;
            peer.says(format!("$1000\r\n{long}\r\n")).await;
        }
    };
    let asks = futures_util::future::join_all((0..20).map(|_| conn.ask(&request)));
    let (answers, ()) = in_time(async { tokio::join!(asks, serve) }).await;
    for answer in answers {
        assert_eq!(answer, Ok(Reply::Text(long.clone().into_bytes())));
    }
}

/// Counts how many callers were woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A driver that the test polls, with this many callers of which so many have a reply, and the callers that it has woken.
async fn answered(
    pipeline: &Arc<Pipeline>,
    callers: usize,
    replies: usize,
) -> (ConnectionDriver, Peer, Vec<PendingRequest<'_>>, Arc<Woken>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut peer = Peer(theirs);
    let mut driver = ConnectionDriver::new(Box::pin(ours), Arc::clone(pipeline), None);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut waiting: Vec<_> = (0..callers)
        .map(|_| pipeline.send(&request_of("ONE")).unwrap())
        .collect();
    for caller in &mut waiting {
        let asked = Pin::new(caller).poll(&mut Context::from_waker(&waker));
        assert!(asked.is_pending());
    }
    assert!(poll!(&mut driver).is_pending());
    peer.expects(&vec!["ONE"; callers]).await;
    peer.says(":1\r\n".repeat(replies)).await;
    assert!(poll!(&mut driver).is_pending());
    (driver, peer, waiting, woken)
}

/// While the server works for one group, the client works for the next.
#[tokio::test]
async fn the_requests_of_a_group_are_sent_before_the_next_group_is_woken() {
    let pipeline = Arc::default();
    let (mut driver, mut peer, _waiting, woken) = answered(&pipeline, 24, 24).await;
    for group in 1..=GROUPS {
        assert_eq!(woken.0.load(Ordering::Relaxed), 8 * group);
        let next: Vec<_> = (0..8)
            .map(|_| pipeline.send(&request_of("TWO")).unwrap())
            .collect();
        assert!(poll!(&mut driver).is_pending());
        peer.expects(&["TWO"; 8]).await;
        drop(next);
    }
}

/// So a few callers need one write.
#[tokio::test]
async fn a_small_group_is_woken_at_once() {
    let pipeline = Arc::default();
    let (_driver, _peer, _waiting, woken) =
        answered(&pipeline, SMALLEST_GROUP, SMALLEST_GROUP).await;
    assert_eq!(woken.0.load(Ordering::Relaxed), SMALLEST_GROUP);
}

/// The server works for those while the client works for the others.
#[tokio::test]
async fn the_size_of_a_group_counts_the_callers_without_a_reply() {
    let pipeline = Arc::default();
    let (_driver, _peer, _waiting, woken) = answered(&pipeline, 24, 12).await;
    assert_eq!(woken.0.load(Ordering::Relaxed), 8);
}

/// One write then serves them all.
#[tokio::test]
async fn the_first_requests_of_a_group_wait_once_for_the_others() {
    for (count, waits) in [
        (1, true),
        (SMALLEST_GROUP - 1, true),
        (SMALLEST_GROUP, false),
    ] {
        let pipeline = Arc::default();
        let (mut driver, mut peer, _waiting, _) =
            answered(&pipeline, SMALLEST_GROUP, SMALLEST_GROUP).await;
        let _next: Vec<_> = (0..count)
            .map(|_| pipeline.send(&request_of("TWO")).unwrap())
            .collect();
        let requests = vec!["TWO"; count];
        let again = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&again));
        let polled = Pin::new(&mut driver).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let sent = peer.expects(&requests).now_or_never();
        assert_eq!(sent.is_none(), waits, "{count} requests");
        let asks_for_a_poll = again.0.load(Ordering::Relaxed) > 0;
        assert_eq!(asks_for_a_poll, waits, "{count} requests");
        if waits {
            assert!(poll!(&mut driver).is_pending());
            in_time(peer.expects(&requests)).await;
        }
    }
}

/// Otherwise it would keep its thread busy for as long as the server reads nothing.
#[tokio::test]
async fn a_driver_that_cannot_write_sleeps_although_more_is_queued() {
    let (ours, theirs) = tokio::io::duplex(64);
    let (mut peer, pipeline) = (Peer(theirs), Arc::default());
    let mut driver = ConnectionDriver::new(Box::pin(ours), Arc::clone(&pipeline), None);
    let long = "x".repeat(100);
    let _first = pipeline.send(&request_of(&long)).unwrap();
    assert!(poll!(&mut driver).is_pending());
    let _second = pipeline.send(&request_of("TWO")).unwrap();
    assert!(poll!(&mut driver).is_pending());
    let requests = [&*long, "TWO"];
    tokio::select! {
        () = &mut driver => panic!("it ends"),
        () = in_time(peer.expects(&requests)) => {}
    }
}

#[tokio::test]
async fn only_the_memory_of_a_large_request_is_given_back() {
    let (ours, _theirs) = tokio::io::duplex(2 * MAX_KEPT_CAPACITY);
    let pipeline = Arc::default();
    let mut driver = ConnectionDriver::new(Box::pin(ours), Arc::clone(&pipeline), None);
    for (length, is_kept) in [(1000, true), (MAX_KEPT_CAPACITY + 1, false)] {
        let _asked = pipeline.send(&request_of(&"x".repeat(length))).unwrap();
        assert!(poll!(&mut driver).is_pending());
        assert_eq!(driver.sending.capacity() > 0, is_kept, "{length} bytes");
    }
}

#[tokio::test]
async fn the_end_of_a_driver_wakes_all_callers_that_have_a_reply() {
    let pipeline = Arc::default();
    let (driver, _peer, waiting, woken) = answered(&pipeline, 24, 24).await;
    assert_eq!(woken.0.load(Ordering::Relaxed), 8);
    drop(driver);
    assert_eq!(woken.0.load(Ordering::Relaxed), 24);
    for caller in waiting {
        assert_eq!(in_time(caller).await, Ok(Reply::Int(1)));
    }
}

#[tokio::test]
async fn a_cut_is_told_at_once() {
    let (conn, mut peer) = connected().await;
    let ask = request_of("ONE");
    let mut waits = Box::pin(conn.ask(&ask));
    assert!(poll!(waits.as_mut()).is_pending());
    conn.pipeline.cut();
    match poll!(waits.as_mut()) {
        Poll::Ready(answer) => is_broken(&answer, "given up"),
        Poll::Pending => panic!("it waits"),
    }
    let mut rest = Vec::new();
    in_time(peer.0.read_to_end(&mut rest)).await.unwrap();
}

/// The connection's runtime may end before its callers do.
#[test]
fn the_end_of_its_runtime_ends_a_connection() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (home, other) = (runtime(), runtime());
    let (conn, peer) = home.block_on(connected());
    let ask = request_of("ONE");
    let mut waits = Box::pin(conn.ask(&ask));
    other.block_on(async { assert!(poll!(waits.as_mut()).is_pending()) });
    drop(home);
    is_broken(&other.block_on(in_time(waits)), "runtime");
    drop(peer);
}

#[test]
fn every_push_about_a_channel_is_understood() {
    for (kind, form, ends) in [
        ("subscribe", MessageForm::Plain, false),
        ("unsubscribe", MessageForm::Plain, true),
        ("ssubscribe", MessageForm::Sharded, false),
        ("sunsubscribe", MessageForm::Sharded, true),
    ] {
        let (push, confirmed) = understood(vec![text(kind), text("x"), Reply::Int(1)]);
        let told = match push {
            Some(Push::Subscribed(form, channel)) => (form, false, channel),
            Some(Push::Unsubscribed(form, channel)) => (form, true, channel),
            other => panic!("{kind}: {other:?}"),
        };
        let channel = "x".to_owned();
        assert_eq!(told, (form, ends, channel.clone()), "{kind}");
        let of = Subscription { form, ends };
        assert_eq!(confirmed, Some(Confirmation { of, channel }), "{kind}");
    }
    for (kind, sent_in) in [
        ("message", MessageForm::Plain),
        ("smessage", MessageForm::Sharded),
    ] {
        match understood(vec![text(kind), text("x"), text("1")]) {
            (
                Some(Push::Message {
                    form,
                    channel,
                    payload,
                }),
                None,
            ) => assert_eq!((form, &*channel, &*payload), (sent_in, "x", &b"1"[..])),
            other => panic!("{kind}: {other:?}"),
        }
    }
}

/// A server or a proxy may send any.
#[test]
fn a_push_about_anything_else_is_no_news() {
    for parts in [
        vec![],
        vec![text("message")],
        vec![text("invalidate"), text("x")],
        vec![text("message"), Reply::Text(vec![0xff]), text("1")],
    ] {
        let (push, confirmed) = understood(parts);
        assert!(push.is_none() && confirmed.is_none(), "{push:?}");
    }
}
