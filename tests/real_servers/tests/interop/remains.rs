//! tidelock leaves the same data on the server, byte by byte, as the recordings of Redisson show.

use std::time::{Duration, Instant};

use testkit::golden::{self, Content, Mask, Observed, Observer, Recording, Remains};
use testkit::java::RedissonVersion;
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, Lock, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::topologies::until;
use crate::world::rust;

const NAMES: [&str; 3] = ["{tag}:order", "half{brace", "schlüssel 漢字"];

with_each_redisson!(
    a_lock_leaves_what_redisson_leaves,
    a_waiter_leaves_what_redisson_leaves,
    any_name_is_written_as_redisson_writes_it,
    a_renewal_leaves_what_redisson_leaves,
    a_fair_queue_leaves_what_redisson_leaves,
);

#[test]
fn a_fenced_lock_leaves_what_redisson_leaves() {
    let mut stage = Stage::new(RedissonVersion::Newest, 30);
    for name in NAMES {
        stage.begins();
        let lock = stage.client.lock(name).fenced();
        let guard = stage.runtime.block_on(lock.acquire()).unwrap();
        assert_eq!(guard.token().get(), 1);
        stage.same_with(&format!("fenced: lockAndGetToken {name}"), &guard);
        stage.release(guard.into());
        stage.same(&format!("fenced: unlock {name}"));
    }
}

fn a_lock_leaves_what_redisson_leaves(version: RedissonVersion) {
    let mut stage = Stage::new(version, 30);
    let guard = stage.acquire("plain", AcquireOptions::new());
    stage.same_with("lock", &guard);
    stage.release(guard);
    stage.same("unlock, the last");

    let ten = AcquireOptions::new().expires_after(Duration::from_secs(10));
    let guard = stage.acquire("leased", ten);
    stage.same_with("lock for 10 s", &guard);
    stage.release(guard);
    stage.same("unlock of a lock for 10 s, the last");

    let guard = stage.acquire("forced", AcquireOptions::new());
    stage.same_with("lock, to be forced", &guard);
    let lock = stage.client.lock("forced");
    assert!(stage.runtime.block_on(lock.force_release()).unwrap());
    stage.same("forceUnlock of a held lock");
    assert!(!stage.runtime.block_on(lock.force_release()).unwrap());
    stage.same("forceUnlock of a free lock");
    stage.runtime.block_on(guard.release()).unwrap_err();
    stage.same("unlock after a forceUnlock");
}

fn a_waiter_leaves_what_redisson_leaves(version: RedissonVersion) {
    let mut stage = Stage::new(version, 30);
    // This loads the scripts into the server, so that each attempt is one call.
    let warm = stage.acquire("warm", AcquireOptions::new());
    stage.release(warm);
    stage.observer.look(&[]).unwrap();
    // `try_acquire` bypasses the local queue, so a waiter in this process sends its attempt to the server.
    stage.begins();
    let holder = stage.client.lock("waited").try_acquire();
    let holder = stage.runtime.block_on(holder).unwrap().unwrap();
    stage.same_with("tryLock with a wait of a free lock", &holder);
    let ten = AcquireOptions::new().expires_after(Duration::from_secs(10));
    let waiter = stage.client.lock("waited").acquire_with(ten);
    let waiter = stage.runtime.spawn(waiter);
    let seen = stage
        .observer
        .look(&["script", "SUBSCRIBE", "script"])
        .unwrap();
    stage.compare("a waiter subscribes", &seen, stage.begun.elapsed());
    stage.same_channels("a waiter subscribes", &seen);
    stage.release(holder);
    let guard = stage.runtime.block_on(waiter).unwrap().unwrap();
    stage.shown(&guard, "<client>:<thread b>");
    stage.same("unlock wakes the waiter");
    stage.release(guard);
    stage.same("unlock by the waiter");
}

fn any_name_is_written_as_redisson_writes_it(version: RedissonVersion) {
    let mut stage = Stage::new(version, 30);
    for name in NAMES {
        let guard = stage.acquire(name, AcquireOptions::new());
        stage.same_with(&format!("lock {name}"), &guard);
        stage.release(guard);
        stage.same(&format!("unlock {name}"));
    }
}

fn a_renewal_leaves_what_redisson_leaves(version: RedissonVersion) {
    let mut stage = Stage::new(version, 3);
    let guard = stage.acquire("renewed", AcquireOptions::new());
    stage.same_with("watchdog of 3 s: lock", &guard);
    // The first attempt may fail: the server does not have the script yet.
    let seen = stage.observer.look(&["script", "script"]).unwrap();
    let age = stage.observer.since_script();
    stage.compare("watchdog of 3 s: renewal", &seen, age);
    stage.release(guard);
    stage.same("watchdog of 3 s: unlock");
}

/// A holder and two waiters. Redisson has one step more: a waiter that is woken asks for the lock.
fn a_fair_queue_leaves_what_redisson_leaves(version: RedissonVersion) {
    let mut stage = Stage::new(version, 30);
    for name in ["turns", "{tag}:turns"] {
        let step = |what: &str| format!("fair: {what} {name}");
        let lock = stage.client.fair_lock(name);
        stage.begins();
        let held = stage.runtime.block_on(lock.acquire()).unwrap();
        stage.same_with(&step("lock"), &held);
        let refused = stage.runtime.block_on(lock.try_acquire()).unwrap();
        assert!(refused.is_none());
        let shown = held.reenter();
        stage.runtime.block_on(shown.release()).unwrap();
        stage.same(&step("unlock, not the last"));
        let first = stage.queues(&lock, "b", &step("a waiter queues"));
        let second = stage.queues(&lock, "c", &step("another waiter queues"));
        stage.release(held);
        let first = stage.runtime.block_on(first).unwrap().unwrap();
        stage.same(&step("unlock wakes the first waiter"));
        stage.begins();
        assert!(stage.runtime.block_on(lock.force_release()).unwrap());
        let second = stage.runtime.block_on(second).unwrap().unwrap();
        stage.same(&step("forceUnlock wakes the second waiter"));
        stage.runtime.block_on(first.release()).unwrap_err();
        let soon = AcquireOptions::new().wait(Duration::from_secs(3));
        let left = stage.runtime.block_on(lock.acquire_with(soon));
        assert_eq!(left.unwrap_err().kind(), ErrorKind::TimedOut);
        stage.same_when_withdrawn(&step("a waiter leaves"));
        stage.release(second);
        stage.same(&step("unlock, the last"));
    }
}

/// tidelock alone on an observed server.
struct Stage {
    server: &'static RedisServer,
    recording: Recording,
    runtime: Runtime,
    client: Client,
    observer: Observer<'static>,
    /// The start of the last operation that may have set a time to live.
    begun: Instant,
}

impl Stage {
    fn new(version: RedissonVersion, lease_s: u64) -> Self {
        // The observer borrows the server, so we leak it; the test kit ends it with the process.
        let server: &'static RedisServer = Box::leak(Box::new(RedisServer::start().unwrap()));
        let (runtime, client) = rust(&server.url(), Duration::from_secs(lease_s));
        let observer = Observer::new(server, Mask::default()).unwrap();
        Self {
            server,
            recording: golden::kept(version).unwrap(),
            runtime,
            client,
            observer,
            begun: Instant::now(),
        }
    }

    fn begins(&mut self) {
        self.begun = Instant::now();
    }

    fn acquire(&mut self, name: &str, options: AcquireOptions) -> Guard {
        self.begins();
        let lock = self.client.lock(name);
        self.runtime.block_on(lock.acquire_with(options)).unwrap()
    }

    fn release(&mut self, guard: Guard) {
        self.begins();
        self.runtime.block_on(guard.release()).unwrap();
    }

    fn shown(&mut self, guard: &Guard, placeholder: &str) {
        self.observer.mask().owner(guard.owner_id(), placeholder);
    }

    fn recorded(&self, step: &str) -> Observed {
        self.recording.step(step).unwrap().observed.clone()
    }

    /// Compares the state while this guard is the holder.
    fn same_with(&mut self, step: &str, guard: &Guard) {
        self.shown(guard, "<client>:<thread a>");
        self.same(step);
    }

    /// Starts a waiter, and compares when it has its place in the queue.
    fn queues(&mut self, lock: &Lock, thread: &str, step: &str) -> JoinHandle<Result<Guard>> {
        let before = self.queue(lock).len();
        let ten = AcquireOptions::new().expires_after(Duration::from_secs(10));
        let waiting = self.runtime.spawn(lock.acquire_with(ten));
        until(|| self.queue(lock).len() > before);
        let owner = self.queue(lock).pop().unwrap();
        let shown = format!("<client>:<thread {thread}>");
        self.observer.mask().owner(owner, shown);
        // The second waiter of the process shares the subscription of the first.
        let awaited: &[&str] = match before {
            0 => &["SUBSCRIBE", "script"],
            _ => &["script"],
        };
        let seen = self.observer.look(awaited).unwrap();
        self.compare(step, &seen, self.begun.elapsed());
        self.same_channels(step, &seen);
        waiting
    }

    /// tidelock has one channel for the turns of all its waiters. It also counts its own waiters on channels of its own,
    /// and a subscription outlives its waiter for a while.
    fn same_channels(&self, step: &str, seen: &Observed) {
        for channel in self.recorded(step).subscribed {
            let ours = match channel.split_once(":<client>:") {
                Some((lock, _thread)) => format!("{lock}:{}", self.client.id()),
                None => channel,
            };
            assert!(seen.subscribed.contains(&ours), "{step}: {ours}");
        }
    }

    /// As Redisson would have told the waiter: a message about a turn goes to the process, and names the waiter.
    fn as_redissons(&self, message: &mut golden::Message) {
        if message.channel.ends_with(self.client.id()) {
            let told = format!("{}:{}", message.channel, message.payload);
            message.channel = self.observer.shown(told);
            "0".clone_into(&mut message.payload);
        }
    }

    fn queue(&self, lock: &Lock) -> Vec<String> {
        self.runtime.block_on(lock.inspect()).unwrap().queue
    }

    /// As [`same`](Self::same), for a wait that ends: its withdrawal comes in the background and leaves a tombstone.
    fn same_when_withdrawn(&mut self, step: &str) {
        let withdrawn = |name: &&String| name.starts_with("tidelock:withdrawn:");
        until(|| {
            self.server
                .keys()
                .unwrap()
                .iter()
                .any(|name| withdrawn(&name))
        });
        for name in self.server.keys().unwrap().iter().filter(withdrawn) {
            self.server.admin(&["DEL", name]).unwrap();
        }
        self.same(step);
    }

    fn same(&mut self, step: &str) {
        let seen = self.observer.look(&[]).unwrap();
        self.compare(step, &seen, self.begun.elapsed());
    }

    /// Compares with the recording. Times to live may be shorter by at most `age`, because a slow machine delays the
    /// observation.
    fn compare(&self, step: &str, seen: &Observed, age: Duration) {
        let (mut keys, mut messages) = shared(seen);
        let (recorded_keys, recorded_messages) = shared(&self.recorded(step));
        if step.starts_with("fair: ") {
            // tidelock also tells the waiters for a lock without a queue, under the same name.
            for message in &mut messages {
                self.as_redissons(message);
            }
            messages.retain(|message| message.channel.ends_with('>'));
        }
        // The server counts whole milliseconds, on another clock.
        let waited = (age + Duration::from_millis(20)).as_secs();
        for (name, key) in &mut keys {
            let recorded = recorded_keys.get(name).and_then(|key| key.ttl_s);
            if let (Some(left), Some(recorded)) = (&mut key.ttl_s, recorded)
                && (*left..=*left + waited).contains(&recorded)
            {
                *left = recorded;
            }
        }
        assert_eq!(keys, recorded_keys, "{step}");
        assert_eq!(messages, recorded_messages, "{step}");
    }
}

/// The part that other clients can see: messages, and keys that are not tidelock's own.
fn shared(observed: &Observed) -> (Remains, Vec<golden::Message>) {
    let withdrawn = |name: &String| name.starts_with("tidelock:withdrawn:");
    assert!(
        !observed.keys.keys().any(withdrawn),
        "nothing was unclear: {observed:?}"
    );
    (foreign(observed), observed.messages.clone())
}

/// The keys that are not tidelock's own. A deadline of a fair queue counts as equal: Redisson adds the rest of the
/// holder's lease, tidelock does not.
fn foreign(observed: &Observed) -> Remains {
    let mut keys = observed.keys.clone();
    keys.retain(|name, _| !name.starts_with("tidelock:"));
    for key in keys.values_mut() {
        if let Content::Times(deadlines) = &mut key.content {
            for left in deadlines.values_mut() {
                *left = 0;
            }
        }
    }
    keys
}
