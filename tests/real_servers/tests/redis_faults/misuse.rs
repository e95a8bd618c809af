//! T45 to T47, T54, T55: callers that cancel at any point, that misuse their guards, or that pass invalid input. The
//! checks are those of the conformance suite, which runs on every store; here they run on a real server under the names
//! of the catalogue.

use std::time::Duration;

use real_servers::logs::Logs;
use testkit::servers::RedisServer;
use tidelock::testing::Fixture;
use tidelock::testing::promises::{cancel, names, options, reentry};
use tidelock::{AcquireOptions, Client, ErrorKind};

#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = RedisServer::start().expect("a server starts");
    Fixture::url(server.url()).keeping(server)
}

/// T45: the acquire is dropped at every await point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t45_an_acquire_dropped_at_every_await_point_leaves_nothing() {
    let fixture = fixture();
    cancel::an_acquire_dropped_anywhere_leaves_nothing(&fixture).await;
    cancel::a_wait_dropped_anywhere_leaves_nothing(&fixture).await;
}

/// T46: the guard is dropped inside a runtime, outside one, during its shutdown, and in a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t46_a_guard_dropped_anywhere_releases() {
    let fixture = fixture();
    cancel::a_panic_releases(&fixture).await;
    cancel::a_guard_dropped_outside_a_runtime_releases(&fixture).await;
    cancel::the_end_of_a_runtime_leaves_nothing(&fixture).await;
}

/// T47: the release is cancelled at every await point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t47_a_cancelled_release_still_releases() {
    cancel::a_release_dropped_anywhere_still_releases(&fixture()).await;
}

/// T54: re-entry across tasks, guards released together, releases after a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t54_misuse_never_frees_somebody_else() {
    let fixture = fixture();
    reentry::an_owner_in_two_tasks_shares_one_hold(&fixture).await;
    reentry::guards_released_together_release(&fixture).await;
    reentry::the_last_guard_out_releases(&fixture).await;
    reentry::a_lost_hold_is_not_reentered(&fixture).await;
    tidelock::testing::promises::lease::release_after_loss_never_touches_the_next_holder(&fixture)
        .await;
}

/// T55: invalid names and durations, and the whole range of valid ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t55_bad_input_is_refused_before_any_traffic() {
    let fixture = fixture();
    names::bad_names_are_refused_before_traffic(&fixture).await;
    names::every_good_name_works(&fixture).await;
    options::senseless_durations_are_refused(&fixture).await;
}

/// Random text from the characters that often break lock names: hash tags, separators, escapes, wide characters, NUL.
fn odd_text(dice: &mut fastrand::Rng) -> String {
    const ODD: [&str; 16] = [
        "{", "}", ":", "*", "?", "\\", "\"", "'", " ", "\n", "\0", "ü", "漢", "🔒", "a", "%s",
    ];
    (0..dice.usize(..24))
        .map(|_| ODD[dice.usize(..ODD.len())])
        .collect()
}

fn odd_time(dice: &mut fastrand::Rng) -> Duration {
    let exponent = dice.u32(..64);
    Duration::from_nanos(dice.u64(..=u64::MAX >> exponent))
}

/// T55: for any input the caller gets a lock that it can release, or an error that names the problem; never a panic.
#[tokio::test]
async fn t55_any_name_and_any_duration_work_or_are_refused() -> anyhow::Result<()> {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let server = RedisServer::start()?;
    let client = Client::connect(&server.url()).await?;
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..300 {
        let name = odd_text(&mut dice);
        let options = AcquireOptions::new()
            .expires_after(odd_time(&mut dice))
            .wait(odd_time(&mut dice));
        match client.lock(&name).acquire_with(options).await {
            Ok(guard) => {
                taken += 1;
                // The lease may have expired before the release, which is a valid outcome.
                if let Err(error) = guard.release().await {
                    assert_eq!(error.kind(), ErrorKind::Lost, "{name:?}: {error}");
                }
            }
            Err(error) => {
                refused += 1;
                let expected = [
                    ErrorKind::InvalidName,
                    ErrorKind::InvalidOptions,
                    // A wait or a lease shorter than a round trip.
                    ErrorKind::TimedOut,
                    ErrorKind::Unavailable,
                    ErrorKind::OutcomeUnknown,
                ];
                assert!(expected.contains(&error.kind()), "{name:?}: {error}");
            }
        }
    }
    assert!(
        taken > 20 && refused > 20,
        "{taken} taken, {refused} refused"
    );
    client.close(Duration::ZERO).await;
    let left: Vec<String> = server
        .keys()?
        .into_iter()
        .filter(|key| !key.starts_with("tidelock:"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

/// T54: a client that waits for a lock held by one of its own guards appears to hang. The log reports it, with the
/// source location of both calls.
#[tokio::test]
async fn t54_a_client_that_waits_for_itself_says_so_with_both_places() -> anyhow::Result<()> {
    let logs = Logs::gather_debug();
    let server = RedisServer::start()?;
    let client = Client::connect(&server.url()).await?;
    let lock = client.lock("stock");
    let (held_line, held) = (line!(), lock.acquire().await?);
    let wait = AcquireOptions::new().wait(Duration::from_millis(20));
    let (waiting_line, refused) = (line!(), lock.acquire_with(wait).await);
    assert!(refused.is_err_and(|error| error.is_timeout()));
    let said = logs.with("waits for a guard of the same client");
    assert_eq!(said.len(), 1, "{said:?}");
    for line in [held_line, waiting_line] {
        assert!(said[0].contains(&format!("misuse.rs:{line}:")), "{said:?}");
    }
    held.release().await?;
    Ok(())
}
