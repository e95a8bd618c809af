//! A viewer looks at every key of a server only if it is asked to, and it asks a server that has too much to do seldom.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::process::Spawned;
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;

use crate::top::{executed, until_pictures};
use crate::web::browser::Web;
use crate::{SOON, say, tidelock};

/// What reads the names of keys.
const SCANS: [&str; 6] = ["scan", "keys", "hscan", "sscan", "zscan", "randomkey"];

/// A server with 200,000 keys that are no locks, and two locks of Java that nobody waits for.
fn filled() -> Result<RedisServer> {
    const FILL: &str = "for i = 1, 100000 do redis.call('set', 'k' .. i, i) \
        redis.call('hset', 'h' .. i, 'field', 1) end return 'OK'";
    let server = RedisServer::start()?;
    let _: String = server.query(&["EVAL", FILL, "0"])?;
    hold_as_java(&server)?;
    Ok(server)
}

/// Two locks as a Java service leaves them.
fn hold_as_java(server: &RedisServer) -> Result<()> {
    for name in ["order:1", "order:2"] {
        let java = format!("7f7c1a34-0000-4000-8000-00000000000{}:51", &name[6..]);
        server.admin(&["HSET", name, &java, "1"])?;
        server.admin(&["PEXPIRE", name, "600000"])?;
    }
    Ok(())
}

/// Subscribes to many channels that belong to no lock.
fn many_channels(server: &RedisServer) -> Result<TcpStream> {
    let mut many = TcpStream::connect(server.url().trim_start_matches("redis://"))?;
    many.set_read_timeout(Some(SOON))?;
    let mut told = BufReader::new(many.try_clone()?).lines();
    for hundred in 1..=100 {
        let channels: Vec<String> = (0..100).map(|n| format!("news:{hundred}:{n}")).collect();
        many.write_all(format!("SUBSCRIBE {}\r\n", channels.join(" ")).as_bytes())?;
        let last = format!(":{}", hundred * 100);
        while told.next().context("it has ended")?? != last {}
    }
    Ok(many)
}

#[test]
fn a_viewer_reads_no_names_of_keys_unless_it_is_asked_to() -> Result<()> {
    let server = filled()?;
    let _channels = many_channels(&server)?;
    let assert_none = |viewer: &str| {
        let executed = executed(&server)?;
        let seen = SCANS.iter().find(|scan| executed.contains_key(**scan));
        ensure!(seen.is_none(), "{viewer}: {executed:?}");
        ensure!(
            executed.contains_key("pubsub|channels"),
            "it looked: {executed:?}"
        );
        Ok(())
    };
    executed(&server)?;
    for args in [
        &["top", "--once"][..],
        &["top", "-n", "3", "--every", "1s", "--json"],
    ] {
        let said = say(&server.url(), args)?;
        ensure!(said.code == 0, "{}", said.err);
        assert_none(&args.join(" "))?;
    }
    let web = Web::start(&server.url(), &[])?;
    let mut tab = web.events("")?;
    let first = tab.next()?.context("no event")?.number;
    tab.until_event(|event| event.number > first + 2)?;
    for page in ["/?lock=order%3A1", "/api/locks", "/metrics"] {
        ensure!(web.get(page)?.status == 200, "{page}");
    }
    assert_none("web")
}

/// Of Java's locks that nobody waits for, only a scan tells. `--once` waits for all of it.
#[test]
fn a_scan_finds_the_locks_that_no_process_tells_of() -> Result<()> {
    let server = filled()?;
    let names = |picture: &Value| -> Vec<String> {
        let locks = picture["locks"].as_array().into_iter().flatten();
        let mut names: Vec<String> = locks
            .filter_map(|lock| Some(lock["name"].as_str()?.to_owned()))
            .collect();
        names.sort();
        names
    };
    let once = |flags: &[&str]| -> Result<Value> {
        let said = say(
            &server.url(),
            &[&["top", "--once", "--json"], flags].concat(),
        )?;
        ensure!(said.code == 0, "{}", said.err);
        said.objects()?.pop().context("nothing is shown")
    };
    let without = once(&[])?;
    ensure!(
        names(&without).is_empty() && without["scan"].is_null(),
        "{without}"
    );
    let all = once(&["--scan"])?;
    ensure!(names(&all) == ["order:1", "order:2"], "{all}");
    ensure!(
        all["scan"]["whole"] == true && all["scan"]["locks"] == 2,
        "{all}"
    );
    ensure!(all["locks"][0]["expires_in_ms"].is_u64(), "{all}");
    Ok(())
}

/// A viewer that goes on scans a part with each look, for one percent of the time between two looks.
#[test]
fn a_scan_goes_on_from_look_to_look() -> Result<()> {
    let flags = ["--scan", "--every", "1s"];
    let server = filled()?;
    executed(&server)?;
    let first = until_pictures(&server, &flags, |picture| picture["scan"]["locks"].is_u64())?;
    let scans = executed(&server)?.get("scan").copied().unwrap_or(0);
    // All of it would be 800 pages of each type of key.
    ensure!((1..400).contains(&scans), "{scans} pages in one look");
    ensure!(first["scan"]["whole"] == false, "{first}");
    let later = until_pictures(&server, &flags, |picture| {
        picture["viewer_share_of_a_core"].as_f64() > Some(0.0)
    })?;
    let share = later["viewer_share_of_a_core"].as_f64();
    ensure!(share <= Some(0.01), "{later}");
    let few = RedisServer::start()?;
    hold_as_java(&few)?;
    let whole = until_pictures(&few, &flags, |picture| picture["scan"]["whole"] == true)?;
    ensure!(whole["scan"]["locks"] == 2, "{whole}");
    few.admin(&["DEL", "order:1"])?;
    // The next round finds it no more.
    until_pictures(&few, &flags, |picture| {
        picture["scan"] == json!({ "locks": 1, "whole": true, "failed": null })
    })?;
    Ok(())
}

/// A server with too much to do answers a ping, but not a look. Without a pause it would be asked for as much again and again,
/// by each viewer.
#[test]
fn a_server_that_is_too_slow_for_a_look_is_asked_seldom() -> Result<()> {
    const WATCHED: Duration = Duration::from_secs(8);
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let slow = proxy.on_each(When::command("PUBSUB", ""), Then::DropReply);
    let web = Web::impatient(&proxy.url(), Duration::from_millis(500))?;
    let mut tab = web.events("")?;
    // It says why nothing newer comes.
    let told = tab.until(|shows| shows.contains("the store answers, but a look that fails"))?;
    let looks = proxy.count("PUBSUB");
    ensure!(looks > 0, "{}", told.shows);
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        std::thread::sleep(WATCHED / 20);
    }
    let more = proxy.count("PUBSUB") - looks;
    // A look that fails after half a second counts as half a second of work, so the next one comes after 50.
    ensure!(more == 0, "{more} looks in {WATCHED:?}");
    drop(slow);
    Ok(())
}

/// A server that hangs does no work. It is seen soon after it is back.
#[test]
fn a_server_that_was_away_is_seen_when_it_is_back() -> Result<()> {
    let server = RedisServer::start()?;
    // A server that answers later than this counts as one that has too much to do.
    let web = Web::impatient(&server.url(), Duration::from_secs(3))?;
    let mut tab = web.events("")?;
    let is_well =
        |shows: &str| shows.contains("waiters") && !shows.contains("does not show its locks");
    tab.until(is_well)?;
    server.freeze()?;
    for _ in 0..4 {
        // Not while it still waits for an answer.
        tab.until(|shows| !is_well(shows) && !shows.contains("not answered for two seconds"))?;
    }
    server.thaw()?;
    let back = Instant::now();
    tab.until(is_well)?;
    ensure!(back.elapsed() < SOON / 2, "{:?}", back.elapsed());
    Ok(())
}

/// A scan of a large server takes minutes, and one of a server that hangs waits for it.
#[test]
fn ctrl_c_ends_a_scan_that_is_under_way() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let _hangs = proxy.on_each(When::command("SCAN", ""), Then::DropReply);
    let mut top = tidelock(&proxy.url(), &["top", "--once", "--scan"])?;
    top.env("TIDELOCK_RESPONSE_TIMEOUT_MS", "600000");
    let mut top = Spawned::start(top)?;
    proxy.wait_until(SOON, |proxy| proxy.count("SCAN") > 0)?;
    let begun = Instant::now();
    testkit::process::interrupt(top.pid())?;
    let ended = top.wait(SOON)?;
    ensure!(ended.code() == Some(130), "{ended}: nothing was printed");
    // A request without a reply would fail after ten minutes.
    ensure!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    Ok(())
}
