//! The command on PostgreSQL.

use anyhow::{Context, Result, ensure};
use testkit::process::Spawned;
use testkit::servers::PostgresServer;

use crate::{SOON, refused, say, shown_job, tidelock};

#[test]
fn every_verb_works_on_postgres() -> Result<()> {
    let server = PostgresServer::start()?;
    let url = server.url();
    let args = [
        "run",
        "--lease",
        "6s",
        "job",
        "--",
        "sh",
        "-c",
        "echo in; read line",
    ];
    let mut holder = Spawned::start(tidelock(&url, &args)?)?;
    holder.wait_line("in", SOON)?;
    refused(&url, &["try", "job", "--", "true"])?.must(75, "job: not acquired: held by")?;
    let seen = shown_job(&url)?;
    let held_by = &seen["holders"][0];
    ensure!(
        held_by["pid"] == holder.pid() && held_by["program"] == "sh" && held_by["user"].is_string(),
        "{held_by}"
    );
    ensure!(seen["token"].as_u64() > Some(0));
    let mut waiter = Spawned::start(tidelock(&url, &["run", "job", "--", "echo", "mine"])?)?;
    let mut watch = Spawned::start(tidelock(&url, &["watch", "--every", "20ms", "job"])?)?;
    watch.wait_line("held", SOON)?;
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
    let told = say(&url, &["doctor"])?;
    ensure!(told.out.contains("NOTIFY is heard"), "{}", told.out);
    Ok(())
}

#[test]
fn the_shop_never_oversells_on_postgres() -> Result<()> {
    let server = PostgresServer::start()?;
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
fn session_locks_are_said_to_be_unlistable() -> Result<()> {
    let server = PostgresServer::start()?;
    let url = server.url();
    let mark = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{mark}locks=session");
    let mut holder = Spawned::start(tidelock(&url, &["hold", "job"])?)?;
    holder.wait_line("held job", SOON)?;
    for command in ["ls", "show"] {
        say(&url, &[command])?.must(64, "locks=session cannot be listed")?;
    }
    let told = say(&url, &["show", "job"])?.out;
    ensure!(told.starts_with("job: held by session "), "{told}");
    Ok(())
}
