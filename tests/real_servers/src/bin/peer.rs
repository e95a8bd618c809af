//! A separate process that holds locks. It reads commands from stdin and answers on stdout, one line each.
//!
//! Usage: `peer URL LEASE_MS [RESPONSE_TIMEOUT_MS [DRIFT_SHARE]]`, then one command per line:
//!
//! | command | answers |
//! | --- | --- |
//! | `acquire NAME [fair\|read\|write\|permits=N] [fenced] [wait=MS] [lock_delay=MS]` | `acquired NAME owner=… token=…`, or `failed NAME kind=…` |
//! | `upgrade NAME` | `reads NAME` as soon as it reads upgradeably, then as `acquire`, when the upgrade is through |
//! | `release NAME` | `released NAME`, or `failed NAME kind=…` |
//! | `status NAME` | `status NAME held=… valid_ms=…` |
//! | `work NAME FILE MS` | loops in `while_held`: sleeps MS, then as `write`; at its end `stopped NAME reason=…` |
//! | `write NAME FILE` | writes even if not held: `written NAME …`, or `refused NAME …` if FILE has a larger token |
//! | `hammer NAME ROUNDS [fair\|read\|write] [fenced]` | a line `span NAME begin=… end=… token=…` for each round, then `done NAME` |
//! | `enter NAME MEMBERS` | `entered NAME together=…`, or `failed NAME kind=…`: a barrier with so many members |
//! | `leave NAME` | `left NAME`, or `failed NAME kind=…` |
//! | `clocks` | `clocks wall=… monotonic=…`: as this process reads them, in seconds since 1970 and in nanoseconds |
//! | `block MS` | blocks the executor, then `unblocked` |
//!
//! When a lock is lost, it prints `lost NAME reason=…`. Every line begins with the boot clock in nanoseconds. The
//! process shuts down cleanly at the end of stdin.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{BufRead, Read, Seek, Write};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use testkit::process::boot_time;
use tidelock::testing::{AnyGuard, AnyLock};
use tidelock::{AcquireOptions, BarrierGuard, Client, Guard};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, url, lease, rest @ ..] = args.as_slice() else {
        bail!("usage: peer URL LEASE_MS [RESPONSE_TIMEOUT_MS [DRIFT_SHARE]]");
    };
    let lease = millis(lease)?;
    let timeout = rest.first().map_or(Ok(lease / 4), |text| millis(text))?;
    let settings = Client::builder().lease(lease).response_timeout(timeout);
    let mut settings = settings.connect_within(Duration::from_secs(10));
    if let Some(share) = rest.get(1) {
        settings = settings.drift(share.parse()?, Duration::from_millis(2));
    }
    let peer = Peer {
        client: settings.connect(url).await?,
        holds: Arc::default(),
        inside: Arc::default(),
    };
    say(&format!("ready client={}", peer.client.id()));
    let mut lines = stdin_lines();
    while let Some(line) = lines.recv().await {
        let peer = peer.clone();
        // Each command runs in its own task. Otherwise a wait for a lock would delay the next command.
        tokio::spawn(async move {
            if let Err(error) = peer.obey(&line).await {
                say(&format!("error {line}: {error:#}"));
            }
        });
    }
    peer.client.close(Duration::ZERO).await;
    Ok(())
}

#[derive(Clone)]
struct Peer {
    client: Client,
    holds: Arc<Mutex<HashMap<String, AnyGuard>>>,
    /// The barriers that it is inside.
    inside: Arc<Mutex<HashMap<String, BarrierGuard>>>,
}

impl Peer {
    async fn obey(&self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["acquire", name, options @ ..] => self.acquire(name, options).await,
            ["upgrade", name] => self.upgrade(name).await,
            ["release", name] => self.release(name).await,
            ["status", name] => self.with(name, |guard| {
                let valid = guard.valid_for().as_millis();
                say(&format!(
                    "status {name} held={} valid_ms={valid}",
                    guard.is_held()
                ));
                Ok(())
            }),
            ["work", name, file, every] => self.work(name, file, millis(every)?).await,
            ["write", name, file] => self.with(name, |guard| write(guard, file)),
            ["hammer", name, rounds, options @ ..] => {
                self.hammer(name, rounds.parse()?, options).await
            }
            ["enter", name, members] => self.enter(name, members.parse()?).await,
            ["leave", name] => self.leave(name).await,
            ["clocks"] => clocks(),
            ["block", time] => {
                std::thread::sleep(millis(time)?);
                say("unblocked");
                Ok(())
            }
            _ => bail!("not a command"),
        }
    }

    fn lock(&self, name: &str, options: &[&str]) -> AnyLock {
        let (client, wants) = (&self.client, |word| options.contains(&word));
        let lock = if wants("fair") {
            client.fair_lock(name)
        } else if wants("read") {
            client.read_write_lock(name).read()
        } else if wants("write") {
            client.read_write_lock(name).write()
        } else {
            client.lock(name)
        };
        AnyLock::new(lock, options.contains(&"fenced"))
    }

    fn with(&self, name: &str, look: impl FnOnce(&AnyGuard) -> Result<()>) -> Result<()> {
        look(
            lock(&self.holds)
                .get(name)
                .context("nothing of that name")?,
        )
    }

    async fn acquire(&self, name: &str, words: &[&str]) -> Result<()> {
        let mut options = AcquireOptions::new();
        if let Some(wait) = words.iter().find_map(|word| word.strip_prefix("wait=")) {
            options = options.wait(millis(wait)?);
        }
        if let Some(delay) = words
            .iter()
            .find_map(|word| word.strip_prefix("lock_delay="))
        {
            options = options.lock_delay(millis(delay)?);
        }
        let permits = words.iter().find_map(|word| word.strip_prefix("permits="));
        let acquired = match permits {
            Some(count) => {
                let permits = self.client.semaphore(name).permits(count.parse()?);
                let acquired = permits.acquire_with(options).await;
                acquired.map(|permits| AnyGuard::from(Guard::from(permits)))
            }
            None => self.lock(name, words).acquire_with(options).await,
        };
        self.keep(name, acquired);
        Ok(())
    }

    /// The upgradeable guard is kept until the process ends.
    async fn upgrade(&self, name: &str) -> Result<()> {
        let sides = self.client.read_write_lock(name);
        let reader = sides.upgradeable_read().acquire().await?;
        say(&format!("reads {name}"));
        self.keep(name, sides.upgrade(&reader).await.map(AnyGuard::from));
        std::future::pending::<()>().await;
        Ok(())
    }

    fn keep(&self, name: &str, acquired: tidelock::Result<AnyGuard>) {
        match acquired {
            Ok(guard) => {
                say(&format!(
                    "acquired {name} owner={} token={}",
                    guard.owner_id(),
                    guard.number()
                ));
                tell_loss(name, &guard);
                lock(&self.holds).insert(name.to_owned(), guard);
            }
            Err(error) => failed(name, &error),
        }
    }

    async fn release(&self, name: &str) -> Result<()> {
        let guard = lock(&self.holds)
            .remove(name)
            .context("nothing of that name")?;
        match guard.release().await {
            Ok(()) => say(&format!("released {name}")),
            Err(error) => failed(name, &error),
        }
        Ok(())
    }

    async fn enter(&self, name: &str, members: u32) -> Result<()> {
        match self.client.barrier(name, members).enter().await {
            Ok(inside) => {
                say(&format!(
                    "entered {name} together={}",
                    inside.together().len()
                ));
                tell_loss(name, &inside);
                lock(&self.inside).insert(name.to_owned(), inside);
            }
            Err(error) => failed(name, &error),
        }
        Ok(())
    }

    async fn leave(&self, name: &str) -> Result<()> {
        let inside = lock(&self.inside).remove(name);
        match inside.context("not inside")?.leave().await {
            Ok(()) => say(&format!("left {name}")),
            Err(error) => failed(name, &error),
        }
        Ok(())
    }

    async fn work(&self, name: &str, file: &str, every: Duration) -> Result<()> {
        let guard = lock(&self.holds)
            .get(name)
            .context("nothing of that name")?
            .reenter();
        let done: tidelock::Result<Result<Infallible>> = guard
            .while_held(async {
                loop {
                    tokio::time::sleep(every).await;
                    write(&guard, file)?;
                }
            })
            .await;
        // We drop this guard before we print. Otherwise a `release` command that follows would not release the last
        // guard.
        drop(guard);
        match done {
            Ok(end) => end.map(drop),
            Err(error) => {
                let reason = error.lost_reason().context("not a loss")?;
                say(&format!("stopped {name} reason={reason:?}"));
                Ok(())
            }
        }
    }

    async fn hammer(&self, name: &str, rounds: u64, options: &[&str]) -> Result<()> {
        let shared = self.lock(name, options);
        for _ in 0..rounds {
            let guard = match shared.acquire().await {
                Ok(guard) => guard,
                Err(error) => {
                    failed(name, &error);
                    continue;
                }
            };
            let begin = boot_time();
            // Only a loss ends the section early, and the loop has ended by then.
            let _ = guard
                .while_held(tokio::time::sleep(Duration::from_millis(1)))
                .await;
            let end = boot_time();
            say(&format!(
                "span {name} begin={} end={} token={}",
                begin.as_nanos(),
                end.as_nanos(),
                guard.number()
            ));
            if let Err(error) = guard.release().await {
                failed(name, &error);
            }
        }
        say(&format!("done {name}"));
        Ok(())
    }
}

/// A resource that checks fencing tokens: the file keeps the largest token it has seen and refuses a smaller one.
fn write(guard: &AnyGuard, path: &str) -> Result<()> {
    let (name, mine) = (guard.name(), guard.number());
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let seen = text.trim().parse().unwrap_or(0);
    if mine >= seen {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{mine}")?;
    }
    // We drop the file, and with it its lock, before we print. Otherwise a test that reads the line may freeze this
    // process while it still has the file locked.
    drop(file);
    let outcome = if mine < seen { "refused" } else { "written" };
    say(&format!("{outcome} {name} token={mine} seen={seen}"));
    Ok(())
}

/// The clocks as the standard library reads them. A test may have changed them, so only differences count.
fn clocks() -> Result<()> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let monotonic = START.elapsed().as_nanos();
    say(&format!("clocks wall={wall} monotonic={monotonic}"));
    Ok(())
}

/// Prints that the guard is lost, when it is.
fn tell_loss(name: &str, guard: &Guard) {
    let (lost, of) = (guard.lost(), name.to_owned());
    tokio::spawn(async move { say(&format!("lost {of} reason={:?}", lost.await)) });
}

fn failed(name: &str, error: &tidelock::Error) {
    say(&format!("failed {name} kind={:?} {error}", error.kind()));
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // An error means that stdout has no reader left, and then the line can be discarded.
    let _ = writeln!(out, "{} {text}", boot_time().as_nanos());
    let _ = out.flush();
}

fn millis(text: &str) -> Result<Duration> {
    Ok(Duration::from_millis(
        text.parse().context(text.to_owned())?,
    ))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stdin_lines() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
