//! What a lock costs in allocations on its caller's side: one too many is paid for by every request, and it creeps in unseen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;

use anyhow::Result;
use testkit::servers::RedisServer;
use tidelock::Client;

const ROUNDS: u64 = 500;

/// Two for the call of `acquire`, one for its future, two for the owner's name, one for each of the two futures behind
/// `dyn Backend`, four for the hold, its guard and the line of its name, one for the future that releases, one for each of the two keys that
/// are made, and one for the list in the answer of the script. The pipeline itself needs none.
const PAIR: u64 = 15;

/// Per round, on this thread. The connection lives on it too; the steward does not.
fn allocations<F: Future>(runtime: &tokio::runtime::Runtime, mut round: impl FnMut() -> F) -> u64 {
    let mut some = |rounds| {
        runtime.block_on(async {
            for _ in 0..rounds {
                round().await;
            }
        });
    };
    some(ROUNDS);
    let counted = allocation_counter::measure(|| some(ROUNDS));
    counted.count_total.div_ceil(ROUNDS)
}

#[test]
fn a_pair_allocates_what_a_profile_excuses() -> Result<()> {
    let server = RedisServer::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let client = runtime.block_on(Client::builder().details(false).connect(&server.url()))?;
    let lock = client.lock("a");
    let pair = allocations(&runtime, || async {
        lock.acquire().await.unwrap().release().await.unwrap();
    });
    assert_eq!(pair, PAIR, "allocations for each acquire and release");
    Ok(())
}
