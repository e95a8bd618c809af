//! The command on stores that keep a lock in one key and cannot wake waiters.

use anyhow::{Context, Result, ensure};
use testkit::servers::{MemcachedServer, RedisServer};

use crate::{SOON, Spawned, say, shown_job, tidelock};

#[test]
fn it_speaks_to_memcached() -> Result<()> {
    let server = MemcachedServer::start()?;
    works_on(&server.url(), "best effort")?;
    say(&server.url(), &["run", "--fenced", "job", "--", "true"])?.must(64, "token")?;
    say(&server.url(), &["run", "--fair", "job", "--", "true"])?
        .must(64, "fair locks; these have: memory:, sqlite:")?;
    sells(&server.url(), false)
}

#[test]
fn it_takes_plain_locks_on_redis() -> Result<()> {
    let server = RedisServer::start()?;
    let url = format!("{}?locks=plain", server.url());
    works_on(&url, "one plain key")?;
    sells(&url, true)
}

fn works_on(url: &str, finding: &str) -> Result<()> {
    let script = "echo in; read line";
    let args = ["run", "--lease", "6s", "job", "--", "sh", "-c", script];
    let mut holder = Spawned::start(tidelock(url, &args)?)?;
    holder.wait_line("in", SOON)?;
    say(url, &["try", "job", "--", "true"])?.must(75, "job")?;
    let seen = shown_job(url)?;
    ensure!(
        seen["holders"][0]["program"] == "sh" && seen["holders"][0]["user"].is_string(),
        "{seen}"
    );
    let listed = say(url, &["ls"])?;
    ensure!(listed.out.contains("job"), "{}", listed.out);
    let findings = say(url, &["doctor"])?;
    ensure!(findings.out.contains(finding), "{}", findings.out);
    let mut watcher = Spawned::start(tidelock(url, &["watch", "job"])?)?;
    watcher.wait_line("held", SOON)?;
    say(url, &["unlock", "--force", "job"])?.must(0, "")?;
    watcher.wait_line("free", SOON)?;
    let status = holder.wait(SOON).context("the holder hears of it")?;
    ensure!(status.code() == Some(76), "{status}");
    say(url, &["run", "job", "--", "true"])?.must(0, "")
}

/// The demo with small numbers. On a store without tokens it leaves out the third act.
fn sells(url: &str, counts: bool) -> Result<()> {
    let size = ["--stock", "40", "--processes", "2", "--workers", "4"];
    let told = say(url, &[&["demo", "--json"], size.as_slice()].concat())?;
    told.must(0, "")?;
    let acts = told.objects()?;
    ensure!(acts.len() == 3, "{acts:?}");
    ensure!(
        acts[1]["sold"] == 40 && acts[1]["oversold"] == 0,
        "{}",
        acts[1]
    );
    ensure!(acts[2]["sold"].is_null() != counts, "{}", acts[2]);
    Ok(())
}
