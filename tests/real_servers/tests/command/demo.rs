//! The demo with small numbers.

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;

use crate::say;

#[test]
fn the_shop_oversells_without_a_lock_and_never_with_it() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let size = ["--stock", "60", "--processes", "2", "--workers", "4"];
    let told = say(&url, &[&["demo", "--json"], size.as_slice()].concat())?;
    told.must(0, "")?;
    let acts = told.objects()?;
    ensure!(acts.len() == 3, "{acts:?}");
    for (number, act) in (1..).zip(&acts) {
        ensure!(
            act["act"] == number && act["stock"] == 60 && act["store"] == url,
            "{act}"
        );
    }
    ensure!(acts[0]["oversold"].as_u64() > Some(0), "{}", acts[0]);
    for act in &acts[1..] {
        ensure!(act["sold"] == 60 && act["oversold"] == 0, "{act}");
        ensure!(
            act["wait_p99_ms"].as_f64() >= act["wait_p50_ms"].as_f64(),
            "{act}"
        );
    }
    ensure!(
        acts[2]["refused_late_writes"].as_u64() > Some(0),
        "{}",
        acts[2]
    );
    // Fencing counters stay, as Redisson's do; our other keys expire.
    let left = server.keys()?;
    let stays =
        |key: &String| !key.starts_with("redisson_lock_token:") && !key.starts_with("tidelock:");
    ensure!(!left.iter().any(stays), "{left:?}");
    Ok(())
}
