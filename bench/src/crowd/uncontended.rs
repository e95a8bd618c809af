//! What a hand-over costs a lock that nobody waits for.

use std::time::Duration;

use anyhow::Result;
use load::{Contender, Side as _};
use testkit::servers::RedisServer;
use tidelock::Client;

use crate::books::Books;
use crate::crowd::Ours;
use crate::crowd::hand_over::{HandedOver, Told};
use crate::figures::{middle, number, short};
use crate::raw::Raw;

const PAIRS: usize = 2_000;
const ROUNDS: usize = 5;

/// The server's own counts for one pair of acquire and release.
struct Pair {
    scripts: f64,
    inside: f64,
    cpu_us: f64,
}

pub(super) async fn run(server: &RedisServer) -> Result<()> {
    let url = server.url();
    let client = Client::builder().publish_process_info(false);
    let client = client.connect(&url).await?;
    let (mut plain, mut fair) = (Ours(client.lock("own")), Ours(client.fair_lock("own fair")));
    let mut bare = Raw::connect(&url).await?.contender("own bare")?;
    let mut prototype = HandedOver::connect(&url, "own prototype", 0, Told::Asks).await?;
    let mut seen: [(&str, Vec<Pair>); 4] = [
        ("bare scripts", Vec::new()),
        ("`lock`", Vec::new()),
        ("`fair_lock`", Vec::new()),
        ("prototype", Vec::new()),
    ];
    for _ in 0..ROUNDS {
        seen[0].1.push(pairs(server, &mut bare).await?);
        seen[1].1.push(pairs(server, &mut plain).await?);
        seen[2].1.push(pairs(server, &mut fair).await?);
        seen[3].1.push(pairs(server, &mut prototype).await?);
    }
    client.close(Duration::ZERO).await;
    println!("| a pair that nobody waits for | requests | commands inside | server CPU, µs |");
    println!("| --- | ---: | ---: | ---: |");
    for (about, pairs) in &seen {
        let figure = |figure: fn(&Pair) -> f64| short(middle(pairs, figure));
        let (scripts, inside) = (figure(|pair| pair.scripts), figure(|pair| pair.inside));
        let cpu = figure(|pair| pair.cpu_us);
        println!("| {about} | {scripts} | {inside} | {cpu} |");
    }
    Ok(())
}

async fn pairs(server: &RedisServer, contender: &mut impl Contender) -> Result<Pair> {
    let held = contender.acquire().await?; // connects and loads the scripts
    contender.release(held).await?;
    let before = counted(server)?;
    for _ in 0..PAIRS {
        let held = contender.acquire().await?;
        contender.release(held).await?;
    }
    let after = counted(server)?;
    let each = |after: f64, before: f64| (after - before) / number(PAIRS);
    Ok(Pair {
        scripts: each(after.scripts, before.scripts),
        inside: each(after.inside, before.inside),
        cpu_us: each(after.cpu_us, before.cpu_us),
    })
}

/// The sums since the start of the server.
fn counted(server: &RedisServer) -> Result<Pair> {
    let info: String = server.query(&["INFO", "commandstats"])?;
    let (mut scripts, mut inside) = (0.0, 0.0);
    for line in info.lines() {
        let Some((command, figures)) = line.split_once(':') else {
            continue;
        };
        let calls = figures.split(',').find_map(|it| it.strip_prefix("calls="));
        let calls = calls.map_or(Ok(0.0), str::parse)?;
        match command {
            "cmdstat_evalsha" => scripts += calls,
            "cmdstat_info" => {}
            _ => inside += calls,
        }
    }
    Ok(Pair {
        scripts,
        inside,
        cpu_us: Books::read(server)?.cpu_us,
    })
}
