//! What Redis Functions would save: the two scripts of a lock that nobody else wants, as functions and by their hashes.
//! For docs/decisions/0051.
//!
//! `cargo run --profile bench -p bench --example functions`

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bench::books::Books;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use testkit::servers::RedisServer;
use tidelock::store::redis_scripts;

const ROUNDS: usize = 9;
/// How many pairs are in one write, and how many writes a round has.
const TOGETHER: usize = 64;
const WRITES: usize = 400;

/// How the scripts are called.
#[derive(Debug, Clone, Copy)]
enum Form {
    Hash,
    Function,
    /// Functions with names of one letter.
    ShortFunction,
}

const FORMS: [(Form, &str); 3] = [
    (Form::Hash, "`EVALSHA`"),
    (Form::Function, "`FCALL tidelock_acquire`"),
    (Form::ShortFunction, "`FCALL a`"),
];

/// The text of a library. Inside a function the parameters have the names that a script has for them.
fn library(name: &str, [acquire, release]: [&str; 2]) -> String {
    let function = |name: &str, body: &str| {
        format!("redis.register_function('{name}', function(KEYS, ARGV)\n{body}\nend)\n")
    };
    format!(
        "#!lua name={name}\n{}{}",
        function(acquire, redis_scripts::acquire()),
        function(release, redis_scripts::release())
    )
}

struct Calls {
    db: MultiplexedConnection,
    hashes: [String; 2],
}

impl Calls {
    async fn open(server: &RedisServer) -> Result<Self> {
        let client = redis::Client::open(server.url())?;
        let mut db = client.get_multiplexed_async_connection().await?;
        for text in [
            library("long", ["tidelock_acquire", "tidelock_release"]),
            library("short", ["a", "r"]),
        ] {
            let mut load = redis::cmd("FUNCTION");
            let _: Value = load.arg("LOAD").arg(text).query_async(&mut db).await?;
        }
        let mut hashes = Vec::new();
        for script in [redis_scripts::acquire(), redis_scripts::release()] {
            let mut load = redis::cmd("SCRIPT");
            let hash: String = load.arg("LOAD").arg(script).query_async(&mut db).await?;
            hashes.push(hash);
        }
        let hashes = hashes.try_into().ok().context("two hashes")?;
        Ok(Self { db, hashes })
    }

    /// The calls of one pair.
    fn pair(&self, form: Form, name: &str, owner: &str) -> [Cmd; 2] {
        let (command, [acquire, release]) = match form {
            Form::Hash => ("EVALSHA", self.hashes.each_ref().map(String::as_str)),
            Form::Function => ("FCALL", ["tidelock_acquire", "tidelock_release"]),
            Form::ShortFunction => ("FCALL", ["a", "r"]),
        };
        let call = |what: &str| {
            let mut call = redis::cmd(command);
            call.arg(what).arg(1).arg(name);
            call
        };
        let (mut acquire, mut release) = (call(acquire), call(release));
        acquire.arg("30000").arg(owner);
        release.arg(owner);
        [acquire, release]
    }

    /// The server's time for each pair in microseconds, and the bytes that it received.
    async fn round(&mut self, server: &RedisServer, form: Form) -> Result<(f64, f64)> {
        let mut writes = redis::pipe();
        for n in 0..TOGETHER {
            let name = format!("shop:stock:{n:04}");
            let owner = format!("01234567-89ab-8cde-8f01-23456789abcd:{n:04}");
            for call in self.pair(form, &name, &owner) {
                writes.add_command(call);
            }
        }
        let before = Books::read(server)?;
        for _ in 0..WRITES {
            let answers: Vec<i64> = writes.query_async(&mut self.db).await?;
            ensure!(answers.iter().all(|answer| *answer == 1), "{answers:?}");
        }
        let after = Books::read(server)?;
        let pairs = f64::from(u32::try_from(TOGETHER * WRITES)?);
        let each = |after: f64, before: f64| (after - before) / pairs;
        Ok((
            each(after.cpu_us, before.cpu_us),
            each(after.came, before.came),
        ))
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = RedisServer::start()?;
    let mut calls = Calls::open(&server).await?;
    let mut seen: [Vec<(f64, f64)>; 3] = Default::default();
    for _ in 0..=ROUNDS {
        for ((form, _), seen) in FORMS.iter().zip(&mut seen) {
            seen.push(calls.round(&server, *form).await?);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!("| a pair, called by | bytes in | server CPU, µs | of `EVALSHA` |");
    println!("| --- | ---: | ---: | ---: |");
    for ((_, about), rounds) in FORMS.iter().zip(&seen) {
        // The first round warms up.
        let ratios = rounds.iter().zip(&seen[0]).skip(1);
        let ratio = median(ratios.map(|(of, base)| of.0 / base.0).collect());
        let cpu = median(rounds.iter().skip(1).map(|round| round.0).collect());
        let bytes = median(rounds.iter().skip(1).map(|round| round.1).collect());
        println!("| {about} | {bytes:.0} | {cpu:.2} | {ratio:.2} |");
    }
    Ok(())
}
