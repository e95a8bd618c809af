//! Takes a lock in a loop for a while and prints how many times each of its tasks held it.
//!
//! Arguments: store, name, number of tasks, length of the run in milliseconds, length of each hold in microseconds, and
//! the mode: `wait`, `wait:MS` (repeated waits with that limit), or `try` (repeated); a `+off` suffix disables the
//! hand-off. `poll:MS` does not use tidelock: it polls a plain key at that interval, as redis-py does. The program
//! prints `ready` and starts when it reads a line.

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testkit::java::TurnsReport;
use tidelock::{AcquireOptions, Client, Guard, HandOff, Lock};

#[derive(Debug, Clone, Copy)]
enum How {
    Wait(Option<Duration>),
    Try,
    Poll(Duration),
}

struct Plan {
    store: String,
    name: String,
    tasks: u32,
    time: Duration,
    hold: Duration,
    how: How,
    hands_on: bool,
}

impl Plan {
    fn from_args() -> Result<Self> {
        let mut args = std::env::args().skip(1);
        let mut next = || args.next().context("too few arguments");
        let (store, name, tasks) = (next()?, next()?, next()?.parse()?);
        let time = Duration::from_millis(next()?.parse()?);
        let hold = Duration::from_micros(next()?.parse()?);
        let how = next()?;
        let (how, off) = how.split_once('+').unwrap_or((&how, ""));
        let (kind, ms) = how.split_once(':').unwrap_or((how, "0"));
        let ms = Duration::from_millis(ms.parse()?);
        let how = match kind {
            "wait" => How::Wait((!ms.is_zero()).then_some(ms)),
            "try" => How::Try,
            "poll" => How::Poll(ms),
            _ => bail!("no such way: {kind}"),
        };
        Ok(Self {
            store,
            name,
            tasks,
            time,
            hold,
            how,
            hands_on: off != "off",
        })
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let plan = Plan::from_args()?;
    if let How::Poll(pause) = plan.how {
        return poll(&plan, pause).await;
    }
    let mut builder = Client::builder();
    if !plan.hands_on {
        builder = builder.hand_off(HandOff::OFF);
    }
    let client = builder.connect(&plan.store).await?;
    begin()?;
    let end = Instant::now() + plan.time;
    let tasks: Vec<_> = (0..plan.tasks)
        .map(|_| tokio::spawn(work(client.lock(&plan.name), plan.how, plan.hold, end)))
        .collect();
    let mut each = Vec::new();
    for task in tasks {
        each.push(task.await??);
    }
    report(&each)?;
    client.close(Duration::from_secs(1)).await;
    Ok(())
}

fn begin() -> Result<()> {
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn report(each: &[(u64, Duration)]) -> Result<()> {
    let longest = each.iter().map(|(_, longest)| *longest).max();
    let report = TurnsReport {
        turns: each.iter().map(|(turns, _)| *turns).collect(),
        longest_ns: u64::try_from(longest.unwrap_or_default().as_nanos())?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn work(lock: Lock, how: How, hold: Duration, end: Instant) -> Result<(u64, Duration)> {
    let (mut turns, mut longest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let asked = Instant::now();
        let Some(guard) = take(&lock, how, end).await? else {
            break;
        };
        longest = longest.max(asked.elapsed());
        turns += 1;
        stay(hold);
        guard.release().await?;
    }
    Ok((turns, longest))
}

/// We do not use the runtime's timer, because it counts whole milliseconds.
fn stay(hold: Duration) {
    tokio::task::block_in_place(|| std::thread::sleep(hold));
}

/// `None`: the run ended first.
async fn take(lock: &Lock, how: How, end: Instant) -> Result<Option<Guard>> {
    while Instant::now() < end {
        let taken = match how {
            How::Try => lock.try_acquire().await?,
            How::Wait(None) => Some(lock.acquire().await?),
            How::Wait(Some(limit)) => {
                match lock.acquire_with(AcquireOptions::new().wait(limit)).await {
                    Ok(guard) => Some(guard),
                    // A wait can be shorter than a round trip. Then no answer of the store has come.
                    Err(error) if error.is_retryable() => None,
                    Err(error) => return Err(error.into()),
                }
            }
            How::Poll(_) => None,
        };
        if taken.is_some() {
            return Ok(taken);
        }
    }
    Ok(None)
}

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// The redis-py algorithm: `SET NX` at an interval, and a compare-and-delete script to release.
async fn poll(plan: &Plan, pause: Duration) -> Result<()> {
    let url = plan.store.split('?').next().unwrap_or_default();
    let client = redis::Client::open(url)?;
    begin()?;
    let end = Instant::now() + plan.time;
    let mut tasks = Vec::new();
    for task in 0..plan.tasks {
        let mut connection = client.get_multiplexed_async_connection().await?;
        let (name, hold) = (plan.name.clone(), plan.hold);
        let token = format!("poller-{}-{task}", std::process::id());
        tasks.push(tokio::spawn(async move {
            let (mut turns, mut longest, mut asked) = (0, Duration::ZERO, Instant::now());
            while Instant::now() < end {
                let mut set = redis::cmd("SET");
                set.arg(&name).arg(&token).arg("NX").arg("PX").arg(30_000);
                if set
                    .query_async::<Option<String>>(&mut connection)
                    .await?
                    .is_none()
                {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                longest = longest.max(asked.elapsed());
                turns += 1;
                stay(hold);
                let mut release = redis::cmd("EVAL");
                release.arg(RELEASE).arg(1).arg(&name).arg(&token);
                let freed: i64 = release.query_async(&mut connection).await?;
                anyhow::ensure!(freed == 1, "somebody else had it");
                asked = Instant::now();
            }
            anyhow::Ok((turns, longest))
        }));
    }
    let mut each = Vec::new();
    for task in tasks {
        each.push(task.await??);
    }
    report(&each)
}
