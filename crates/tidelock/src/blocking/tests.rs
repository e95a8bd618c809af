use std::thread;

use super::*;
use crate::error::ErrorKind;
use crate::types::LostReason;

/// Far below each lease.
const BRIEFLY: Duration = Duration::from_millis(10);

fn connect() -> Client {
    let builder = Client::builder().prefix("shop:").program("till");
    builder.connect_blocking("memory:").unwrap()
}

/// Each of these calls has failed in this way.
fn all_fail<const N: usize>(kind: ErrorKind, calls: [Result<()>; N]) {
    for (number, call) in calls.into_iter().enumerate() {
        let Err(error) = call else {
            panic!("call {number} has not failed");
        };
        assert_eq!(error.kind(), kind, "call {number}: {error}");
    }
}

#[test]
fn a_thread_reenters_its_lock_and_every_other_thread_is_kept_out() {
    let client = connect();
    let lock = client.lock("stock");
    let outer = lock.acquire().unwrap();
    let inner = lock.try_acquire().unwrap().expect("the same thread");
    assert_eq!(inner.owner_id(), outer.owner_id());
    let is_kept_out = || lock.try_acquire().unwrap().is_none();
    assert!(thread::scope(|scope| scope
        .spawn(is_kept_out)
        .join()
        .unwrap()));
    // An owner that is named counts, not the thread.
    let other = AcquireOptions::new().owner(&Owner::new());
    assert!(lock.try_acquire_with(other).unwrap().is_none());
    let refused = lock.clone().non_reentrant().try_acquire().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOptions);
    drop(outer);
    assert!(inner.is_held());
    inner.release().unwrap();
    assert!(thread::scope(|scope| !scope
        .spawn(is_kept_out)
        .join()
        .unwrap()));
}

#[test]
fn a_thread_has_one_owner_for_each_client_that_lives() {
    let [one, other, third] = [(); 3].map(|()| Client::connect("memory:one of many").unwrap());
    let held = one.lock("stock").acquire().unwrap();
    assert!(other.lock("stock").try_acquire().unwrap().is_none());
    let owners = || OWNERS.with_borrow(Vec::len);
    assert_eq!(owners(), 2);
    drop(other);
    assert!(third.lock("stock").try_acquire().unwrap().is_none());
    assert_eq!(owners(), 2, "the client of one of them is gone");
    assert!(one.lock("stock").try_acquire().unwrap().is_some());
    held.release().unwrap();
}

#[test]
fn each_kind_has_the_name_with_its_prefix() {
    let client = connect();
    let guard = client.lock("a").acquire().unwrap();
    for name in [
        client.lock("a").name(),
        guard.name(),
        client.read_write_lock("a").name(),
        client.semaphore("a").name(),
        client.counting_semaphore("a").name(),
        client.latch("a").name(),
        client.barrier("a", 2).name(),
        client.election("a").name(),
        client.once("a").name(),
    ] {
        assert_eq!(name, "shop:a");
    }
}

#[test]
fn a_client_tells_what_the_async_one_tells() {
    let client = connect();
    assert_eq!(client.id(), client.as_async().id());
    assert!(!client.diagnose().unwrap().is_empty());
    let held = client.lock("a").acquire().unwrap();
    let listed: Result<Vec<String>> = client.list("*").collect();
    assert_eq!(listed.unwrap(), ["shop:a"]);
    let status = client.status();
    assert_eq!((status.held, client.stats().held), (1, 1));
    let seen = client.lock("a").inspect().unwrap();
    assert_eq!(seen.holders[0].owner, held.owner_id());
    let sequencer = held.sequencer().unwrap();
    assert!(client.verify(&sequencer).unwrap());
    held.release().unwrap();
    assert!(!client.verify(&sequencer).unwrap());
    let mut ended = client.list("*");
    assert!(ended.next().is_none() && ended.next().is_none());
}

#[test]
fn a_lock_is_forced_only_if_it_is_held_as_seen() {
    let client = connect();
    let lock = client.lock("a");
    let free = lock.inspect().unwrap();
    assert!(!lock.force_release_if(&free).unwrap());
    assert!(!lock.force_release().unwrap());
    let held = lock.acquire().unwrap();
    let seen = lock.inspect().unwrap();
    assert!(!lock.force_release_if(&free).unwrap());
    assert!(lock.force_release_if(&seen).unwrap());
    assert_eq!(
        held.extend(Duration::from_secs(60)).unwrap_err().kind(),
        ErrorKind::Lost
    );
    assert_eq!(held.lost().unwrap(), LostReason::Taken);
    let again = lock.acquire().unwrap();
    assert!(lock.force_release().unwrap());
    assert_eq!(again.release().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn tokens_are_read_and_raised() {
    let client = connect();
    let ledger = client.lock("ledger").fenced();
    assert_eq!(ledger.newest_token().unwrap(), None);
    let next = ledger.raise_token(FencingToken::new(42)).unwrap();
    assert_eq!(next, FencingToken::new(42));
    let guard = ledger.acquire().unwrap();
    assert_eq!(guard.reenter().token(), guard.token());
    assert!(ledger.newest_token().unwrap() >= Some(guard.token()));
    let error = guard.sql_fence().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn a_thread_that_waits_for_the_close_goes_on_with_it() {
    let client = connect();
    let guard = client.lock("a").acquire().unwrap();
    assert!(!client.is_closing() && guard.is_held());
    assert!(!client.closing_timeout(BRIEFLY).unwrap());
    assert!(!guard.closing_timeout(BRIEFLY).unwrap());
    assert_eq!(guard.lost_timeout(BRIEFLY).unwrap(), None);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            client.closing().unwrap();
            client.is_closing()
        });
        assert!(!client.closing_timeout(BRIEFLY).unwrap());
        assert_eq!(client.close(Duration::ZERO).unwrap(), 1);
        assert!(waits.join().unwrap());
    });
    assert!(client.is_closing() && client.closing_timeout(BRIEFLY).unwrap());
    assert!(guard.closing_timeout(BRIEFLY).unwrap());
    guard.closing().unwrap();
    let told = guard.lost_timeout(BRIEFLY).unwrap();
    assert_eq!(told, Some(LostReason::Closed));
    assert!(!guard.is_held());
    assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_closed_client_refuses_every_call() {
    let client = connect();
    let (lock, fenced) = (client.lock("a"), client.lock("a").fenced());
    let guard = lock.acquire().unwrap();
    let (seen, sequencer) = (lock.inspect().unwrap(), guard.sequencer().unwrap());
    assert_eq!(client.close(Duration::ZERO).unwrap(), 1);
    all_fail(
        ErrorKind::Closed,
        [
            client.ping(),
            client.diagnose().map(drop),
            client.processes().map(drop),
            client.watch_processes(),
            client.awaited().map(drop),
            client.verify(&sequencer).map(drop),
            client.list("*").collect::<Result<Vec<_>>>().map(drop),
            lock.acquire().map(drop),
            lock.acquire_timeout(BRIEFLY).map(drop),
            lock.try_acquire().map(drop),
            lock.inspect().map(drop),
            lock.force_release().map(drop),
            lock.force_release_if(&seen).map(drop),
            fenced.newest_token().map(drop),
            fenced.raise_token(FencingToken::new(7)).map(drop),
        ],
    );
    let extended = guard.extend(Duration::from_secs(60));
    all_fail(ErrorKind::Lost, [extended, guard.release()]);
}

#[test]
fn a_closed_client_refuses_every_call_of_what_counts() {
    let client = connect();
    let render = client.semaphore("render");
    let seats = client.counting_semaphore("seats");
    let (gate, solver) = (client.latch("gate"), client.barrier("solver", 1));
    render.set_permits(2).unwrap();
    let permits = render.permits(2).acquire().unwrap();
    let (first, second) = (
        solver.enter().unwrap(),
        client.barrier("b", 1).enter().unwrap(),
    );
    assert_eq!(first.together(), [first.owner_id()]);
    client.close(Duration::ZERO).unwrap();
    all_fail(
        ErrorKind::Closed,
        [
            render.set_permits_if_new(1).map(drop),
            render.set_permits(1),
            render.add_permits(1),
            render.acquire().map(drop),
            render.try_acquire().map(drop),
            render.inspect().map(drop),
            render.force_release().map(drop),
            seats.set_permits_if_new(1).map(drop),
            seats.add_permits(1).map(drop),
            seats.available().map(drop),
            seats.acquire(1),
            seats.acquire_timeout(1, BRIEFLY),
            seats.try_acquire(1).map(drop),
            seats.release(1).map(drop),
            seats.drain().map(drop),
            seats.inspect().map(drop),
            gate.set_count_if_new(1).map(drop),
            gate.count().map(drop),
            gate.count_down().map(drop),
            gate.wait(),
            gate.wait_timeout(BRIEFLY),
            gate.delete().map(drop),
            solver.enter().map(drop),
            solver.enter_timeout(BRIEFLY).map(drop),
            solver.members().map(drop),
        ],
    );
    all_fail(
        ErrorKind::Lost,
        [
            permits.release(),
            first.leave(),
            second.leave_timeout(BRIEFLY),
        ],
    );
}
