//! The features of a coarse-grained lock service: the unsure state before a loss, sequencers, and lock delays.

use std::time::Instant;

use testkit::servers::ZooKeeperServer;
use tidelock::{AcquireOptions, Guard, HoldState, Sequencer};
use zookeeper_client as zk;

use crate::permits::{bare, patient_client};
use crate::world::{SOON, World, free, ms, soon, waits};

async fn until(guard: &Guard, state: HoldState) {
    let end = Instant::now() + SOON;
    while guard.state() != state {
        assert!(Instant::now() < end, "{:?}, not {state:?}", guard.state());
        tokio::time::sleep(ms(5)).await;
    }
}

/// T59: SUSPENDED. The connection breaks: the hold becomes unsure at once, long before a renewal is due, and sure again
/// when the connection is back. A lease without renewal behaves the same, because it still ends with its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_suspended_session_makes_its_holders_unsure() {
    let world = World::new(ms(12_000)).await;
    let guard = world.far.lock("till").acquire().await.unwrap();
    let fixed = AcquireOptions::new().expires_after(ms(60_000));
    let fixed = world.far.lock("desk").acquire_with(fixed).await.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    let begun = Instant::now();
    world.proxy.refuse(true);
    world.proxy.cut();
    until(&guard, HoldState::Unsure).await;
    until(&fixed, HoldState::Unsure).await;
    assert!(begun.elapsed() < ms(3000), "{:?}", begun.elapsed());
    assert!(guard.is_held() && fixed.is_held());
    world.proxy.refuse(false);
    until(&guard, HoldState::Held).await;
    until(&fixed, HoldState::Held).await;
    world.partition();
    until(&guard, HoldState::Unsure).await;
    assert!(guard.is_held());
    until(&guard, HoldState::Lost).await;
    assert!(!guard.is_held());
    world.heal();
}

/// Another server checks a hold with its own client. It knows the hold only from the text of a sequencer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_is_checked_by_anothers_client_on_zookeeper() {
    let world = World::new(ms(1500)).await;
    let guard = world.far.lock("till").fenced().acquire().await.unwrap();
    let its: Sequencer = guard.sequencer().unwrap().to_string().parse().unwrap();
    assert_eq!(its.generation(), guard.token().get());
    assert!(world.near.verify(&its).await.unwrap());
    let other = format!("tidelock1:exclusive:{}:till", its.generation() + 1);
    assert!(!world.near.verify(&other.parse().unwrap()).await.unwrap());
    // The holder is cut off: the sequencer is valid until the server has ended the session, and never again.
    world.partition();
    until(&guard, HoldState::Lost).await;
    world.until_nodes(0).await;
    assert!(!world.near.verify(&its).await.unwrap());
    let next = world.near.lock("till").acquire().await.unwrap();
    assert!(!world.near.verify(&its).await.unwrap());
    assert!(world.near.verify(&next.sequencer().unwrap()).await.unwrap());
    world.heal();
    next.release().await.unwrap();
}

/// The holder's process is killed: its session ends, and nobody gets the lock during the lock delay that the holder
/// asked for. An orderly release starts no delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_outlives_the_session_of_a_killed_holder() {
    let world = World::new(ms(1500)).await;
    let delay = ms(3000);
    let mut peer = world.peer();
    let asked = format!("acquire till lock_delay={}", delay.as_millis());
    peer.write_line(&asked).unwrap();
    peer.wait_line("acquired till", SOON).unwrap();
    let next = waits(&world.near, "till");
    world.until_nodes(2).await;
    peer.kill().unwrap();
    // A moment before the session ended, so that a late look makes the delay no shorter.
    let mut before = Instant::now();
    let end = before + SOON;
    loop {
        let asked = Instant::now();
        if world.nodes() == 1 {
            break;
        }
        assert!(asked < end, "the session goes on");
        before = asked;
        tokio::time::sleep(ms(20)).await; // as in `until_nodes`
    }
    assert!(!next.is_finished());
    let seen = world.far.lock("till").inspect().await.unwrap();
    assert!(!seen.is_locked() && seen.waiters == Some(1), "{seen:?}");
    let (next, taken) = soon("the next holder", next).await.unwrap();
    let waited = taken - before;
    // The server's clock, which measures the delay, counts whole milliseconds.
    assert!(waited + ms(10) >= delay && waited < delay * 2, "{waited:?}");
    next.release().await.unwrap();
    free(&world.far, "till").await;
    let mut peer = world.peer();
    peer.write_line("acquire till lock_delay=3600000").unwrap();
    peer.wait_line("acquired till", SOON).unwrap();
    let next = waits(&world.near, "till");
    world.until_nodes(2).await;
    peer.write_line("release till").unwrap();
    let (next, _) = soon("the next holder", next).await.unwrap();
    next.release().await.unwrap();
    world.until_nodes(0).await;
}

/// The delay of a hold of ours is running, and a client that knows no delays has taken the lock meanwhile, as Curator does.
/// A forced release ends both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_during_a_delay_takes_the_lock_from_curator() {
    const MARK: &str = "/shop/%delays/till";
    const NODE: &str = "/shop/till/_c_x-lock-0000000000";
    let server = ZooKeeperServer::start().unwrap();
    let (a, bare) = (patient_client(&server).await, bare(&server).await);
    let lasting = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    let of_session = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    for path in ["/shop/till", "/shop/%delays"] {
        bare.mkdir(path, &lasting).await.unwrap();
    }
    bare.create(MARK, b"77 60000", &lasting).await.unwrap();
    bare.create(NODE, b"10.0.0.7", &of_session).await.unwrap();
    let lock = a.lock("till");
    assert!(lock.inspect().await.unwrap().is_locked());
    assert!(lock.force_release().await.unwrap());
    for path in [NODE, MARK] {
        assert!(bare.check_stat(path).await.unwrap().is_none(), "{path}");
    }
    let free = lock.try_acquire().await.unwrap();
    free.expect("free").release().await.unwrap();
}
