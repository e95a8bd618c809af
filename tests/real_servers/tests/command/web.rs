//! `tidelock web` on Redis: what it costs the server, and what it shows while the server hangs or restarts. What does not
//! depend on the store is tested in the command's own crate.

pub(crate) mod browser;
mod chromium;
mod in_chromium;
mod unlocking;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::servers::RedisServer;

use crate::{SOON, run};
use browser::{EVERY, Events, Web};

/// What the page says if the store does not answer.
const TROUBLE: &str = "The store does not show its locks";

/// The commands that the server has executed for others than this test.
fn commands(server: &RedisServer) -> Result<u64> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let mut sum = 0;
    for line in stats.lines() {
        let Some((name, rest)) = line.split_once(":calls=") else {
            continue;
        };
        // What a connection of this test sends.
        let own = ["info", "hello", "auth", "select", "client"];
        let name = name.trim_start_matches("cmdstat_");
        if !own.iter().any(|own| name.starts_with(own)) {
            sum += rest.split(',').next().unwrap_or_default().parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Reads the streams until each has come this many pictures further. Returns how many commands one picture cost.
fn cost(server: &RedisServer, tabs: &mut [Events], pictures: u64) -> Result<f64> {
    let mut first = 0;
    for tab in &mut *tabs {
        first = first.max(tab.next()?.context("the stream has ended")?.number);
    }
    let (before, mut last) = (commands(server)?, 0);
    for tab in &mut *tabs {
        let event = tab.until_event(|event| event.number >= first + pictures)?;
        last = last.max(event.number);
    }
    let commands = commands(server)? - before;
    let numbers = [commands, last - first].map(u32::try_from);
    let [Ok(commands), Ok(pictures)] = numbers else {
        anyhow::bail!("{commands} commands");
    };
    Ok(f64::from(commands) / f64::from(pictures))
}

#[test]
fn seven_tabs_cost_the_store_no_more_than_one() -> Result<()> {
    let server = RedisServer::start()?;
    let web = Web::start(&server.url(), &[])?;
    let open = || web.events("");
    let one = cost(&server, &mut [open()?], 15)?;
    let tabs: Result<Vec<Events>> = (0..7).map(|_| open()).collect();
    let mut tabs = tabs?;
    let seven = cost(&server, &mut tabs, 15)?;
    // The processes are asked to tell every five seconds, so the figures differ a little.
    ensure!(one > 0.0 && seven < one * 2.0, "one {one}, seven {seven}");
    drop(tabs);
    // With no tab open, nothing is asked.
    let begun = Instant::now();
    let mut before = commands(&server)?;
    loop {
        std::thread::sleep(EVERY * 3);
        let now = commands(&server)?;
        if now == before {
            break;
        }
        before = now;
        ensure!(begun.elapsed() < SOON * 3, "the store is asked for nobody");
    }
    // A new tab does not get the picture of long ago. It may get the last one if the next is not due yet: on a busy machine
    // a look takes longer, and the next one comes later.
    let begun = Instant::now();
    loop {
        let opened = Instant::now();
        let shown = open()?.next()?.context("no event")?.shows;
        if age(&shown)? <= opened.elapsed() {
            return Ok(());
        }
        ensure!(begun.elapsed() < SOON * 3, "{shown}");
        std::thread::sleep(EVERY);
    }
}

/// How long ago the picture on the page was taken.
fn age(shows: &str) -> Result<Duration> {
    let from = shows.split_once("data-age=\"").context("no age")?.1;
    let millis = from.split('"').next().unwrap_or_default().parse()?;
    Ok(Duration::from_millis(millis))
}

#[test]
fn a_store_that_hangs_or_restarts_is_told_and_followed_again() -> Result<()> {
    let server = RedisServer::start()?;
    let holder = run(&server, &[], "echo in; read line")?;
    let web = Web::start(&server.url(), &[])?;
    let mut tab = web.events("")?;
    let is_well = |shows: &str| shows.contains("lock=job") && !shows.contains(TROUBLE);
    tab.until(is_well)?;
    server.freeze()?;
    // The last picture stays, with its age.
    let is_stuck = |shows: &str| {
        shows.contains(TROUBLE) && shows.contains("lock=job") && shows.contains(" ago")
    };
    tab.until(is_stuck)?;
    ensure!(is_stuck(&web.get("/")?.body), "a page without a script");
    ensure!(
        web.get("/api/locks")?.status == 503,
        "an old picture is none"
    );
    ensure!(web.get("/healthz")?.status == 200);
    server.thaw()?;
    tab.until(is_well)?;
    drop(holder);
    server.restart_empty()?;
    let _again = run(&server, &[], "echo in; read line")?;
    let number = tab.next()?.context("the stream has ended")?.number;
    tab.until_event(|event| event.number > number + 1 && is_well(&event.shows))?;
    ensure!(web.get("/api/locks")?.status == 200);
    Ok(())
}

#[test]
fn a_signal_ends_the_page_with_open_streams() -> Result<()> {
    let server = RedisServer::start()?;
    for (signal, hangs) in [
        (testkit::process::terminate as fn(u32) -> Result<()>, false),
        (testkit::process::interrupt, false),
        (testkit::process::terminate, true),
    ] {
        let mut web = Web::start(&server.url(), &[])?;
        let mut tabs = [web.events("")?, web.events("?lock=job")?];
        for tab in &mut tabs {
            tab.next()?.context("no event")?;
        }
        if hangs {
            server.freeze()?;
            tabs[0].until(|shows| shows.contains(TROUBLE))?;
        }
        signal(web.process.pid())?;
        let ended = web.process.wait(SOON)?;
        ensure!(ended.success(), "{ended}: {:?}", web.process.seen());
        for tab in &mut tabs {
            while tab.next()?.is_some() {}
        }
    }
    Ok(())
}
