//! `tidelock top`: who holds and who waits, of Rust and of Java.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::java::{JavaPeer, RedissonVersion};
use testkit::process::Spawned;
use testkit::servers::RedisServer;

use crate::{SOON, run, say, tidelock};

/// A process that is killed with the test.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        let command = command.stdin(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.stdout(Stdio::piped()).spawn()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // We ignore a failure: it means that the process has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lock `job` in one picture.
fn job(picture: &Value) -> Option<&Value> {
    picture["locks"]
        .as_array()?
        .iter()
        .find(|lock| lock["name"] == "job")
}

fn once(server: &RedisServer) -> Result<Value> {
    let said = say(&server.url(), &["top", "--once", "--json"])?;
    ensure!(said.code == 0, "{}", said.err);
    said.objects()?.pop().context("nothing is shown")
}

/// Repeats `top --once` until the lock is as expected.
fn until(server: &RedisServer, what: impl Fn(&Value) -> bool) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let picture = once(server)?;
        if job(&picture).is_some_and(&what) {
            return Ok(picture);
        }
        ensure!(begun.elapsed() < SOON * 3, "{picture}");
    }
}

/// Three processes of Rust and a JVM with Redisson. As soon as they wait, the store shows three waiting processes, which
/// may have more waiters; when the two of Rust have told, their rows are below the lock.
#[test]
fn top_names_the_holder_and_the_waiters_of_rust_and_java() -> Result<()> {
    let server = RedisServer::start()?;
    let _holder = run(&server, &[], "echo in; read line")?;
    let waiter = || Running::start(tidelock(&server.url(), &["run", "job", "--", "true"])?);
    let waiters = [waiter()?, waiter()?];
    let java = JavaPeer::start(RedissonVersion::Newest, server.url())?;
    let _waits = java.lock("a", "job").begin_lock()?;
    let seen = until(&server, |lock| lock["waiters"] == 3)?;
    let lock = job(&seen).context("it is awaited")?;
    ensure!(lock["waiters_is_lower_bound"] == true, "{lock}");
    let holder = &lock["holders"][0];
    ensure!(
        holder["who"]
            .as_str()
            .is_some_and(|who| who.starts_with("sh as "))
            && holder["gone"] == false,
        "{lock}"
    );
    let told = until(&server, |lock| {
        lock["waiting"]
            .as_array()
            .is_some_and(|told| told.len() == 2)
    })?;
    let lock = job(&told).context("it is awaited")?;
    ensure!(
        lock["waiters"] == 3 && lock["held_for_ms"].as_u64().is_some(),
        "{lock}"
    );
    ensure!(told["contended"] == 1 && told["lost"] == 0, "{told}");
    let text = say(&server.url(), &["top", "--once"])?.out;
    ensure!(text.contains("waiters 3+"), "{text}");
    drop(waiters);
    Ok(())
}

/// The pictures that a running `top` prints.
struct Pictures {
    _top: Running,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Pictures {
    fn of(server: &RedisServer, flags: &[&str]) -> Result<Self> {
        let args = [&["top", "-n", "90", "--json"], flags].concat();
        let mut top = Running::start(tidelock(&server.url(), &args)?)?;
        let out = top.0.stdout.take().context("no stdout")?;
        let lines = BufReader::new(out).lines();
        Ok(Self { _top: top, lines })
    }

    fn until(&mut self, what: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until_picture(|picture| job(picture).is_some_and(&what))
    }

    fn until_picture(&mut self, mut what: impl FnMut(&Value) -> bool) -> Result<Value> {
        loop {
            let line = self.lines.next().context("it has not come in time")??;
            let picture: Value = serde_json::from_str(&line)?;
            if what(&picture) {
                return Ok(picture);
            }
        }
    }
}

/// Reads the pictures that `top` prints with these flags until one is as expected.
pub(crate) fn until_pictures(
    server: &RedisServer,
    flags: &[&str],
    what: impl FnMut(&Value) -> bool,
) -> Result<Value> {
    Pictures::of(server, flags)?.until_picture(what)
}

/// While somebody watches, the processes tell every second. A holder that was killed is seen as gone long before its lease
/// ends, with the time after which others get its lock.
#[test]
fn top_shows_a_holder_that_was_killed_as_gone_before_its_lease_ends() -> Result<()> {
    let server = RedisServer::start()?;
    let mut pictures = Pictures::of(&server, &["--every", "1s"])?;
    // The first picture asks the processes to tell every second; those that start later find it.
    let begun = Instant::now();
    while !server
        .keys()?
        .iter()
        .any(|key| key.starts_with("tidelock:marks:"))
    {
        ensure!(begun.elapsed() < SOON, "top asks nobody");
    }
    let mut holder = run(&server, &["--lease", "5m"], "echo in; read line")?;
    let told = |lock: &Value| lock["held_for_ms"].is_u64() && lock["holders"][0]["gone"] == false;
    pictures.until(told)?;
    testkit::process::kill(holder.pid())?;
    let killed = Instant::now();
    let seen = pictures.until(|lock| lock["holders"][0]["gone"] == true)?;
    // Three beats have been missed: those of a second, and not those of ten seconds.
    ensure!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    let lock = job(&seen).context("it is listed")?;
    let left = lock["expires_in_ms"].as_u64();
    // Minutes, and no more than the lease.
    ensure!(
        left.is_some_and(|left| (60_000..=300_000).contains(&left)),
        "{lock}"
    );
    let text = say(&server.url(), &["top", "--once"])?.out;
    ensure!(text.contains("process gone, free in "), "{text}");
    holder.wait(SOON)?;
    Ok(())
}

/// The percentiles are those of all processes together: one has got its lock at once, and another after ten seconds.
#[test]
fn top_shows_how_long_the_calls_of_two_processes_waited() -> Result<()> {
    let server = RedisServer::start()?;
    let mut pictures = Pictures::of(&server, &["--every", "1s"])?;
    let holds = |name: &str| -> Result<Spawned> {
        let args = ["run", name, "--", "sh", "-c", "echo in; read line"];
        Spawned::start(tidelock(&server.url(), &args)?)
    };
    let mut first = holds("job")?;
    first.wait_line("in", SOON)?;
    let mut at_once = holds("other")?;
    at_once.wait_line("in", SOON)?;
    let mut later = holds("job")?;
    pictures.until(|lock| lock["longest_ms"].as_u64() > Some(10_000))?;
    first.write_line("")?;
    later.wait_line("in", SOON)?;
    let seen = pictures.until_picture(|picture| {
        let p99 = picture["wait"]["p99"]["ms"].as_f64();
        p99 > Some(10_000.0)
    })?;
    let p50 = &seen["wait"]["p50"];
    // A busy machine may need seconds for what is at once; the other wait was twice as long.
    ensure!(p50["ms"].as_f64() < Some(5_000.0), "{seen}");
    ensure!(p50["is_lower_bound"] == false, "{seen}");
    Ok(())
}

/// A user who may only read sees what the store shows; nothing fails.
#[test]
fn top_without_rights_shows_what_it_may_read() -> Result<()> {
    let server = RedisServer::start()?;
    let _holder = run(&server, &[], "echo in; read line")?;
    let reader = [
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">secret",
        "resetchannels",
        "~*",
        "+@read",
        "+eval",
        "+evalsha",
        "+info",
        "+ping",
        "+hello",
    ];
    server.admin(&reader)?;
    let mut top = tidelock(
        &server.url(),
        &["top", "-n", "1", "--json", "--user", "reader"],
    )?;
    top.env("TIDELOCK_PASSWORD", "secret");
    let said = crate::ended(top)?;
    ensure!(said.code == 0, "{}", said.err);
    ensure!(said.objects()?[0]["waiters"] == 0, "{}", said.out);
    Ok(())
}

/// What the server has executed since the last call, by command, without what this test sends.
pub(crate) fn executed(server: &RedisServer) -> Result<BTreeMap<String, u64>> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let mut executed = BTreeMap::new();
    for line in stats.lines() {
        let Some((name, rest)) = line.split_once(":calls=") else {
            continue;
        };
        let name = name.trim_start_matches("cmdstat_").to_owned();
        let calls = rest.split(',').next().unwrap_or_default().parse()?;
        executed.insert(name, calls);
    }
    let _: String = server.query(&["CONFIG", "RESETSTAT"])?;
    Ok(executed)
}

/// The number of commands of one look.
fn cost(server: &RedisServer) -> Result<u64> {
    executed(server)?;
    once(server)?;
    let executed = executed(server)?;
    for scan in ["scan", "keys", "hscan", "sscan", "zscan"] {
        ensure!(!executed.contains_key(scan), "{executed:?}");
    }
    Ok(executed.values().sum())
}

/// A look reads what processes tell and the channels of waiters. The other keys of the server cost it nothing, and of many
/// awaited locks it asks for 200.
#[test]
fn a_look_costs_the_same_with_many_keys() -> Result<()> {
    const FILL: &str = "for i = 1, 50000 do redis.call('set', 'k' .. i, i) \
        redis.call('hset', 'h' .. i, 'a:1', 1) redis.call('pexpire', 'h' .. i, 600000) end return 'OK'";
    let server = RedisServer::start()?;
    let _holder = run(&server, &[], "echo in; read line")?;
    let few = cost(&server)?;
    let _: String = server.query(&["EVAL", FILL, "0"])?;
    let many = cost(&server)?;
    // The process of the holder writes its record every ten seconds, or renews, also between the two counts.
    ensure!(many <= few + 10, "{few} commands, with 100,000 keys {many}");
    let url = server.url();
    let mut waiters = TcpStream::connect(url.trim_start_matches("redis://"))?;
    waiters.set_read_timeout(Some(SOON))?;
    let mut told = BufReader::new(waiters.try_clone()?).lines();
    for hundred in 0..10 {
        let channels =
            (0..100).map(|n| format!("redisson_lock__channel:{{h{}}}", hundred * 100 + n + 1));
        let channels: Vec<String> = channels.collect();
        waiters.write_all(format!("SUBSCRIBE {}\r\n", channels.join(" ")).as_bytes())?;
        let last = format!(":{}", (hundred + 1) * 100);
        while told.next().context("it has ended")?? != last {}
    }
    let contended = cost(&server)?;
    // A script with its five requests, and the details of the holder, which is twice the number of commands for each.
    ensure!(
        contended <= few + 200 * 12,
        "{few} commands, with 1,000 awaited locks {contended}"
    );
    let seen = once(&server)?;
    ensure!(seen["contended"] == 200, "{}", seen["contended"]);
    Ok(())
}
