//! Showing the holders, breaking a lock, and the doctor.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::process::Spawned;
use testkit::servers::RedisServer;

use crate::{SOON, run, say, shown_job, tidelock};

#[test]
fn show_and_ls_tell_who_holds_what() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let mut holder = run(&server, &[], "echo in; read line; exit 0")?;
    server.admin(&["SET", "text", "no lock"])?;
    let lock = shown_job(&url)?;
    ensure!(
        lock["name"] == "job" && lock["locked"] == true && lock["token"].is_null(),
        "{lock}"
    );
    let held_by = &lock["holders"][0];
    ensure!(
        held_by["pid"] == holder.pid()
            && held_by["program"] == "sh"
            && held_by["user"].is_string()
            && held_by["holds"] == 1,
        "{held_by}"
    );
    let left = lock["expires_in_ms"].as_u64();
    ensure!(
        left.is_some_and(|left| (1..=30_000).contains(&left)),
        "{lock}"
    );
    ensure!(say(&url, &["show"])?.out.starts_with("job: held by sh as "));
    ensure!(say(&url, &["ls"])?.out == "job\n");
    ensure!(say(&url, &["ls", "x*"])?.out.is_empty());
    say(&url, &["show", "text"])?.must(69, "text: the key holds something that is not a lock")?;
    holder.close_stdin();
    ensure!(holder.wait(SOON)?.success());
    ensure!(say(&url, &["show", "job"])?.out.starts_with("job: free"));
    ensure!(say(&url, &["ls"])?.out.is_empty());
    Ok(())
}

#[test]
fn a_hold_of_redisson_is_shown_and_can_be_broken() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let java = "7f7c1a34-0000-4000-8000-000000000001:51";
    server.admin(&["HSET", "job", java, "3"])?;
    server.admin(&["PEXPIRE", "job", "30000"])?;
    let shown = say(&url, &["show", "--json", "job"])?.objects()?;
    let held_by = &shown.first().context("nothing is shown")?["holders"][0];
    ensure!(
        held_by["owner"] == java && held_by["holds"] == 3,
        "{held_by}"
    );
    say(&url, &["unlock", "job"])?.must(64, "--force")?;
    ensure!(server.keys()? == ["job"]);
    say(&url, &["unlock", "--force", "job"])?.must(0, "job: unlocked")?;
    ensure!(server.keys()?.is_empty(), "{:?}", server.keys()?);
    say(&url, &["unlock", "--force", "job"])?.must(0, "job: was free")?;
    Ok(())
}

#[test]
fn t65_show_says_which_kind_of_lock_stands_there() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let java = "7f7c1a34-0000-4000-8000-000000000001:51";
    let writer = format!("{java}:write");
    server.admin(&["HSET", "job", "mode", "write", &writer, "1", java, "2"])?;
    server.admin(&["PEXPIRE", "job", "30000"])?;
    let shown = say(&url, &["show", "--json", "job"])?.objects()?;
    let lock = shown.first().context("nothing is shown")?;
    let modes = [&lock["holders"][0]["mode"], &lock["holders"][1]["mode"]];
    ensure!(
        lock["kind"] == "read-write" && modes == ["write", "read"],
        "{lock}"
    );
    let text = say(&url, &["show", "job"])?.out;
    ensure!(
        text.starts_with(&format!(
            "job: held by {java} to write and {java} to read, 2 times"
        )),
        "{text}"
    );
    ensure!(say(&url, &["ls", "--modes"])?.out == "job\twrite\t2\n");
    say(&url, &["unlock", "--force", "job"])?.must(0, "job: unlocked")?;
    ensure!(server.query::<i64, _>(&["EXISTS", "job"])? == 0);
    // A foreign kind of lock in the same key as one of ours.
    let mut holder = run(&server, &[], "echo in; read line; exit 0")?;
    server.admin(&["HSET", "job", "mode", "write", &writer, "1"])?;
    let shown = say(&url, &["show", "--json", "job"])?.objects()?;
    ensure!(shown[0]["kind"] == "mixed", "{shown:?}");
    let text = say(&url, &["show", "job"])?.out;
    ensure!(text.contains("two kinds of lock"), "{text}");
    ensure!(say(&url, &["ls", "--modes"])?.out == "job\tmixed\t2\n");
    holder.close_stdin();
    // The command learns of the loss when it ends, if not before.
    ensure!(holder.wait(SOON)?.code() == Some(76));
    Ok(())
}

#[test]
fn t68_counts_and_counters_of_any_kind_are_shown() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let java = "7f7c1a34-0000-4000-8000-000000000001:51";
    server.admin(&["HSET", "job", java, "three"])?;
    for counter in ["9223372036854775807", "9223372036854775808", "-7", "seven"] {
        server.admin(&["SET", "redisson_lock_token:{job}", counter])?;
        let shown = say(&url, &["show", "--json", "job"])?.objects()?;
        let lock = shown.first().context("nothing is shown")?;
        ensure!(
            lock["locked"] == true && lock["holders"][0]["holds"] == 0,
            "{lock}"
        );
        let number = counter
            .parse::<u64>()
            .ok()
            .filter(|number| *number < 1 << 63);
        ensure!(lock["token"].as_u64() == number, "{lock}");
        let text = say(&url, &["show", "job"])?;
        text.must(0, "")?;
        ensure!(
            text.out.contains("an unreadable hold count"),
            "{}",
            text.out
        );
    }
    say(&url, &["unlock", "--force", "job"])?.must(0, "job: unlocked")?;
    // The counter is not a number, so there is no next token: the command fails at once instead of waiting.
    let said = say(
        &url,
        &["run", "--fenced", "--wait", "20s", "job", "--", "true"],
    )?;
    said.must(69, "redisson_lock_token:{job}")?;
    Ok(())
}

#[test]
fn the_doctor_warns_of_a_server_that_throws_locks_away() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let eviction = |objects: Vec<Value>| {
        let found = objects.into_iter().find(|one| one["subject"] == "eviction");
        found
            .map(|one| one["severity"].clone())
            .context("nothing about eviction")
    };
    let fine = say(&url, &["doctor", "--json"])?;
    fine.must(0, "")?;
    ensure!(eviction(fine.objects()?)? == "good");
    server.admin(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    server.admin(&["CONFIG", "SET", "maxmemory", "100mb"])?;
    let bad = say(&url, &["doctor", "--json"])?;
    bad.must(1, "")?;
    ensure!(eviction(bad.objects()?)? == "danger");
    server.kill()?;
    say(&url, &["doctor"])?.must(69, "the store cannot be reached")?;
    Ok(())
}

/// A latch and a counting semaphore have no holders; their numbers are what changes.
#[test]
fn watch_tells_every_change_of_a_number() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(tidelock::Client::connect(&url))?;
    let (latch, slots) = (client.latch("steps"), client.counting_semaphore("slots"));
    runtime.block_on(latch.set_count_if_new(7))?;
    runtime.block_on(slots.set_permits_if_new(7))?;
    let watch = |name| Spawned::start(tidelock(&url, &["watch", "--every", "10ms", name])?);
    let mut watches = [watch("steps")?, watch("slots")?];
    for watch in &mut watches {
        watch.wait_line("7", SOON)?;
    }
    runtime.block_on(latch.count_down())?;
    runtime.block_on(slots.acquire(1))?;
    for watch in &mut watches {
        watch.wait_line("6", SOON)?;
    }
    Ok(())
}

#[test]
fn watch_and_top_go_on_after_an_outage_of_the_store() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let mut watch = Spawned::start(tidelock(&url, &["watch", "--every", "20ms", "job"])?)?;
    let mut top = Spawned::start(tidelock(&url, &["top", "--every", "1s", "--json"])?)?;
    watch.wait_line("job: free", SOON)?;
    top.wait_line("\"locks\":", SOON)?;
    server.kill()?;
    watch.wait_line("tidelock: ", SOON)?;
    top.wait_line("tidelock: ", SOON)?;
    server.restart()?;
    watch.wait_line("job: free", SOON)?;
    top.wait_line("\"locks\":", SOON)?;
    let mut holder = run(&server, &[], "echo in; read line; exit 0")?;
    watch.wait_line("job: held by sh as ", SOON)?;
    let told = |line: &&String| line.starts_with("tidelock: ");
    for process in [&mut watch, &mut top] {
        testkit::process::interrupt(process.pid())?;
        ensure!(process.wait(SOON)?.success(), "{:?}", process.seen());
        let told = process.seen().iter().filter(told).count();
        ensure!(told == 1, "{:?}", process.seen());
    }
    holder.close_stdin();
    ensure!(holder.wait(SOON)?.success(), "{:?}", holder.seen());
    Ok(())
}

/// A wrong URL must not look like an outage, and a script gets the number of pictures that it has asked for, or an error.
#[test]
fn an_outage_ends_what_has_shown_nothing_and_what_prints_a_number_of_pictures() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let args = ["top", "--every", "1s", "--json", "-n", "90"];
    let mut top = Spawned::start(tidelock(&url, &args)?)?;
    top.wait_line("\"locks\":", SOON)?;
    server.kill()?;
    ensure!(top.wait(SOON)?.code() == Some(69), "{:?}", top.seen());
    say(&url, &["watch", "job"])?.must(69, "the store cannot be reached")?;
    Ok(())
}
