//! What a client counts: every outcome once, in `Client::stats` and in a scrape of the `metrics` facade.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tidelock::test_util::Plug;
use tidelock::{AcquireOptions, CancelToken, Client, ErrorKind, HandOff, LostReason, Owner};
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

/// The recorder of this process. Each test has a group of its own, so the tests do not count each other's locks.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap())
}

async fn client(group: &str, hand_off: HandOff) -> Client {
    recorder();
    Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .hand_off(hand_off)
        .metric_groups([("*", group)])
        .connect(&format!("memory:{group}"))
        .await
        .unwrap()
}

/// The value of the series of that metric and group that has all these labels. 0: there is none.
fn scraped(group: &str, metric: &str, labels: &[(&str, &str)]) -> u64 {
    let scrape = recorder().render();
    let group = format!(r#"group="{group}""#);
    let all = labels
        .iter()
        .map(|(name, value)| format!(r#"{name}="{value}""#));
    let all: Vec<_> = all.chain([group]).collect();
    let line = scrape.lines().find(|line| {
        line.starts_with(&format!("{metric}{{")) && all.iter().all(|label| line.contains(label))
    });
    let value = line.and_then(|line| line.rsplit_once(' '));
    value.map_or(0, |(_, value)| value.parse().unwrap())
}

/// What the test has counted itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    direct: u64,
    waited: u64,
    handed_over: u64,
    reentered: u64,
    busy: u64,
    timed_out: u64,
    cancelled: u64,
    failed: u64,
    expired: u64,
    taken: u64,
    max_hold: u64,
    closed: u64,
}

impl Counted {
    fn by_stats(client: &Client) -> Self {
        let stats = client.stats();
        let lost = |wanted| {
            let found = stats.lost.iter().find(|(reason, _)| *reason == wanted);
            found.unwrap().1
        };
        Self {
            direct: stats.acquired_directly,
            waited: stats.acquired_after_wait,
            handed_over: stats.handed_over,
            reentered: stats.reentered,
            busy: stats.busy,
            timed_out: stats.timed_out,
            cancelled: stats.cancelled,
            failed: stats.failed,
            expired: lost(LostReason::Expired),
            taken: lost(LostReason::Taken),
            max_hold: lost(LostReason::MaxHold),
            closed: lost(LostReason::Closed),
        }
    }

    fn by_scrape(group: &str) -> Self {
        let ended = |labels: &[_]| scraped(group, "tidelock_acquire_duration_count", labels);
        let lost = |reason| scraped(group, "tidelock_losses", &[("reason", reason)]);
        Self {
            direct: ended(&[("path", "direct")]),
            waited: ended(&[("path", "waited")]),
            handed_over: ended(&[("path", "handed_over")]),
            reentered: ended(&[("path", "reentered")]),
            busy: ended(&[("outcome", "busy")]),
            timed_out: ended(&[("outcome", "timed_out")]),
            cancelled: ended(&[("outcome", "cancelled")]),
            failed: ended(&[("outcome", "error"), ("error_type", "closed")]),
            expired: lost("expired"),
            taken: lost("taken"),
            max_hold: lost("max_hold"),
            closed: lost("closed"),
        }
    }
}

/// Waits until the client has that many waiters.
async fn waiters(client: &Client, number: u64) {
    while client.stats().waiting != number {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Acquires that end in each way but by a close, `times` times each.
async fn acquires(client: &Client, other: &Client, times: u64, counted: &mut Counted) {
    for round in 0..times {
        // A name for each round: a lock that a drop releases in the background may still be held for a moment.
        let name = format!("a{round}");
        let lock = client.lock(&name);
        let held = lock.acquire().await.unwrap();
        counted.direct += 1;
        assert!(lock.try_acquire().await.unwrap().is_none());
        counted.busy += 1;
        lock.acquire_timeout(SECOND).await.unwrap_err();
        counted.timed_out += 1;
        let token = CancelToken::new();
        let waits = lock.acquire_with(AcquireOptions::new().cancel(&token));
        token.cancel();
        waits.await.unwrap_err();
        drop(tokio::time::timeout(SECOND, lock.acquire()).await);
        counted.cancelled += 2;
        // `memory:` counts tokens, and reserves some for hand-overs only when it sees waiters. So the first of two gets
        // the lock from the store, and the second from the first.
        let first = tokio::spawn(lock.acquire());
        waiters(client, 1).await;
        let second = tokio::spawn(lock.acquire());
        waiters(client, 2).await;
        held.release().await.unwrap();
        first.await.unwrap().unwrap().release().await.unwrap();
        counted.waited += 1;
        second.await.unwrap().unwrap().release().await.unwrap();
        counted.handed_over += 1;

        let held = other.lock(&name).acquire().await.unwrap();
        let next = tokio::spawn(lock.acquire());
        waiters(client, 1).await;
        held.release().await.unwrap();
        drop(next.await.unwrap().unwrap());
        counted.waited += 1;

        let owner = Owner::new();
        let reentrant = client.lock("b");
        let options = || AcquireOptions::new().owner(&owner);
        let outer = reentrant.acquire_with(options()).await.unwrap();
        let inner = reentrant.acquire_with(options()).await.unwrap();
        counted.direct += 1;
        counted.reentered += 1;
        drop(inner);
        outer.release().await.unwrap();
    }
}

/// Losses of each kind but by a close, `times` times each.
async fn losses(client: &Client, times: u64, counted: &mut Counted) {
    for round in 0..times {
        // A name for each round: the lease ends in the store a moment after the holder was told.
        let lock = client.lock(&format!("c{round}"));
        let options = AcquireOptions::new().expires_after(SECOND);
        let guard = lock.acquire_with(options).await.unwrap();
        assert_eq!(guard.lost().await, LostReason::Expired);
        counted.expired += 1;
        drop(guard);
        let lock = client.lock("d");
        let guard = lock.acquire().await.unwrap();
        assert!(lock.force_release().await.unwrap());
        assert_eq!(guard.lost().await, LostReason::Taken);
        counted.taken += 1;
        guard.release().await.unwrap_err();
        let options = AcquireOptions::new().max_hold(SECOND);
        let guard = client
            .lock(&format!("e{round}"))
            .acquire_with(options)
            .await
            .unwrap();
        assert_eq!(guard.lost().await, LostReason::MaxHold);
        counted.max_hold += 1;
        drop(guard);
        counted.direct += 3;
    }
}

#[tokio::test(start_paused = true)]
async fn a_scrape_equals_what_the_test_counted_for_twelve_outcomes() {
    let group = "twelve";
    let client = client(group, HandOff::default().within(SECOND * 3600)).await;
    let other = Client::builder()
        .simulated_time()
        .connect(&format!("memory:{group}"))
        .await
        .unwrap();
    let mut counted = Counted::default();
    acquires(&client, &other, 3, &mut counted).await;
    losses(&client, 2, &mut counted).await;
    let left = client.lock("f").acquire().await.unwrap();
    counted.direct += 1;
    assert_eq!(client.stats().held, 1);
    assert_eq!(scraped(group, "tidelock_hold_count", &[]), 1);
    client.close(Duration::ZERO).await;
    counted.closed += 1;
    client.lock("f").acquire().await.unwrap_err();
    counted.failed += 1;
    drop(left);

    assert_eq!(Counted::by_stats(&client), counted);
    assert_eq!(Counted::by_scrape(group), counted);
    let stats = client.stats();
    assert_eq!((stats.held, stats.waiting), (0, 0));
    assert_eq!(scraped(group, "tidelock_hold_count", &[]), 0);
    assert_eq!(scraped(group, "tidelock_waiter_count", &[]), 0);
    assert_eq!(stats.wait.count(), stats.acquired());
    assert_eq!(stats.hold.count(), stats.acquired() - stats.reentered);
    let ends = ["released", "dropped", "lost"];
    let holds = ends.map(|end| scraped(group, "tidelock_hold_duration_count", &[("end", end)]));
    assert_eq!(holds.iter().sum::<u64>(), stats.hold.count());
    assert_eq!(holds[2], stats.losses());
}

#[tokio::test(start_paused = true)]
async fn waits_and_holds_are_measured() {
    let client = client("measured", HandOff::default()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let next = tokio::spawn(lock.acquire());
    tokio::time::sleep(SECOND * 25).await;
    held.release().await.unwrap();
    let held = next.await.unwrap().unwrap();
    let stats = client.stats();
    assert_eq!(stats.wait.quantile(1.0), Some(SECOND * 30));
    assert!(stats.wait.sum >= SECOND * 25 && stats.wait.sum < SECOND * 26);
    assert!(stats.hold.sum >= SECOND * 25 && stats.hold.sum < SECOND * 26);
    // Two renewals, each at a third of the lease of 30 s, which leaves two thirds.
    assert_eq!(stats.lease_margin.count(), 2);
    assert_eq!(stats.lease_margin.quantile(1.0), Some(SECOND * 30));
    assert!(stats.store_latency.count() >= 3);
    held.release().await.unwrap();
}

/// A lock that is released wakes its waiter by a message, and one whose holder is gone is found by the timer.
#[tokio::test(start_paused = true)]
async fn what_ended_a_wait_is_counted() {
    let far = client("wakes", HandOff::default()).await;
    let client = client("wakes", HandOff::default()).await;
    let (lock, theirs) = (client.lock("a"), far.lock("a"));
    let held = theirs.acquire().await.unwrap();
    let next = tokio::spawn(lock.acquire());
    waiters(&client, 1).await;
    held.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    let stats = client.stats();
    let wakes = (
        stats.woken_by_message,
        stats.woken_by_timer,
        stats.useful_wakes,
    );
    assert_eq!(wakes, (1, 0, 1));

    let short = AcquireOptions::new().expires_after(SECOND * 5);
    let held = theirs.acquire_with(short).await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    drop(held);
    let stats = client.stats();
    let wakes = (
        stats.woken_by_message,
        stats.woken_by_timer,
        stats.useful_wakes,
    );
    assert_eq!(wakes, (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_goes_back_to_the_store_says_why() {
    let group = "stops";
    let client = client(group, HandOff::default().times(1)).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let mut tasks = Vec::new();
    for number in 1..=3 {
        tasks.push(tokio::spawn(lock.acquire()));
        waiters(&client, number).await;
    }
    held.release().await.unwrap(); // no token was reserved for a hand-over
    for task in tasks {
        task.await.unwrap().unwrap().release().await.unwrap();
    }
    let stats = client.stats();
    assert_eq!((stats.handed_over, stats.returned_in_doubt), (1, 1));
    assert_eq!(
        (stats.returned_after_count, stats.returned_after_time),
        (1, 0)
    );
    let scraped = |result| scraped(group, "tidelock_handovers", &[("result", result)]);
    let all = ["passed", "doubt", "count", "time"].map(scraped);
    assert_eq!(all, [1, 1, 1, 0]);
}

/// A hold that nobody took, because its caller had left, is no hold that stays in the gauge.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_while_it_is_called_leaves_no_count_behind() {
    let client = client("leaves", HandOff::default()).await;
    let lock = client.lock("a");
    for _ in 0..10 {
        let held = lock.acquire().await.unwrap();
        let mut next = Box::pin(lock.acquire());
        assert!(futures_util::poll!(&mut next).is_pending());
        assert_eq!(client.stats().waiting, 1);
        held.release().await.unwrap();
        drop(next); // it was called, and has not taken the hold
        waiters(&client, 0).await;
    }
    while client.stats().held > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.stats().cancelled, 10);
}

/// A release without an answer goes on in the background. What comes of it is counted once.
#[tokio::test(start_paused = true)]
async fn a_release_that_goes_on_in_the_background_is_counted_by_its_end() {
    let plug = Plug::new();
    let builder = || {
        Client::builder()
            .simulated_time()
            .publish_process_info(false)
    };
    let client = builder().plug(&plug).connect("memory:cleanups").await;
    let client = client.unwrap();
    let other = builder().connect("memory:cleanups").await.unwrap();
    let cleanups = || {
        let stats = client.stats();
        (
            stats.cleanups_undone,
            stats.cleanups_of_nothing,
            stats.cleanups_given_up,
        )
    };
    let mut releases = JoinSet::new();
    let begin = async |releases: &mut JoinSet<tidelock::Result<()>>, name| {
        let guard = client.lock(name).acquire().await.unwrap();
        plug.pull();
        releases.spawn(async move { guard.release().await });
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    begin(&mut releases, "a").await;
    plug.put_back();
    releases.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(cleanups(), (1, 0, 0));

    begin(&mut releases, "b").await;
    assert!(other.lock("b").force_release().await.unwrap());
    plug.put_back();
    let error = releases.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
    assert_eq!(cleanups(), (1, 1, 0), "another has freed it");

    begin(&mut releases, "c").await;
    let error = releases.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(cleanups(), (1, 1, 1), "until the lease had ended");
}

/// A viewer asks for processes and waiters, and for no lock if there is none. The store answers it all the same.
#[tokio::test(start_paused = true)]
async fn the_answers_to_a_viewer_count_as_answers_of_the_store() {
    let client = client("viewer", HandOff::default()).await;
    let silent_for = || client.status().since_last_answer;
    tokio::time::sleep(SECOND).await;
    assert_ne!(silent_for(), Some(Duration::ZERO));
    client.processes().await.unwrap();
    assert_eq!(silent_for(), Some(Duration::ZERO));
    tokio::time::sleep(SECOND).await;
    client.watch_processes().await.unwrap();
    assert_eq!(silent_for(), Some(Duration::ZERO));
}
