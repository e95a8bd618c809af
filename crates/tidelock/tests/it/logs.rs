//! What the library logs. Each test runs in a process of its own: the first thread that reaches a log statement decides
//! for the whole process whether anybody listens, and the threads of other tests have no listener.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::testing::{Chaos, Faults, Plug};
use tidelock::{AcquireOptions, Client, ErrorKind, Guard};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::environment::passes_with;
use super::refused_releases::with_refused_releases;

/// The log of this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

async fn log_of_a_client(lease: Duration, response_timeout: Duration) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let scope = tracing::subscriber::set_default(subscriber);
    let builder = Client::builder()
        .lease(lease)
        .response_timeout(response_timeout);
    builder.connect("memory:").await.unwrap();
    drop(scope);
    log.text()
}

#[test]
fn a_lease_below_six_response_timeouts_warns() {
    passes_with("logs::short_and_long_leases", &[]);
}

#[tokio::test]
#[ignore = "a_lease_below_six_response_timeouts_warns runs it"]
async fn short_and_long_leases() {
    let second = Duration::from_secs(1);
    let short = log_of_a_client(second * 5, second).await;
    assert!(
        short.contains("WARN") && short.contains("lease is shorter than 6 response timeouts"),
        "{short}"
    );
    let long = log_of_a_client(second * 6, second).await;
    assert!(!long.contains("WARN"), "{long}");
}

const SECOND: Duration = Duration::from_secs(1);

/// Collects what this thread logs until the result is dropped, down to this level.
pub(crate) fn listen(level: tracing::Level) -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(level)
        .with_ansi(false)
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

/// Clients of one store on the clock of the test, so that the steward logs on its thread too. The first one can be
/// unplugged.
async fn two_clients(name: &str) -> (Client, Plug, Client) {
    let (plug, url) = (Plug::default(), format!("memory:{name}"));
    let (hand, same) = (plug.clone(), url.clone());
    let builder = || {
        Client::builder()
            .simulated_time()
            .publish_process_info(false)
    };
    let client = builder().connect_to(async move |env| {
        let store = tidelock::testing::open(&same, env).await?;
        Ok(Chaos::wrap(store, env, Faults::none(), hand))
    });
    let other = builder().connect(&url).await.unwrap();
    (client.await.unwrap(), plug, other)
}

/// The lines of that level.
fn lines<'a>(text: &'a str, level: &str) -> Vec<&'a str> {
    let level = format!(" {level} ");
    text.lines().filter(|line| line.contains(&level)).collect()
}

#[test]
fn a_loss_is_exactly_one_error_line_with_name_token_and_reason() {
    passes_with("logs::each_kind_of_loss", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "a_loss_is_exactly_one_error_line_with_name_token_and_reason runs it"]
async fn each_kind_of_loss() {
    for (reason, ends_by) in [
        ("expired", "silence"),
        ("taken", "renewal"),
        ("taken", "release"),
        ("taken", "drop"),
        ("max_hold", "cap"),
        ("closed", "close"),
    ] {
        let (client, plug, other) = two_clients(ends_by).await;
        let (log, scope) = listen(tracing::Level::TRACE);
        let mut options = AcquireOptions::new();
        if ends_by == "cap" {
            options = options.max_hold(SECOND);
        }
        let lock = client.lock("till").fenced();
        let guard = lock.acquire_with(options).await.unwrap();
        let lost = guard.lost();
        match ends_by {
            "silence" => plug.pull(),
            "cap" => {}
            "close" => _ = client.close(SECOND).await,
            _ => assert!(other.lock("till").force_release().await.unwrap()),
        }
        match ends_by {
            "release" => assert!(guard.release().await.is_err()),
            "drop" => drop(guard),
            _ => {
                lost.await;
                plug.put_back();
                drop(guard); // and what follows a loss adds no line
            }
        }
        tokio::time::sleep(SECOND * 60).await;
        drop(scope);
        let text = log.text();
        let [line] = lines(&text, "ERROR")[..] else {
            panic!("{ends_by}: {text}");
        };
        let parts = ["lock=till", "token=1 ", &format!("reason=\"{reason}\"")];
        for part in parts {
            assert!(line.contains(part), "{ends_by}: {part}: {line}");
        }
    }
}

#[test]
fn permits_that_may_be_missing_after_a_freeze_are_told() {
    passes_with("logs::an_acquire_that_is_undone_after_a_freeze", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "permits_that_may_be_missing_after_a_freeze_are_told runs it"]
async fn an_acquire_that_is_undone_after_a_freeze() {
    let (client, plug, _) = two_clients("freeze").await;
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(3).await.unwrap());
    let (log, scope) = listen(tracing::Level::WARN);
    plug.lose_replies(1);
    let mut acquire = Box::pin(slots.acquire(2));
    assert!(futures_util::poll!(acquire.as_mut()).is_pending());
    tokio::time::advance(SECOND * 400).await;
    drop(acquire);
    tokio::time::sleep(SECOND * 60).await;
    drop(scope);
    let text = log.text();
    assert!(
        lines(&text, "WARN")
            .iter()
            .any(|line| line.contains("its permits may be missing")),
        "{text}"
    );
}

#[test]
fn an_outage_is_one_warning_at_its_beginning_and_one_at_its_end() {
    passes_with("logs::an_outage", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "an_outage_is_one_warning_at_its_beginning_and_one_at_its_end runs it"]
async fn an_outage() {
    let (client, plug, _) = two_clients("outage").await;
    let guard = client.lock("held").acquire().await.unwrap();
    let (log, scope) = listen(tracing::Level::INFO);
    assert!(client.status().is_connected);
    plug.pull();
    let waits = (0..5).map(|n| {
        let lock = client.lock(&format!("wanted:{n}"));
        async move { lock.acquire_timeout(SECOND * 12).await.map(drop) }
    });
    for answer in futures_util::future::join_all(waits).await {
        answer.unwrap_err();
    }
    assert!(!client.status().is_connected);
    assert!(client.ping().await.is_err());
    plug.put_back();
    client.ping().await.unwrap();
    assert!(client.status().is_connected);
    guard.release().await.unwrap();
    tokio::time::sleep(SECOND * 60).await;
    drop(scope);
    let text = log.text();
    let [begins, ends] = lines(&text, "WARN")[..] else {
        panic!("{text}");
    };
    assert!(begins.contains("the store does not answer"), "{begins}");
    assert!(ends.contains("the store answers again lasted=12"), "{ends}");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn a_release_in_the_background_warns_if_the_lock_stays_held() {
    passes_with("logs::releases_in_the_background", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "a_release_in_the_background_warns_if_the_lock_stays_held runs it"]
async fn releases_in_the_background() {
    let (client, plug, other) = two_clients("background").await;
    let log_of = async |guard: Guard| {
        let (log, scope) = listen(tracing::Level::INFO);
        drop(guard);
        tokio::time::sleep(SECOND * 60).await;
        drop(scope);
        log.text()
    };
    let stays = "could not be released; it stays held";

    let guard = client.lock("taken").acquire().await.unwrap();
    other.lock("taken").force_release().await.unwrap();
    let text = log_of(guard).await;
    let [loss] = lines(&text, "ERROR")[..] else {
        panic!("{text}");
    };
    assert!(loss.contains("lock=taken"), "{loss}");
    assert!(!text.contains(stays), "there is nothing to release: {text}");

    // Its first part is freed before, so the background finds it free.
    let refused = with_refused_releases("memory:background", ErrorKind::Refused).await;
    let both = other.multi_lock([other.lock("one"), refused.lock("two")]);
    let guard = both.unwrap().acquire().await.unwrap();
    let (log, scope) = listen(tracing::Level::INFO);
    guard.release().await.unwrap_err();
    tokio::time::sleep(SECOND * 60).await;
    drop(scope);
    assert_eq!(log.text(), "", "it is no loss");

    let guard = client.lock("kept").acquire().await.unwrap();
    plug.pull();
    let text = log_of(guard).await;
    assert_eq!(text.matches(stays).count(), 1, "{text}");
}

#[test]
fn a_barrier_that_opens_is_neither_a_loss_nor_slow() {
    passes_with("logs::members_of_a_barrier", &[]);
}

/// A member that comes frees by force the lock behind which the others wait.
#[tokio::test(start_paused = true)]
#[ignore = "a_barrier_that_opens_is_neither_a_loss_nor_slow runs it"]
async fn members_of_a_barrier() {
    let (client, _, other) = two_clients("barrier").await;
    let (log, scope) = listen(tracing::Level::WARN);
    let enter = |client: &Client| client.barrier("solver", 2);
    let mut waits = Box::pin(async { enter(&client).enter().await.unwrap() });
    assert!(
        tokio::time::timeout(SECOND * 9, waits.as_mut())
            .await
            .is_err()
    );
    let (first, second) = tokio::join!(waits, async { enter(&other).enter().await.unwrap() });
    tokio::time::sleep(SECOND * 60).await;
    drop((first, second));
    tokio::time::sleep(SECOND * 60).await;
    drop(scope);
    assert_eq!(log.text(), "");
}

#[test]
fn a_candidate_that_waits_long_is_not_slow() {
    passes_with("logs::candidates", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "a_candidate_that_waits_long_is_not_slow runs it"]
async fn candidates() {
    let (client, _, other) = two_clients("candidates").await;
    let term = other.election("billing").campaign().await.unwrap();
    let (log, scope) = listen(tracing::Level::WARN);
    let election = client.election("billing");
    let mut campaign = Box::pin(election.campaign());
    assert!(
        tokio::time::timeout(SECOND * 3600, campaign.as_mut())
            .await
            .is_err()
    );
    term.resign().await.unwrap();
    let term = campaign.await.unwrap();
    drop(scope);
    assert_eq!(log.text(), "");
    term.resign().await.unwrap();
}

#[test]
fn a_wait_for_a_guard_of_the_same_client_is_not_logged_above_debug() {
    passes_with("logs::a_wait_for_the_own_client", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "a_wait_for_a_guard_of_the_same_client_is_not_logged_above_debug runs it"]
async fn a_wait_for_the_own_client() {
    let (client, _, _) = two_clients("own").await;
    let guard = client.lock("item").acquire().await.unwrap();
    for (level, is_logged) in [(tracing::Level::INFO, false), (tracing::Level::DEBUG, true)] {
        let (log, scope) = listen(level);
        let waits = client.lock("item").acquire_timeout(SECOND).await;
        assert!(waits.is_err_and(|error| error.is_timeout()));
        drop(scope);
        let text = log.text();
        assert_eq!(
            text.contains("a guard of the same client"),
            is_logged,
            "{text}"
        );
    }
    guard.release().await.unwrap();
}

#[test]
fn a_renewal_is_logged_if_it_has_renewed_a_lock() {
    passes_with("logs::renewals", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "a_renewal_is_logged_if_it_has_renewed_a_lock runs it"]
async fn renewals() {
    let (client, _, other) = two_clients("renewals").await;
    let guard = client.lock("till").acquire().await.unwrap();
    for is_held in [true, false] {
        if !is_held {
            assert!(other.lock("till").force_release().await.unwrap());
        }
        let (log, scope) = listen(tracing::Level::DEBUG);
        tokio::time::sleep(SECOND * 11).await;
        drop(scope);
        let text = log.text();
        let renewed = lines(&text, "DEBUG")
            .into_iter()
            .filter(|line| line.contains("renewed locks="));
        assert_eq!(renewed.count(), usize::from(is_held), "{text}");
    }
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn status_and_ping_send_no_request_that_changes_a_lock() {
    let (client, plug, other) = two_clients("status").await;
    let held = other.lock("a").acquire().await.unwrap();
    let (own, lock) = (client.lock("b").acquire().await.unwrap(), client.lock("a"));
    let waits = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(SECOND).await;
    let before = plug.requests();
    let status = client.status();
    assert_eq!(
        (status.held, status.waiting, status.is_closing),
        (1, 1, false)
    );
    assert!(status.since_last_answer.unwrap() <= SECOND);
    client.ping().await.unwrap();
    assert_eq!(client.status().since_last_answer, Some(Duration::ZERO));
    assert_eq!(plug.requests(), before);
    held.release().await.unwrap();
    drop((own, waits.await.unwrap().unwrap()));
    tokio::time::sleep(SECOND).await;
    assert_eq!((client.status().held, client.status().waiting), (0, 0));
    client.close(SECOND).await;
    assert!(client.status().is_closing && client.ping().await.is_err());
}

#[test]
fn an_acquire_has_a_span_with_its_end_and_a_slow_one_names_the_holder() {
    passes_with("logs::spans_of_acquires", &[]);
}

#[tokio::test]
#[ignore = "an_acquire_has_a_span_with_its_end_and_a_slow_one_names_the_holder runs it"]
async fn spans_of_acquires() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .finish();
    // For all threads: the steward logs too.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    // Longer than a busy machine holds up the first acquire, which would use up the one line in 30 s.
    let threshold = Duration::from_millis(300);
    let client = Client::builder().slow_acquire(threshold);
    let client = client.connect("memory:").await.unwrap();
    let lock = client.lock("stock:42");
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner_id();
    for _ in 0..2 {
        let patient = AcquireOptions::new().wait(threshold);
        lock.acquire_with(patient).await.unwrap_err();
    }
    guard.release().await.unwrap();
    let fair = client.fair_lock("seats");
    let guard = fair.acquire().await.unwrap();
    let patient = AcquireOptions::new().wait(threshold);
    fair.acquire_with(patient).await.unwrap_err();
    guard.release().await.unwrap();
    let passed = client.lock("passed");
    let guard = passed.acquire().await.unwrap();
    let others = [(); 2].map(|()| tokio::spawn(passed.acquire()));
    while client.stats().waiting < 2 {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    for other in others {
        other.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(client.stats().handed_over, 1);
    client.close(Duration::from_secs(1)).await;

    let log = log.text();
    let lines = |part: &str| -> Vec<&str> { log.lines().filter(|it| it.contains(part)).collect() };
    let acquired = lines(r#"tidelock.outcome="acquired""#);
    assert!(acquired[0].contains(r#"tidelock.path="direct""#), "{log}");
    assert!(acquired[0].contains("tidelock.token=1"), "{log}");
    assert!(acquired[0].contains("tidelock.attempts=1"), "{log}");
    let timed_out = lines(r#"tidelock.outcome="timed_out""#);
    assert_eq!(timed_out.len(), 3, "{log}");
    let positions = lines("tidelock.queue.position=");
    // The fair lock's only: the queue of a plain lock has no positions.
    assert_eq!(positions.len(), 1, "{log}");
    assert!(positions[0].contains("tidelock.queue.position=1"), "{log}");
    // The second attempt said that the caller waits.
    assert!(positions[0].contains("tidelock.attempts=2"), "{log}");
    assert!(positions[0].contains("seats"), "{log}");
    // A timeout that the caller asked for is no error.
    assert!(!log.contains("error.type"), "{log}");
    let holds = lines("tidelock.hold{");
    assert_eq!(holds.len(), 5, "{log}");
    // One of them by hand-off.
    let passed = holds.iter().filter(|it| it.contains("passed"));
    assert_eq!(passed.count(), 3, "{log}");
    let slow = lines("an acquire took long");
    assert_eq!(slow.len(), 1, "at most one in 30 s: {log}");
    assert!(
        slow[0].contains("WARN") && slow[0].contains(&owner),
        "{log}"
    );
    assert!(slow[0].contains("logs.rs"), "where it waited: {log}");
}

#[test]
fn a_slow_acquire_warns_unless_an_error_says_what_was_wrong() {
    passes_with("logs::slow_acquires", &[]);
}

#[tokio::test(start_paused = true)]
#[ignore = "a_slow_acquire_warns_unless_an_error_says_what_was_wrong runs it"]
async fn slow_acquires() {
    for (end, warns) in [
        ("acquired", true),
        ("timed_out", true),
        ("error", false),
        ("cancelled", false),
        ("quick", false),
    ] {
        let (client, plug, other) = two_clients(&format!("slow-{end}")).await;
        let (log, scope) = listen(tracing::Level::WARN);
        let lock = client.lock("till");
        let held = other.lock("till").acquire().await.unwrap();
        let owner = held.owner_id();
        match end {
            "acquired" => {
                let waits = tokio::spawn(lock.acquire());
                tokio::time::sleep(SECOND * 5).await;
                held.release().await.unwrap();
                waits.await.unwrap().unwrap().release().await.unwrap();
            }
            "timed_out" => _ = lock.acquire_timeout(SECOND * 5).await.unwrap_err(),
            "error" => {
                plug.pull();
                lock.acquire().await.unwrap_err();
            }
            "cancelled" => _ = tokio::time::timeout(SECOND * 5, lock.acquire()).await,
            _ => {
                held.release().await.unwrap();
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        }
        tokio::time::sleep(SECOND).await;
        drop(scope);
        let text = log.text();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("an acquire took long"))
            .collect();
        assert_eq!(lines.len(), usize::from(warns), "{end}: {text}");
        for line in lines {
            let outcome = format!("outcome=\"{end}\"");
            assert!(line.contains(&outcome), "{line}");
            // The store names the holder only while the lock is held.
            let holder = if end == "timed_out" {
                &*owner
            } else {
                "unknown"
            };
            assert!(line.contains(&format!("holder={holder}")), "{line}");
        }
    }
}
