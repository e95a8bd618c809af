//! The faults, and how often each occurs.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::proxy::{Mode, Then, Way, When};

use crate::crew::Crew;
use crate::plan::{LEASE, VETERANS, names};
use crate::witness::now;

/// The limit for a holder to be told of a deletion: a renewal is due every third of the lease, and the rest allows for
/// a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// Deletes the lock and returns its holders. If `ARGV[1]` names an owner that does not hold it, the script does
/// nothing.
const DELETE: &str = "
if ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {} end
local all = redis.call('HKEYS', KEYS[1])
redis.call('DEL', KEYS[1])
return all";

type Do = fn(&mut Crew) -> Result<bool>;

/// Each fault with its weight. The function returns false if the fault did not apply.
const FAULTS: [(&str, u32, Do); 19] = [
    ("process killed and replaced", 4, Crew::kill_worker),
    (
        "process frozen for less than a lease",
        4,
        Crew::freeze_worker,
    ),
    (
        "process frozen for longer than a lease",
        4,
        Crew::freeze_worker_long,
    ),
    (
        "Redisson frozen for less than a lease",
        3,
        Crew::freeze_java,
    ),
    (
        "server frozen for less than a lease",
        3,
        Crew::freeze_server,
    ),
    (
        "server frozen for longer than a lease",
        1,
        Crew::freeze_server_long,
    ),
    ("server killed and restarted", 2, Crew::restart),
    ("all connections cut", 4, Crew::cut_all),
    ("one connection cut", 4, Crew::cut_one),
    ("connections half open for a while", 2, Crew::half_open),
    ("everything delayed", 4, Crew::delay),
    ("a reply lost with its connection", 4, Crew::lose_reply),
    ("a reply held up, and all behind it", 3, Crew::hold_reply),
    ("a wake-up lost", 4, Crew::lose_push),
    ("subscriptions killed", 4, Crew::kill_subscriptions),
    ("scripts flushed", 4, Crew::flush_scripts),
    ("server paused", 2, Crew::pause_all),
    ("writes paused", 2, Crew::pause_writes),
    ("a lock deleted under its holder", 4, Crew::delete),
];

/// The names of the faults, in the order of the table.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    FAULTS.iter().map(|(name, ..)| *name)
}

impl Crew {
    /// Chooses a random fault by weight and runs it.
    pub(crate) fn misfortune(&mut self) -> Result<()> {
        let all: u32 = FAULTS.iter().map(|(_, weight, _)| weight).sum();
        let mut number = self.rng.u32(..all);
        let chosen = FAULTS.iter().find(|(_, weight, _)| {
            let here = number < *weight;
            number = number.saturating_sub(*weight);
            here
        });
        let (name, _, act) = chosen.context("no fault")?;
        self.calm = false;
        println!("{}: {name}", now());
        let done = act(self).with_context(|| (*name).to_owned())?;
        self.calm = true;
        if done {
            *self.faults.entry(name).or_default() += 1;
        }
        Ok(())
    }

    /// A random duration between `from` and `to` leases.
    fn leases(&mut self, from: f64, to: f64) -> Duration {
        LEASE.mul_f64(from + (to - from) * self.rng.f64())
    }

    fn kill_worker(&mut self) -> Result<bool> {
        if self.workers.len() <= VETERANS {
            return Ok(false);
        }
        let slot = self.rng.usize(VETERANS..self.workers.len());
        self.replace(slot).map(|()| true)
    }

    fn freeze_one(&mut self, time: Duration) -> Result<bool> {
        let slot = self.rng.usize(..self.workers.len());
        let pid = self.workers[slot].pid();
        self.agenda.freeze(slot, pid, time)?;
        // We do not wait for the thaw, so the other processes go on and other faults can overlap with this freeze.
        Ok(true)
    }

    fn freeze_worker(&mut self) -> Result<bool> {
        let time = self.leases(0.1, 0.7);
        self.freeze_one(time)
    }

    fn freeze_worker_long(&mut self) -> Result<bool> {
        let time = self.leases(1.2, 2.5);
        self.freeze_one(time)
    }

    /// The freeze is always shorter than a lease. Redisson is not told of a loss, so a longer freeze would make it hold
    /// on wrongly.
    fn freeze_java(&mut self) -> Result<bool> {
        if self.java.is_empty() {
            return Ok(false);
        }
        let time = self.leases(0.1, 0.6);
        let which = self.rng.usize(..self.java.len());
        let pid = self.java[which].peer.pid();
        self.agenda.freeze(usize::MAX, pid, time)?;
        Ok(true)
    }

    fn server_frozen(&mut self, time: Duration) -> Result<bool> {
        self.server.freeze()?;
        self.pass(time)?;
        self.server.thaw().map(|()| true)
    }

    fn freeze_server(&mut self) -> Result<bool> {
        let time = self.leases(0.1, 0.7);
        self.server_frozen(time)
    }

    fn freeze_server_long(&mut self) -> Result<bool> {
        let time = self.leases(1.1, 1.6);
        self.server_frozen(time)
    }

    fn restart(&mut self) -> Result<bool> {
        self.server.restart().map(|()| true)
    }

    #[allow(clippy::unnecessary_wraps, reason = "one of several")]
    fn cut_all(&mut self) -> Result<bool> {
        Ok(self.proxy.cut() > 0)
    }

    #[allow(clippy::unnecessary_wraps, reason = "one of several")]
    fn cut_one(&mut self) -> Result<bool> {
        // Many of these numbers belong to connections that have ended.
        let accepted = self.proxy.accepted();
        let oldest = accepted.saturating_sub(200).max(1);
        Ok((0..200).any(|_| self.proxy.cut_connection(self.rng.u64(oldest..=accepted))))
    }

    fn half_open(&mut self) -> Result<bool> {
        let time = self.leases(0.3, 1.3);
        self.proxy.set_both(Mode::Drop);
        self.pass(time)?;
        self.proxy.set_both(Mode::Pass);
        // A connection that has lost bytes in the middle of its stream is unusable, so we cut all of them.
        self.proxy.cut();
        Ok(true)
    }

    fn delay(&mut self) -> Result<bool> {
        let late = Duration::from_millis(self.rng.u64(5..250));
        let way = if self.rng.bool() {
            Way::ToServer
        } else {
            Way::ToClient
        };
        let time = self.leases(0.2, 0.8);
        self.proxy.set(way, Mode::Delay(late));
        self.pass(time)?;
        self.proxy.set(way, Mode::Pass);
        Ok(true)
    }

    fn lose_reply(&mut self) -> Result<bool> {
        let some = When::command("EVALSHA", "").skip(self.rng.u64(..100));
        let rule = self.proxy.on(some, Then::CutReply);
        self.pass(Duration::from_secs(1))?;
        rule.remove();
        Ok(rule.count() > 0)
    }

    fn hold_reply(&mut self) -> Result<bool> {
        let some = When::command("EVALSHA", "").skip(self.rng.u64(..100));
        let time = self.leases(0.1, 1.3);
        let rule = self.proxy.on(some, Then::HoldReply);
        self.pass(time)?;
        rule.remove();
        rule.release();
        Ok(rule.count() > 0)
    }

    fn lose_push(&mut self) -> Result<bool> {
        let rule = self.proxy.on(When::push(""), Then::Drop);
        self.pass(Duration::from_millis(500))?;
        rule.remove();
        Ok(rule.count() > 0)
    }

    fn kill_subscriptions(&mut self) -> Result<bool> {
        let killed: u64 = self.server.query(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
        Ok(killed > 0)
    }

    fn flush_scripts(&mut self) -> Result<bool> {
        self.server.admin(&["SCRIPT", "FLUSH"]).map(|_| true)
    }

    fn paused(&mut self, what: &str) -> Result<bool> {
        let time = self.leases(0.1, 1.1);
        let millis = time.as_millis().to_string();
        self.server.admin(&["CLIENT", "PAUSE", &millis, what])?;
        self.pass(time + Duration::from_millis(100)).map(|()| true)
    }

    fn pause_all(&mut self) -> Result<bool> {
        self.paused("ALL")
    }

    fn pause_writes(&mut self) -> Result<bool> {
        self.paused("WRITE")
    }

    fn delete(&mut self) -> Result<bool> {
        let mut all = names();
        self.rng.shuffle(&mut all);
        if self.rng.u8(..4) > 0 {
            // Three times out of four we prefer a slow lock: its holder is more likely to be there still when the loss
            // is reported.
            all.sort_by_key(|name| !name.starts_with("slow"));
        }
        for name in all {
            let holders: Vec<String> = self.server.query(&["HKEYS", &name])?;
            if holders.is_empty() {
                continue;
            }
            let deleted = self.delete_one(&name, "")?;
            // Nothing else may happen until the holder is told. Otherwise another fault could delay the report.
            self.pass(TOLD_WITHIN)?;
            return Ok(deleted);
        }
        Ok(false)
    }

    /// Deletes a lock, if `owner` is empty or holds it. Returns true if there was a holder; the witness then expects it
    /// to hear of the loss within [`TOLD_WITHIN`].
    pub(crate) fn delete_one(&mut self, name: &str, owner: &str) -> Result<bool> {
        self.witness.deleting(name)?;
        let holders: Vec<String> = self.server.query(&["EVAL", DELETE, "1", name, owner])?;
        let holder = holders.first().map(String::as_str);
        self.witness.deleted(name, holder, TOLD_WITHIN)?;
        Ok(holder.is_some())
    }
}
