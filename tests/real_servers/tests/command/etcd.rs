//! The command on etcd.

use anyhow::{Context, Result, ensure};
use testkit::process::Spawned;
use testkit::servers::EtcdServer;

use crate::{SOON, refused, say, shown_job, tidelock};

fn holder(url: &str, flags: &[&str], script: &str) -> Result<Spawned> {
    let args = [flags, &["run", "job", "--", "sh", "-c", script]].concat();
    let mut run = Spawned::start(tidelock(url, &args)?)?;
    run.wait_line("in", SOON)?;
    Ok(run)
}

#[test]
fn every_verb_works_on_etcd() -> Result<()> {
    let server = EtcdServer::start()?;
    let url = format!("{}/shop", server.url());
    let mut holder = holder(&url, &["--lease", "6s"], "echo in; read line")?;
    refused(&url, &["try", "job", "--", "true"])?.must(75, "job: not acquired: held by")?;
    let seen = shown_job(&url)?;
    let held_by = &seen["holders"][0];
    ensure!(
        held_by["pid"] == holder.pid() && held_by["program"] == "sh" && held_by["user"].is_string(),
        "{held_by}"
    );
    ensure!(seen["token"].as_u64() > Some(0) && seen["waiters"] == 0);
    let mut waiter = Spawned::start(tidelock(&url, &["run", "job", "--", "echo", "mine"])?)?;
    let mut watch = Spawned::start(tidelock(&url, &["watch", "--every", "20ms", "job"])?)?;
    watch.wait_line("1 waiting", SOON)?;
    ensure!(say(&url, &["ls"])?.out == "job\n");
    ensure!(say(&url, &["ls", "x*"])?.out.is_empty());
    say(&url, &["unlock", "--force", "job"])?.must(0, "job: unlocked")?;
    waiter.wait_line("mine", SOON)?;
    ensure!(waiter.wait(SOON)?.success());
    watch.wait_line("free", SOON)?;
    let status = holder.wait(SOON).context("the holder hears of it")?;
    ensure!(status.code() == Some(76), "{status}");
    say(&url, &["unlock", "--force", "job"])?.must(0, "job: was free")?;
    say(&url, &["run", "job", "--", "sh", "-c", "exit 3"])?.must(3, "")?;
    ensure!(say(&url, &["show", "job"])?.out.starts_with("job: free"));
    Ok(())
}

#[test]
fn the_shop_never_oversells_on_etcd() -> Result<()> {
    let server = EtcdServer::start()?;
    let size = ["--stock", "60", "--processes", "2", "--workers", "4"];
    let told = say(
        &server.url(),
        &[&["demo", "--json"], size.as_slice()].concat(),
    )?;
    told.must(0, "")?;
    let acts = told.objects()?;
    ensure!(acts.len() == 3, "{acts:?}");
    for act in &acts[1..] {
        ensure!(act["sold"] == 60 && act["oversold"] == 0, "{act}");
    }
    ensure!(
        acts[2]["refused_late_writes"].as_u64() > Some(0),
        "{}",
        acts[2]
    );
    Ok(())
}

#[test]
fn the_doctor_says_what_weakens_etcd() -> Result<()> {
    let server = EtcdServer::start()?;
    let told = say(&server.url(), &["doctor", "--json"])?;
    told.must(0, "")?;
    let found = told.objects()?;
    let severity = |subject: &str| {
        let found = found.iter().find(|one| one["subject"] == subject);
        found
            .map(|one| one["severity"].clone())
            .context("not looked at")
    };
    ensure!(severity("version")? == "good", "{found:?}");
    ensure!(severity("members")? == "advice", "{found:?}");
    ensure!(severity("shortest lease")? == "good", "{found:?}");
    server.kill()?;
    say(&server.url(), &["doctor"])?.must(69, "the store cannot be reached")
}

/// A call of `once` that a signal ends while it waits does not keep its position in the queue until its lease ends.
#[test]
fn a_once_that_is_terminated_while_it_waits_holds_up_nobody() -> Result<()> {
    let server = EtcdServer::start()?;
    let url = server.url();
    let mut holder = holder(&url, &["--lease", "60s"], "echo in; read line; exit 0")?;
    let args = [
        "--lease", "60s", "once", "--slot", "v7", "--wait", "10m", "job", "--", "true",
    ];
    let mut waiter = Spawned::start(tidelock(&url, &args)?)?;
    let mut watch = Spawned::start(tidelock(&url, &["watch", "--every", "20ms", "job"])?)?;
    watch.wait_line("1 waiting", SOON)?;
    testkit::process::terminate(waiter.pid())?;
    ensure!(
        waiter.wait(SOON)?.code() == Some(143),
        "{:?}",
        waiter.seen()
    );
    ensure!(say(&url, &["show", "job", "--json"])?.objects()?[0]["waiters"] == 0);
    holder.close_stdin();
    ensure!(holder.wait(SOON)?.success(), "{:?}", holder.seen());
    say(&url, &["try", "job", "--", "true"])?.must(0, "")
}
