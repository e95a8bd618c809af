//! The steps of a recording.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Mask, Observer, Step};
use crate::java::{Answer, JavaError, JavaLock, JavaPeer};
use crate::servers::RedisServer;

const LEASE: Duration = Duration::from_secs(10);
/// Long enough for a subscription, and short compared with the second to which we round times to live.
const SHORT_WAIT: Duration = Duration::from_millis(200);
const LONG_WAIT: Duration = Duration::from_secs(60);
/// Names that test the brace rule, and bytes beyond ASCII.
const NAMES: [&str; 3] = ["{tag}:order", "half{brace", "schlüssel 漢字"];

/// Runs every step, with names that begin with `prefix`.
pub(super) fn tell(server: &RedisServer, peer: &JavaPeer, prefix: &str) -> Result<Vec<Step>> {
    let mut story = Story::new(server, peer, prefix)?;
    story.re_entry()?;
    story.leases()?;
    story.waiting()?;
    story.force()?;
    story.names()?;
    story.readers()?;
    story.writers()?;
    story.fair()?;
    story.semaphore()?;
    story.latch()?;
    if peer.version().has_fenced_lock() {
        story.fenced()?;
        story.fenced_names()?;
    }
    Ok(story.steps)
}

/// Records the watchdog. The peer must be new and have a watchdog timeout of 3 s.
pub(super) fn watchdog(server: &RedisServer, peer: &JavaPeer) -> Result<Vec<Step>> {
    let mut story = Story::new(server, peer, "")?;
    story.afresh()?;
    let lock = story.lock("a", "renewed");
    story.call("watchdog of 3 s: lock", &["script"], lock.lock())?;
    story.took("watchdog of 3 s: renewal", &["script"], Value::Null)?;
    story.unlock("watchdog of 3 s: unlock", &lock)?;
    Ok(story.steps)
}

/// Loads the watchdog's script into the server. Redisson 4 first calls the script without its text, and calls it twice
/// if the server does not know it. Use another peer for this: in the same peer, a second lock soon after an unlock has
/// two renewal timers.
pub(super) fn warm_watchdog(server: &RedisServer, peer: &JavaPeer) -> Result<()> {
    let mut story = Story::new(server, peer, "")?;
    let lock = story.lock("a", "warm");
    story.call("warm: lock", &["script"], lock.lock())?;
    story.took("warm: renewals", &["script", "script"], Value::Null)?;
    story.unlock("warm: unlock", &lock)
}

struct Story<'a> {
    server: &'a RedisServer,
    peer: &'a JavaPeer,
    prefix: &'a str,
    observer: Observer<'a>,
    steps: Vec<Step>,
}

impl<'a> Story<'a> {
    fn new(server: &'a RedisServer, peer: &'a JavaPeer, prefix: &'a str) -> Result<Self> {
        let mut mask = Mask::default();
        for worker in ["a", "b", "c"] {
            mask.owner(peer.owner(worker)?, format!("<client>:<thread {worker}>"));
        }
        Ok(Self {
            server,
            peer,
            prefix,
            observer: Observer::new(server, mask)?,
            steps: Vec::new(),
        })
    }

    /// Each chapter starts on an empty server, so that it shows only its own remains.
    fn afresh(&self) -> Result<()> {
        let _: String = self.server.query(&["FLUSHALL"])?;
        Ok(())
    }

    fn lock(&self, worker: &str, name: &str) -> JavaLock {
        self.peer.lock(worker, &format!("{}{name}", self.prefix))
    }

    fn fenced_lock(&self, name: &str) -> JavaLock {
        self.peer
            .fenced_lock("a", &format!("{}{name}", self.prefix))
    }

    /// Looks once the server has received every command of the step. We wait for events, never for a fixed time.
    fn took(&mut self, step: &str, awaited: &[&str], answer: Value) -> Result<()> {
        let observed = self.observer.look(awaited).context(step.to_owned())?;
        self.steps.push(Step {
            step: step.into(),
            answer,
            observed,
        });
        Ok(())
    }

    fn call<T: Serialize>(&mut self, step: &str, awaited: &[&str], got: Answered<T>) -> Result<()> {
        let answer = match got {
            Ok(answer) => serde_json::to_value(answer.value)?,
            Err(JavaError::Thrown { class, .. }) => json!({ "thrown": class }),
            Err(error) => return Err(error).context(step.to_owned()),
        };
        self.took(step, awaited, answer)
    }

    /// As `call`, for an unlock: Redisson 4 deletes its latch afterwards and does not wait for the reply.
    fn unlock(&mut self, step: &str, lock: &JavaLock) -> Result<()> {
        let latch = self.peer.version().has_unlock_latch();
        let awaited: &[&str] = if latch { &["DEL"] } else { &[] };
        self.call(step, awaited, lock.unlock())
    }

    fn re_entry(&mut self) -> Result<()> {
        self.afresh()?;
        let (a, b) = (self.lock("a", "plain"), self.lock("b", "plain"));
        self.call("lock", &[], a.lock())?;
        self.call("lock again", &[], a.lock())?;
        self.call("tryLock of another thread", &[], b.try_lock())?;
        self.unlock("unlock of another thread", &b)?;
        self.call("isLocked", &[], b.is_locked())?;
        self.call("isHeldByCurrentThread", &[], a.is_held())?;
        self.call("getHoldCount", &[], a.hold_count())?;
        self.call("getHoldCount of another thread", &[], b.hold_count())?;
        let left = a.ttl_ms()?.value;
        self.took(
            "remainTimeToLive, in seconds",
            &[],
            json!((left + 999) / 1000),
        )?;
        self.unlock("unlock, not the last", &a)?;
        self.unlock("unlock, the last", &a)?;
        self.unlock("unlock of a free lock", &a)
    }

    fn leases(&mut self) -> Result<()> {
        self.afresh()?;
        let a = self.lock("a", "leased");
        self.call("lock for 10 s", &[], a.lock_for(LEASE))?;
        self.call("lock for 10 s again", &[], a.lock_for(LEASE))?;
        self.unlock("unlock of a lock for 10 s, not the last", &a)?;
        self.unlock("unlock of a lock for 10 s, the last", &a)
    }

    fn waiting(&mut self) -> Result<()> {
        self.afresh()?;
        let (a, b) = (self.lock("a", "waited"), self.lock("b", "waited"));
        self.call(
            "tryLock with a wait of a free lock",
            &[],
            a.try_lock_for(LONG_WAIT, None),
        )?;
        let refused = b.try_lock_for(SHORT_WAIT, Some(LEASE));
        self.call("tryLock with a wait, refused", &["UNSUBSCRIBE"], refused)?;
        let waiter = b.begin_try_lock_for(LONG_WAIT, Some(LEASE))?;
        self.took(
            "a waiter subscribes",
            &["script", "SUBSCRIBE", "script"],
            Value::Null,
        )?;
        a.unlock()?;
        let latch: &[&str] = if self.peer.version().has_unlock_latch() {
            &["UNSUBSCRIBE", "DEL"]
        } else {
            &["UNSUBSCRIBE"]
        };
        self.call("unlock wakes the waiter", latch, waiter.wait())?;
        self.unlock("unlock by the waiter", &b)
    }

    fn force(&mut self) -> Result<()> {
        self.afresh()?;
        let (a, b) = (self.lock("a", "forced"), self.lock("b", "forced"));
        self.call("lock, to be forced", &[], a.lock())?;
        self.call("forceUnlock of a held lock", &[], b.force_unlock())?;
        self.call("forceUnlock of a free lock", &[], b.force_unlock())?;
        self.unlock("unlock after a forceUnlock", &a)
    }

    fn readers(&mut self) -> Result<()> {
        self.afresh()?;
        let name = format!("{}sides", self.prefix);
        let [a, b] = ["a", "b"].map(|worker| self.peer.read_lock(worker, &name));
        let write = self.peer.write_lock("b", &name);
        self.call("read: lock", &[], a.lock())?;
        self.call("read: lock again", &[], a.lock())?;
        self.call("read: tryLock of another thread", &[], b.try_lock())?;
        self.call("read: tryLock to write", &[], write.try_lock())?;
        self.unlock("read: unlock, not the last of its thread", &a)?;
        self.unlock("read: unlock, not the last", &a)?;
        self.unlock("read: unlock, the last", &b)?;
        self.call("read: lock for 10 s", &[], a.lock_for(LEASE))?;
        self.call("read: forceUnlock", &[], b.force_unlock())
    }

    fn writers(&mut self) -> Result<()> {
        self.afresh()?;
        for name in ["sides", "{tag}:order"] {
            let full = format!("{}{name}", self.prefix);
            let write = self.peer.write_lock("a", &full);
            let [own, read] = ["a", "b"].map(|worker| self.peer.read_lock(worker, &full));
            self.call(&format!("write: lock {name}"), &[], write.lock())?;
            self.call(
                &format!("write: tryLock to read {name}"),
                &[],
                read.try_lock(),
            )?;
            self.call(&format!("write: lock to read too {name}"), &[], own.lock())?;
            self.unlock(&format!("write: unlock, it still reads {name}"), &write)?;
            self.unlock(&format!("write: unlock of the read lock {name}"), &own)?;
            self.call(
                &format!("write: lock for 10 s {name}"),
                &[],
                write.lock_for(LEASE),
            )?;
            self.unlock(&format!("write: unlock {name}"), &write)?;
            self.call(
                &format!("write: lock, to be forced {name}"),
                &[],
                write.lock(),
            )?;
            self.call(
                &format!("write: forceUnlock {name}"),
                &[],
                write.force_unlock(),
            )?;
        }
        Ok(())
    }

    fn fair(&mut self) -> Result<()> {
        self.afresh()?;
        let waits = &["script", "SUBSCRIBE", "script"][..];
        let latch = self.peer.version().has_unlock_latch();
        let taken: &[&str] = if latch {
            &["UNSUBSCRIBE", "DEL"]
        } else {
            &["UNSUBSCRIBE"]
        };
        for name in ["turns", "{tag}:turns"] {
            let full = format!("{}{name}", self.prefix);
            let [a, b, c] = ["a", "b", "c"].map(|worker| self.peer.fair_lock(worker, &full));
            let step = |what: &str| format!("fair: {what} {name}");
            self.call(&step("lock"), &[], a.lock())?;
            self.call(&step("lock again"), &[], a.lock())?;
            self.call(&step("tryLock of another thread"), &[], b.try_lock())?;
            self.unlock(&step("unlock, not the last"), &a)?;
            let second = b.begin_lock_for(LEASE)?;
            self.took(&step("a waiter queues"), waits, Value::Null)?;
            let third = c.begin_lock_for(LEASE)?;
            self.took(&step("another waiter queues"), waits, Value::Null)?;
            a.unlock()?;
            self.call(&step("unlock wakes the first waiter"), taken, second.wait())?;
            a.force_unlock()?;
            let woken = "forceUnlock wakes the second waiter";
            self.call(&step(woken), &["UNSUBSCRIBE"], third.wait())?;
            let refused = b.try_lock_for(SHORT_WAIT, Some(LEASE));
            self.call(&step("a waiter leaves"), &["UNSUBSCRIBE"], refused)?;
            self.unlock(&step("unlock, the last"), &c)?;
            self.unlock(&step("unlock of a free lock"), &a)?;
        }
        Ok(())
    }

    fn latch(&mut self) -> Result<()> {
        self.afresh()?;
        let name = format!("{}imported", self.prefix);
        let [a, b] = ["a", "b"].map(|worker| self.peer.latch(worker, &name));
        self.call("latch: trySetCount", &[], a.set_if_new(2))?;
        self.call("latch: trySetCount again", &[], b.set_if_new(3))?;
        self.call("latch: getCount", &[], b.count())?;
        self.call("latch: countDown, not the last", &[], a.count_down())?;
        self.call("latch: countDown, the last", &[], a.count_down())?;
        self.call("latch: countDown of an open latch", &[], a.count_down())?;
        a.set_if_new(2)?;
        self.call("latch: delete", &[], b.delete())?;
        self.call("latch: delete of an open latch", &[], b.delete())
    }

    fn semaphore(&mut self) -> Result<()> {
        self.afresh()?;
        let name = format!("{}slots", self.prefix);
        let [a, b] = ["a", "b"].map(|worker| self.peer.counting_semaphore(worker, &name));
        self.call("semaphore: trySetPermits", &[], a.set_if_new(3))?;
        self.call("semaphore: trySetPermits again", &[], b.set_if_new(5))?;
        self.call("semaphore: tryAcquire of two", &[], a.try_acquire(2))?;
        let refused = b.try_acquire(2);
        self.call("semaphore: tryAcquire of too many", &[], refused)?;
        self.call("semaphore: release of two", &[], b.release(2))?;
        self.call("semaphore: availablePermits", &[], a.available())?;
        self.call("semaphore: drainPermits", &[], a.drain())?;
        self.call("semaphore: addPermits", &[], b.add(2))?;
        let reduced = b.add(-3);
        self.call("semaphore: addPermits, fewer than none", &[], reduced)
    }

    fn names(&mut self) -> Result<()> {
        self.afresh()?;
        for name in NAMES {
            let a = self.lock("a", name);
            self.call(&format!("lock {name}"), &[], a.lock())?;
            self.unlock(&format!("unlock {name}"), &a)?;
        }
        Ok(())
    }

    fn fenced(&mut self) -> Result<()> {
        self.afresh()?;
        let lock = self.fenced_lock("fenced");
        self.call("fenced: getToken before any", &[], lock.token())?;
        self.call("fenced: lockAndGetToken", &[], lock.lock_and_get_token())?;
        self.call(
            "fenced: lockAndGetToken again",
            &[],
            lock.lock_and_get_token(),
        )?;
        let plain = self.lock("b", "fenced");
        self.call(
            "fenced: tryLock of a plain lock of the name",
            &[],
            plain.try_lock(),
        )?;
        self.unlock("fenced: unlock, not the last", &lock)?;
        self.unlock("fenced: unlock, the last", &lock)?;
        self.call("fenced: lock", &[], lock.lock())?;
        self.call("fenced: getToken", &[], lock.token())?;
        self.call("fenced: forceUnlock", &[], lock.force_unlock())?;
        self.call("fenced: tryLock", &[], lock.try_lock())?;
        self.unlock("fenced: unlock after tryLock", &lock)
    }

    fn fenced_names(&mut self) -> Result<()> {
        self.afresh()?;
        for name in NAMES {
            let lock = self.fenced_lock(name);
            self.call(
                &format!("fenced: lockAndGetToken {name}"),
                &[],
                lock.lock_and_get_token(),
            )?;
            self.unlock(&format!("fenced: unlock {name}"), &lock)?;
        }
        Ok(())
    }
}

type Answered<T> = Result<Answer<T>, JavaError>;
