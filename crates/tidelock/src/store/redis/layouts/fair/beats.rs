//! The beat of fair locks: see [`Beats`](crate::store::beats::Beats).

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::store::beats::{BEAT, Beat};
use crate::store::redis::keys;
use crate::store::redis::layouts::scripts;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::{Name, OwnerId};

/// The time until the next beat while the lock is free and a waiter of Redisson has its turn.
const TURN_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest pause: a beat that has not reached the end of the queue continues after it.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// Sends the beats of fair locks on Redis.
pub(crate) struct RedisBeat {
    /// For the connections of the steward's thread, on which the tasks run.
    pub(crate) router: Router,
    pub(crate) channel_router: ChannelRouter,
    pub(crate) ways: PublishModes,
    pub(crate) subscriber: Arc<Subscriber>,
}

impl Beat for RedisBeat {
    type State = ();

    async fn beat(&self, name: &Name, owners: &[OwnerId], (): &mut ()) -> Duration {
        match self.ask(name, owners).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::debug!(lock = %name, %error, "a beat of a fair lock was not answered");
                BEAT
            }
        }
    }
}

impl RedisBeat {
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
        let left = left.int().unwrap_or(-1);
        // A release passes over a process that does not hear of its turns, for instance because its user has lost the
        // rights to channels. Its waiters would sleep for as long as they knew the lock to be held.
        let turns = || keys::turns::turn_channel(name, process);
        let oldest = owners.iter().min_by_key(|owner| owner.number());
        if let Some(oldest) = oldest.filter(|_| left == -2 && self.subscriber.is_deaf(turns)) {
            let oldest = keys::fair_channel(name, oldest.text());
            self.subscriber.wake(&oldest);
        }
        Ok(pause(left, more.count() > 0))
    }
}

/// The time until the next beat. `left`: the milliseconds until the holder's lease ends, -1 without an end, -2 if nobody
/// holds the lock.
fn pause(left: i64, more: bool) -> Duration {
    match u64::try_from(left) {
        _ if more => MIN_INTERVAL,
        // One millisecond more, so that the lease is over by then.
        Ok(left) => Duration::from_millis(left.saturating_add(1)).clamp(MIN_INTERVAL, BEAT),
        Err(_) if left == -2 => TURN_INTERVAL,
        Err(_) => BEAT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_beat_comes_when_the_lease_of_the_holder_ends() {
        assert_eq!(pause(500, false), Duration::from_millis(501));
        assert_eq!(pause(30_000, false), BEAT);
        assert_eq!(pause(-1, false), BEAT);
        assert_eq!(pause(-2, false), TURN_INTERVAL);
        assert_eq!(pause(30_000, true), MIN_INTERVAL);
        assert_eq!(pause(i64::MAX, false), BEAT);
    }
}
