//! The command on ZooKeeper.

use anyhow::{Context, Result, ensure};
use testkit::process::{Spawned, is_alive};
use testkit::servers::ZooKeeperServer;

use crate::{SOON, refused, say, tidelock};

fn holder(url: &str, flags: &[&str], script: &str) -> Result<Spawned> {
    let args = [flags, &["run", "job", "--", "sh", "-c", script]].concat();
    let mut run = Spawned::start(tidelock(url, &args)?)?;
    run.wait_line("in", SOON)?;
    Ok(run)
}

#[test]
fn every_verb_works_on_zookeeper() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    let url = format!("{}/shop", server.url());
    let mut holder = holder(&url, &["--lease", "6s"], "echo in; read line")?;
    refused(&url, &["try", "job", "--", "true"])?.must(75, "job: not acquired: held by")?;
    let seen = say(&url, &["show", "job", "--json"])?.objects()?;
    let held_by = &seen[0]["holders"][0];
    ensure!(
        held_by["pid"] == holder.pid() && held_by["program"] == "sh" && held_by["user"].is_string(),
        "{held_by}"
    );
    ensure!(seen[0]["token"].as_u64() > Some(0) && seen[0]["waiters"] == 0);
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

/// Read-write locks are shown with the side of each holder, and a forced release frees all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sides_of_a_read_write_lock_are_shown() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    let url = format!("{}/shop", server.url());
    let client = tidelock::Client::connect(&url).await?;
    let sides = client.read_write_lock("prices");
    let readers = [sides.read().acquire().await?, sides.read().acquire().await?];
    let seen = say(&url, &["show", "prices", "--json"])?.objects()?;
    let holders = seen[0]["holders"].as_array().context("a list")?;
    ensure!(holders.len() == 2, "{seen:?}");
    ensure!(holders.iter().all(|one| one["mode"] == "read"), "{seen:?}");
    let told = say(&url, &["show", "prices"])?.out;
    ensure!(told.matches(" to read").count() == 2, "{told}");
    ensure!(say(&url, &["ls", "--modes"])?.out == "prices\tread\t2\n");
    say(&url, &["unlock", "--force", "prices"])?.must(0, "prices: unlocked")?;
    drop(readers);
    let writer = sides.write().acquire().await?;
    ensure!(say(&url, &["ls", "--modes"])?.out == "prices\twrite\t1\n");
    writer.release().await?;
    Ok(())
}

#[test]
fn the_shop_never_oversells_on_zookeeper() -> Result<()> {
    let server = ZooKeeperServer::start()?;
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
fn the_doctor_says_what_weakens_zookeeper() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    let url = format!("{}/shop", server.url());
    say(&url, &["run", "job", "--", "true"])?.must(0, "")?;
    let told = say(&url, &["doctor", "--json"])?;
    told.must(0, "")?;
    let found = told.objects()?;
    let severity = |subject: &str| {
        let found = found.iter().find(|one| one["subject"] == subject);
        found
            .map(|one| one["severity"].clone())
            .context("not looked at")
    };
    ensure!(severity("session timeout")? == "good", "{found:?}");
    ensure!(severity("servers")? == "advice", "{found:?}");
    ensure!(severity("rights")? == "advice", "{found:?}");
    // A ZooKeeper user of its own: no other user may read its nodes.
    let own = format!("zookeeper://me:hush@{}/own", server.addr());
    say(&own, &["run", "job", "--", "true"])?.must(0, "")?;
    // A lock is held during the rest: otherwise the server removes the empty `/own`, and anybody may make a new one.
    let mut kept = Spawned::start(tidelock(&own, &["hold", "kept"])?)?;
    kept.wait_line("held kept", SOON)?;
    let told = say(&own, &["doctor"])?;
    ensure!(told.out.contains("not open to the world"), "{}", told.out);
    let stranger = format!("{}/own", server.url());
    let refused = say(&stranger, &["run", "job", "--", "true"])?;
    refused.must(77, "refused by the store")?;
    let wrong = format!("zookeeper://me:hash@{}/own", server.addr());
    let refused = say(&wrong, &["run", "job", "--", "true"])?;
    refused.must(77, "refused by the store")?;
    ensure!(!refused.err.contains("hash"), "{}", refused.err);
    kept.close_stdin();
    ensure!(kept.wait(SOON)?.success(), "{:?}", kept.seen());
    server.kill()?;
    say(&url, &["doctor"])?.must(69, "the store cannot be reached")
}

#[test]
fn a_command_does_not_outlive_its_session() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    let stubborn = "trap '' TERM; echo in $$; while :; do sleep 0.2; done";
    let mut run = holder(&server.url(), &["--lease", "6s"], stubborn)?;
    let line = run.seen().last().cloned().context("it said something")?;
    let pid = line.trim_start_matches("in ").parse()?;
    server.kill()?;
    ensure!(run.wait(SOON)?.code() == Some(76), "{:?}", run.seen());
    ensure!(!is_alive(pid), "the command outlived its lock");
    Ok(())
}

#[test]
fn readers_share_a_lock_and_a_writer_does_not() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    let url = format!("{}/shop", server.url());
    let mut reader = Spawned::start(tidelock(&url, &["hold", "prices", "--read"])?)?;
    reader.wait_line("held prices", SOON)?;
    say(&url, &["try", "prices", "--read", "--", "true"])?.must(0, "")?;
    say(&url, &["try", "prices", "--write", "--", "true"])?.must(75, "prices: not acquired")?;
    reader.close_stdin();
    ensure!(reader.wait(SOON)?.success());
    say(&url, &["try", "prices", "--write", "--", "true"])?.must(0, "")?;
    Ok(())
}
