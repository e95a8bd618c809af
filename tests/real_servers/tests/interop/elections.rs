//! A Java service that takes the lock of an election's name takes part in it.

use testkit::java::{RedissonVersion, monotonic_now_ns};

use crate::topologies::until;
use crate::world::{WAKE_BOUND, World, between};

with_each_redisson!(
    a_lock_that_java_holds_keeps_candidates_from_leading,
    a_java_service_follows_a_leader_that_resigns,
);

const NAME: &str = "billing";
const CHANNEL: &str = "redisson_lock__channel:{billing}";

/// The processes of either language that wait for the lock.
fn listeners(world: &World) -> i64 {
    let (_, count): (String, i64) = world.server.query(&["PUBSUB", "NUMSUB", CHANNEL]).unwrap();
    count
}

fn a_lock_that_java_holds_keeps_candidates_from_leading(version: RedissonVersion) {
    let world = World::new(version);
    let java = world.java.lock("a", NAME);
    java.lock().unwrap();
    let election = world.client.election(NAME).identity("web-1");
    let seen = world.run(election.leader()).unwrap().unwrap();
    assert_eq!((seen.identity, seen.term), (None, None));
    let candidate = election.clone();
    let campaign = world.begin(async move { candidate.campaign().await });
    until(|| listeners(&world) == 1);
    assert!(!campaign.is_finished() && !election.is_leader());
    let listed = world.run(election.candidates()).unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    java.unlock().unwrap();
    // Long before the lease that Java had would have ended.
    let elected = world.run(async { tokio::time::timeout(WAKE_BOUND, campaign).await });
    let leadership = elected.unwrap().unwrap().unwrap();
    assert!(!java.try_lock().unwrap().value);
    world.run(leadership.resign()).unwrap();
    assert!(java.try_lock().unwrap().value);
    java.unlock().unwrap();
}

fn a_java_service_follows_a_leader_that_resigns(version: RedissonVersion) {
    let world = World::new(version);
    let election = world.client.election(NAME).identity("web-1");
    let leadership = world.run(election.campaign()).unwrap();
    let earlier = leadership.term();
    let java = world.java.lock("a", NAME);
    let waits = java.begin_lock().unwrap();
    until(|| listeners(&world) == 1);
    assert!(leadership.is_held());
    let resigned = monotonic_now_ns();
    world.run(leadership.resign()).unwrap();
    let took = between(resigned, waits.wait().unwrap().done_at_ns);
    assert!(took < WAKE_BOUND, "{took:?}");
    assert!(!election.is_leader());
    let seen = world.run(election.leader()).unwrap().unwrap();
    assert_eq!((seen.identity, seen.term), (None, None));
    java.unlock().unwrap();
    let leadership = world.run(election.campaign()).unwrap();
    assert!(leadership.term() > earlier);
    world.run(leadership.resign()).unwrap();
}
