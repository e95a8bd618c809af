//! W4: many locks that are held for a long time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use load::Order;
use testkit::process::rss_bytes;
use testkit::servers::RedisServer;

use crate::chart::{Bars, Chart};
use crate::figures::{middle, number, short, spread, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::process::Process;
use crate::stage::Stage;

/// The default lease and its renewal period.
const LEASE: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_secs(10);

const NAME: &str = "held";
const PATIENCE: Duration = Duration::from_secs(120);

/// How many locks are held, and for how many periods their renewals are watched.
const STEPS: [(usize, usize); 4] = [(100, 0), (1_000, 0), (10_000, 3), (100_000, 5)];

/// The results for one number of held locks.
struct Step {
    locks: usize,
    /// Microseconds per lock to acquire them.
    taking: f64,
    /// Bytes of the process per lock.
    memory: f64,
    periods: Vec<Period>,
}

/// One period of renewals.
struct Period {
    requests: f64,
    /// In percent of one core.
    cpu_percent: f64,
    /// Seconds since the last renewal, of the lock that was renewed longest ago.
    oldest: f64,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let mut process = Process::start(Peer::Tidelock.command(&stage.server.url())?)?;
    // We hold one lock before we measure the memory. Otherwise the one-time costs of the first lock would count for
    // all.
    hold(&mut process, 1)?;
    let empty = rss_bytes(process.pid())?;
    let mut steps = Vec::new();
    for (locks, periods) in STEPS {
        let start = Instant::now();
        hold(&mut process, locks)?;
        let took = start.elapsed();
        let before = steps.last().map_or(1, |step: &Step| step.locks);
        let grown = rss_bytes(process.pid())?.saturating_sub(empty);
        let rounds = periods.min(stage.args.rounds());
        steps.push(Step {
            locks,
            taking: took.as_secs_f64() * 1e6 / number(locks - before),
            memory: number(grown) / number(locks),
            periods: (0..rounds)
                .map(|_| period(&stage.server, &process, locks))
                .collect::<Result<_>>()?,
        });
    }
    process.tell(&Order::Drop)?;
    process.answer(PATIENCE)?;
    Ok(section(&steps))
}

fn hold(process: &mut Process, locks: usize) -> Result<()> {
    process.tell(&Order::Hold {
        locks,
        name: NAME.into(),
    })?;
    process.answer(PATIENCE)?;
    Ok(())
}

fn period(server: &RedisServer, process: &Process, locks: usize) -> Result<Period> {
    let start = Instant::now();
    let (requests, cpu) = (scripts_sent(server)?, process.cpu()?);
    let mut oldest = Duration::ZERO;
    while start.elapsed() < PERIOD {
        oldest = oldest.max(oldest_renewal(server, locks)?);
        let left = PERIOD.saturating_sub(start.elapsed());
        sleep(left.min(Duration::from_secs(1)));
    }
    let took = start.elapsed().as_secs_f64();
    let cpu = process.cpu()?.saturating_sub(cpu).as_secs_f64();
    Ok(Period {
        requests: number(scripts_sent(server)? - requests) * PERIOD.as_secs_f64() / took,
        cpu_percent: cpu / took * 100.0,
        oldest: oldest.as_secs_f64(),
    })
}

/// How many scripts were called by hash. These are tidelock's requests; the bench's own queries do not use `EVALSHA`.
pub(crate) fn scripts_sent(server: &RedisServer) -> Result<u64> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = line.and_then(|rest| rest.split(',').next());
    calls
        .context("no script was ever called")?
        .parse()
        .context("a number of calls")
}

/// The time since the oldest renewal. Queries a slice at a time, so as not to block the server.
fn oldest_renewal(server: &RedisServer, locks: usize) -> Result<Duration> {
    const SLICE: usize = 5_000;
    const LEAST: &str = "local least = 1e9
        for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
            least = math.min(least, redis.call('pttl', ARGV[1] .. ' ' .. i))
        end
        return least";
    let mut least = i64::MAX;
    for from in (0..locks).step_by(SLICE) {
        let to = (from + SLICE).min(locks) - 1;
        let found: i64 =
            server.query(&["EVAL", LEAST, "0", NAME, &from.to_string(), &to.to_string()])?;
        least = least.min(found);
    }
    // An expired key has a negative time to live: it counts as no time left.
    let left = Duration::from_millis(u64::try_from(least).unwrap_or(0));
    Ok(LEASE.saturating_sub(left))
}

fn section(steps: &[Step]) -> Section {
    let mut table = Table::new(&[
        "locks",
        "taking each µs",
        "memory each, bytes",
        "requests a period",
        "CPU, % of a core",
        "longest since a renewal, s",
    ]);
    for step in steps {
        let figure = |figure: fn(&Period) -> f64| {
            if step.periods.is_empty() {
                "–".to_owned()
            } else {
                with_spread(&step.periods, figure)
            }
        };
        table.row([
            count(step.locks),
            short(step.taking),
            short(step.memory),
            figure(|p| p.requests),
            figure(|p| p.cpu_percent),
            figure(|p| p.oldest),
        ]);
    }
    Section {
        title: "W4: locks held",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        charts: vec![Chart {
            file: "w4-each",
            title: "Held locks: what each of them costs".into(),
            bars: bars(steps),
        }],
        goals: goals(steps),
        ..Section::default()
    }
}

fn count(locks: usize) -> String {
    short(number(locks))
}

fn bars(steps: &[Step]) -> Bars {
    let counts: Vec<String> = steps
        .iter()
        .map(|step| format!("{} locks", count(step.locks)))
        .collect();
    let mut bars = Vec::new();
    let mut group = |about: &str, figure: fn(&Step) -> f64| {
        for (step, count) in steps.iter().zip(&counts) {
            let figure = figure(step);
            if !figure.is_nan() {
                bars.push((&**count, about.to_owned(), figure));
            }
        }
    };
    group("memory for each, bytes", |step| step.memory);
    group("taking each, µs", |step| step.taking);
    group("renewing each, ns of a processor", renewing);
    Bars::grouped(&bars)
}

/// Processor time per renewal of one lock, in nanoseconds.
fn renewing(step: &Step) -> f64 {
    middle(&step.periods, |p| p.cpu_percent) / 100.0 * PERIOD.as_secs_f64() * 1e9
        / number(step.locks)
}

fn goals(steps: &[Step]) -> Vec<Goal> {
    let Some(most) = steps.last() else {
        return Vec::new();
    };
    let worst = |figure: fn(&Period) -> f64| Some(spread(most.periods.iter().map(figure)).1);
    let fewer = steps.len().checked_sub(2).map(|at| &steps[at]);
    let locks = most.locks;
    vec![
        Goal::at_most(
            format!("W4, {locks} locks: requests a period"),
            number(locks) / 100.0 * 1.01,
            "",
            Some(middle(&most.periods, |p| p.requests)),
        ),
        Goal::at_most(
            format!("W4, {locks} locks: longest since a renewal"),
            LEASE.as_secs_f64() / 2.0,
            " s",
            worst(|p| p.oldest),
        ),
        Goal::at_most(
            format!("W4, {locks} locks: CPU, of one core"),
            3.0,
            " %",
            Some(middle(&most.periods, |p| p.cpu_percent)),
        ),
        Goal::at_most(
            format!("W4, {locks} locks held: memory each"),
            1024.0,
            " bytes",
            Some(most.memory),
        ),
        Goal::at_most(
            "Growth: memory of a held lock, of ten times as many".to_owned(),
            1.1,
            " ×",
            fewer.map(|fewer| most.memory / fewer.memory),
        ),
        Goal::at_most(
            "Growth: CPU to renew a lock, of ten times as many".to_owned(),
            1.1,
            " ×",
            fewer.map(|fewer| renewing(most) / renewing(fewer)),
        ),
    ]
}

const TEXT: &str = "
One process takes locks of their own names and keeps them, with the default lease of 30 s that is renewed every 10 s. Each
round is one period. Requests are calls of scripts by their hash, of which one renews up to a hundred locks. The longest time
since a renewal is read from the server, from the time to live of every lock, once a second. Memory is what the process has
grown by; CPU is that of the client.
";
