//! The beats: they show that this process is alive, one task for each name with waiters.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::{Background, Name, OwnerId, Timers};

/// The time between two beats: a third of the time for which a beat shows life (`ALIVE` in `lua/fair_queue.lua`), so
/// that two beats may be lost.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time until the next beat while the lock is free and a waiter of Redisson has its turn.
const TURN_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest pause: a beat that has not reached the end of the queue continues after it.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// The waiters of this process for fair locks.
pub(crate) struct Beats {
    /// Invariant: a name has a task exactly while it has an entry. An entry without owners ends with the next beat.
    names: Mutex<HashMap<Name, HashSet<OwnerId>>>,
    router: Router,
    channel_router: ChannelRouter,
    ways: PublishModes,
    subscriber: Arc<Subscriber>,
    timers: Timers,
    background: Background,
}

impl Beats {
    /// `router`: for the connections of the steward's thread, on which the tasks run.
    pub(crate) fn new(
        router: Router,
        channel_router: ChannelRouter,
        ways: PublishModes,
        subscriber: Arc<Subscriber>,
        timers: Timers,
        background: Background,
    ) -> Arc<Self> {
        Arc::new(Self {
            names: Mutex::default(),
            router,
            channel_router,
            ways,
            subscriber,
            timers,
            background,
        })
    }

    /// A waiter is about to queue. The first one of a name starts the task.
    pub(crate) fn enter(self: &Arc<Self>, name: &Name, owner: &OwnerId) {
        let mut names = self.names.lock();
        if let Some(owners) = names.get_mut(name) {
            owners.insert(owner.clone());
            return;
        }
        names.insert(name.clone(), HashSet::from([owner.clone()]));
        drop(names);
        let task = run(Arc::downgrade(self), self.timers.clone(), name.clone());
        self.background.spawn(task);
    }

    /// The waiter has the lock, or gives up its place.
    pub(crate) fn leave(&self, name: &Name, owner: &OwnerId) {
        if let Some(owners) = self.names.lock().get_mut(name) {
            owners.remove(owner);
        }
    }

    /// Ends all tasks with their next beat.
    pub(crate) fn close(&self) {
        self.names.lock().values_mut().for_each(HashSet::clear);
    }

    /// The waiters of a name. `None`: there are none, and the task ends.
    fn owners(&self, name: &Name) -> Option<Vec<OwnerId>> {
        let mut names = self.names.lock();
        let owners: Vec<OwnerId> = names.get(name)?.iter().cloned().collect();
        if owners.is_empty() {
            names.remove(name);
            return None;
        }
        Some(owners)
    }

    /// One beat. Returns the time until the next one.
    async fn beat(&self, name: &Name, owners: &[OwnerId]) -> Duration {
        match self.ask(name, owners).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::debug!(lock = %name, %error, "a beat of a fair lock was not answered");
                INTERVAL
            }
        }
    }

    async fn ask(&self, name: &Name, owners: &[OwnerId]) -> Result<Duration> {
        let keys = [
            name.as_str(),
            &keys::fair_queue(name),
            &keys::fair_times(name),
            &keys::alive(name),
        ];
        let how = self.ways.word(self.channel_router.are_settled());
        let process = owners.first().map_or("", |owner| owner.client());
        let mut args = vec![how, process];
        args.extend(owners.iter().map(OwnerId::text));
        let deadline = self.router.deadline();
        let script = &scripts::FAIR_BEAT;
        let reply = self.router.eval(script, &keys, &args, deadline).await?;
        let Some([left, more, displaced @ ..]) = reply.list() else {
            return Err(unexpected(&reply));
        };
        for owner in displaced.iter().filter_map(Reply::text) {
            self.subscriber.wake(&keys::fair_channel(name, owner));
        }
        Ok(pause(left.int().unwrap_or(-1), more.count() > 0))
    }
}

/// The time until the next beat. `left`: the milliseconds until the holder's lease ends, -1 without an end, -2 if nobody
/// holds the lock.
fn pause(left: i64, more: bool) -> Duration {
    match u64::try_from(left) {
        _ if more => MIN_INTERVAL,
        // One millisecond more, so that the lease is over by then.
        Ok(left) => Duration::from_millis(left + 1).clamp(MIN_INTERVAL, INTERVAL),
        Err(_) if left == -2 => TURN_INTERVAL,
        Err(_) => INTERVAL,
    }
}

async fn run(beats: Weak<Beats>, timers: Timers, name: Name) {
    let mut pause = INTERVAL;
    loop {
        timers.after(pause).await;
        let Some(beats) = beats.upgrade() else {
            return;
        };
        let Some(owners) = beats.owners(&name) else {
            return;
        };
        pause = beats.beat(&name, &owners).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_beat_comes_when_the_lease_of_the_holder_ends() {
        assert_eq!(pause(500, false), Duration::from_millis(501));
        assert_eq!(pause(30_000, false), INTERVAL);
        assert_eq!(pause(-1, false), INTERVAL);
        assert_eq!(pause(-2, false), TURN_INTERVAL);
        assert_eq!(pause(30_000, true), MIN_INTERVAL);
        assert_eq!(pause(i64::MAX, false), INTERVAL);
    }
}
