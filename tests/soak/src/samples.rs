//! Samples the resources that each process and the server use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::process::{open_fds, rss_bytes, threads};

use crate::crew::Crew;
use crate::plan::VETERANS;

/// Counts the keys by kind: locks, keys without a time to live, what tidelock stores of its clients, its
/// tombstones, and other keys with a time to live.
pub(crate) const KEYS: &str = "
local locks, endless, details, marks, others = 0, 0, 0, 0, 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then endless = endless + 1
  elseif string.sub(key, 1, 16) == 'tidelock:client:' or string.sub(key, 1, 13) == 'tidelock:mark' then details = details + 1
  elseif redis.call('TYPE', key).ok == 'hash' then locks = locks + 1
  elseif string.sub(key, 1, 9) == 'tidelock:' then marks = marks + 1
  else others = others + 1 end
end
return {locks, endless, details, marks, others}";

pub(crate) const MEMORY: &str = "memory, MiB";
pub(crate) const DESCRIPTORS: &str = "descriptors";
pub(crate) const THREADS: &str = "threads";
pub(crate) const TASKS: &str = "tasks";
pub(crate) const LOCKS: &str = "locks";
pub(crate) const ENDLESS: &str = "keys without an end";
pub(crate) const DETAILS: &str = "details of clients";
pub(crate) const MARKS: &str = "tombstones";
pub(crate) const OTHERS: &str = "other keys that end";
pub(crate) const CHANNELS: &str = "channels";
pub(crate) const CONNECTIONS: &str = "connections";

/// One figure of one process or server: (owner, figure).
pub(crate) type Series = (String, &'static str);

#[derive(Debug)]
pub(crate) struct Samples {
    begun: Instant,
    every: Duration,
    next: Instant,
    pub(crate) values: BTreeMap<Series, Vec<(Duration, f64)>>,
}

impl Samples {
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            begun: Instant::now(),
            every: (length / 100).clamp(Duration::from_millis(200), Duration::from_secs(4)),
            next: Instant::now(),
            values: BTreeMap::new(),
        }
    }

    /// Discards the samples so far and starts the clock. The caller calls this once every process runs.
    pub(crate) fn begin(&mut self) {
        self.begun = Instant::now();
        self.values.clear();
    }

    /// True if a sample is due. The next one is due after the interval.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = Instant::now() >= self.next;
        if due {
            self.next = Instant::now() + self.every;
        }
        due
    }

    pub(crate) fn note(&mut self, who: &str, what: &'static str, value: f64) {
        let series = self.values.entry((who.to_owned(), what)).or_default();
        series.push((self.begun.elapsed(), value));
    }

    pub(crate) fn process(&mut self, who: &str, pid: u32) {
        // A process that is just being replaced has no figures.
        if let (Ok(memory), Ok(descriptors), Ok(threads)) =
            (rss_bytes(pid), open_fds(pid), threads(pid))
        {
            self.note(who, MEMORY, number(memory) / f64::from(1 << 20));
            self.note(who, DESCRIPTORS, number(descriptors as u64));
            self.note(who, THREADS, number(threads));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) fn number(value: u64) -> f64 {
    value as f64
}

/// The name of a tidelock process in the tables.
pub(crate) fn worker(slot: usize) -> String {
    let fate = if slot < VETERANS { "stays" } else { "replaced" };
    format!("tidelock {slot}, {fate}")
}

impl Crew {
    /// Takes a sample if one is due.
    pub(crate) fn look(&mut self) -> Result<()> {
        if !self.samples.is_due() {
            return Ok(());
        }
        let tasks = self.witness.numbers("tasks")?;
        for (slot, worker_process) in self.workers.iter().enumerate() {
            let (who, pid) = (worker(slot), worker_process.pid());
            self.samples.process(&who, pid);
            if let Some(tasks) = tasks.get(&pid.to_string()) {
                self.samples.note(&who, TASKS, number(*tasks));
            }
        }
        for java in &self.java {
            self.samples.process(&java.who, java.peer.pid());
        }
        self.samples.process("proxy and driver", std::process::id());
        // The proxy's command log would grow with the run, and the memory figure would show it as a leak.
        self.commands += self.proxy.total();
        self.proxy.reset_counts();
        if self.calm {
            self.look_at_server()?;
        }
        Ok(())
    }

    fn look_at_server(&mut self) -> Result<()> {
        let who = "server";
        self.samples.process(who, self.server.pid()?);
        let keys: Vec<u64> = self.server.query(&["EVAL", KEYS, "0"])?;
        for (what, count) in [LOCKS, ENDLESS, DETAILS, MARKS, OTHERS]
            .into_iter()
            .zip(keys)
        {
            self.samples.note(who, what, number(count));
        }
        let channels: Vec<String> = self.server.query(&["PUBSUB", "CHANNELS"])?;
        self.samples
            .note(who, CHANNELS, number(channels.len() as u64));
        let connections: u64 = self.server.info("connected_clients")?.trim().parse()?;
        self.samples.note(who, CONNECTIONS, number(connections));
        self.free_forgotten()
    }
}
