//! Processes that wait for a fair lock, one behind the other: their wall clocks differ, or they are killed or frozen.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use real_servers::{History, Span, boot_time, builder, within};
use testkit::process::{FakeClock, Spawned};
use tidelock::{Client, Guard};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::election::PATIENCE;
use crate::store::Store;

/// Of the processes that are killed and frozen.
const LEASE: Duration = Duration::from_secs(6);
/// Twenty-five processes begin at once. A quarter of the lease is the default here, and less than a busy machine may need.
const ANSWERS: Duration = Duration::from_secs(3);
const HEADS: u64 = 25;
/// The hour by which a wall clock is wrong, in seconds.
const HOUR: i64 = 3600;

/// The queue of one lock.
struct Queue<'a> {
    store: &'a Store,
    lease: Duration,
    runtime: Runtime,
    client: Client,
}

impl<'a> Queue<'a> {
    fn new(store: &'a Store, lease: Duration) -> Result<Self> {
        let runtime = Runtime::new()?;
        let settings = builder(lease).response_timeout(ANSWERS);
        let client = runtime.block_on(settings.connect(&store.url))?;
        Ok(Self {
            store,
            lease,
            runtime,
            client,
        })
    }

    fn process(&self, clock: Option<&FakeClock>) -> Result<Spawned> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        let times = [self.lease, ANSWERS].map(|time| time.as_millis().to_string());
        command.arg(&self.store.url).args(times);
        if let Some(clock) = clock {
            clock.apply(&mut command);
        }
        let mut process = Spawned::start(command)?;
        process.wait_line("ready", PATIENCE)?;
        Ok(process)
    }

    fn acquire(&self) -> Result<Guard> {
        let acquire = self.client.fair_lock("till").acquire();
        Ok(self.runtime.block_on(acquire)?)
    }

    fn release(&self, guard: Guard) -> Result<()> {
        Ok(self.runtime.block_on(guard.release())?)
    }

    fn waiters(&self) -> Result<Option<u64>> {
        let lock = self.client.fair_lock("till");
        Ok(self.runtime.block_on(lock.inspect())?.waiters)
    }

    /// Returns when this many wait.
    fn until(&self, count: u64) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let waiters = self.waiters()?;
            if waiters == Some(count) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{waiters:?} wait, not {count}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts processes that wait one behind the other, and take the lock once.
    fn heads(&self) -> Result<Vec<Spawned>> {
        let mut heads = Vec::new();
        for count in 1..=HEADS {
            let mut head = self.process(None)?;
            head.write_line("hammer till 1 fair")?;
            self.until(count)?;
            heads.push(head);
        }
        Ok(heads)
    }

    /// A waiter of this process, behind all heads.
    fn wait(&self) -> Result<JoinHandle<tidelock::Result<Guard>>> {
        let waiting = self.client.fair_lock("till").acquire();
        let waiting = self.runtime.spawn(waiting);
        self.until(HEADS + 1)?;
        Ok(waiting)
    }

    /// Releases the lock. Who waits behind all heads gets it within two leases: each head by itself would cost a grant, or
    /// a lease.
    fn pass(&self, held: Guard, waiting: JoinHandle<tidelock::Result<Guard>>) -> Result<Guard> {
        let released = Instant::now();
        let guard = self.runtime.block_on(async {
            held.release().await?;
            within(self.lease * 2, "the live waiter's turn", waiting)
                .await??
                .map_err(anyhow::Error::from)
        })?;
        println!(
            "{}: passed over in {:?}",
            self.store.name,
            released.elapsed()
        );
        Ok(guard)
    }

    /// Returns when no place is left. On some stores the next release or acquisition removes the places of the dead. Tables do
    /// not tell an empty queue from one of waiters without places.
    fn until_empty(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.waiters()?.unwrap_or(0) > 0 {
            ensure!(Instant::now() < end, "places are left");
            std::thread::sleep(self.lease / 6);
            self.release(self.acquire()?)?;
        }
        Ok(())
    }
}

/// T49, killed.
fn killed(store: &Store) -> Result<()> {
    let queue = Queue::new(store, LEASE)?;
    let held = queue.acquire()?;
    let mut heads = queue.heads()?;
    let live = queue.wait()?;
    for head in &mut heads {
        head.kill()?;
    }
    let guard = queue.pass(held, live)?;
    queue.release(guard)?;
    queue.until_empty()
}

/// T49, frozen. They come back, and each has its turn.
fn frozen(store: &Store) -> Result<()> {
    let queue = Queue::new(store, LEASE)?;
    let held = queue.acquire()?;
    let mut heads = queue.heads()?;
    let live = queue.wait()?;
    for head in &heads {
        head.freeze()?;
    }
    let guard = queue.pass(held, live)?;
    let history = History::default();
    let begin = boot_time();
    for head in &heads {
        head.thaw()?;
    }
    queue.until(HEADS)?;
    let (end, token) = (boot_time(), 0);
    history.add(Span { begin, end, token });
    queue.release(guard)?;
    for head in &mut heads {
        history.add(span(&head.wait_line("span till", PATIENCE)?)?);
        head.wait_line("done till", PATIENCE)?;
    }
    ensure!(history.check()? == heads.len() + 1);
    queue.until_empty()
}

/// The hold that a process has printed.
fn span(line: &str) -> Result<Span> {
    let at = |key: &str| -> Result<Duration> {
        let mut words = line.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(key));
        Ok(Duration::from_nanos(value.context("no time")?.parse()?))
    };
    Ok(Span {
        begin: at("begin=")?,
        end: at("end=")?,
        token: 0,
    })
}

/// T43: an hour between the wall clocks of the waiters, and between them and the store. Their order is that of their
/// arrival, whoever is ahead, and nobody loses a place.
fn clocks(store: &Store) -> Result<()> {
    // The waiters wait for longer than that, and for two of their beats.
    const LEASE: Duration = Duration::from_secs(4);
    let queue = Queue::new(store, LEASE)?;
    let held = queue.acquire()?;
    let mut waiters = Vec::new();
    for (count, ahead) in (1..).zip([HOUR, -HOUR, -HOUR, HOUR]) {
        let dir = tempfile::tempdir()?;
        let clock = FakeClock::new(dir.path())?;
        clock.shift(ahead)?;
        let mut waiter = queue.process(Some(&clock))?;
        is_ahead(&mut waiter, ahead)?;
        waiter.write_line("acquire till fair")?;
        queue.until(count)?;
        waiters.push((waiter, dir));
    }
    std::thread::sleep(LEASE * 5 / 4);
    ensure!(queue.waiters()? == Some(4), "a place was lost");
    queue.release(held)?;
    for (waiter, _) in &mut waiters {
        // Another one would never release the lock.
        waiter.wait_line("acquired till", PATIENCE)?;
        waiter.write_line("release till")?;
        waiter.wait_line("released till", PATIENCE)?;
    }
    queue.until_empty()
}

/// Fails unless the wall clock of a process is wrong by so many seconds: the test would pass without its fault.
fn is_ahead(process: &mut Spawned, seconds: i64) -> Result<()> {
    process.write_line("clocks")?;
    let line = process.wait_line("clocks wall=", PATIENCE)?;
    let shown = line.split_once("wall=").context("a clock")?.1;
    let shown: i64 = shown.split_whitespace().next().context("a time")?.parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let ahead = shown - i64::try_from(now)?;
    ensure!(ahead.abs_diff(seconds) <= 5, "it is {ahead} s ahead");
    Ok(())
}

mod t43_waiters_whose_clocks_differ_keep_the_order_of_a_fair_queue {
    crate::on!(super::clocks: redis_sentinels redis_cluster sqlite postgres mysql zookeeper etcd);
}

mod t49_twenty_five_heads_that_were_killed_are_passed_over {
    crate::on!(super::killed: redis_sentinels redis_cluster zookeeper etcd);
}

mod t49_twenty_five_heads_that_are_frozen_are_passed_over_and_come_back {
    crate::on!(super::frozen: redis_sentinels redis_cluster zookeeper etcd);
}
