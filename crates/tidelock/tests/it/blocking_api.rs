//! The blocking API on the threads of an async runtime, and its work under a lock.

use std::sync::mpsc;
use std::time::Duration;

use tidelock::blocking::Client;
use tidelock::{AcquireOptions, ErrorKind, LostReason, Result};

fn sell() -> Result<()> {
    let client = Client::builder()
        .prefix("shop:")
        .connect_blocking("memory:")?;
    let lock = client.lock("stock");
    let guard = lock.acquire()?;
    let inner = guard.reenter();
    guard.release()?;
    assert_eq!(inner.while_held(|| lock.inspect())??.name, "shop:stock");
    inner.release()?;
    assert_eq!(client.close(Duration::from_secs(1))?, 0);
    Ok(())
}

/// Refused in async code, and allowed on a thread that may block.
async fn is_for_threads_that_may_block() {
    let elsewhere = tokio::task::spawn_blocking(|| Client::connect("memory:"));
    let client = elsewhere.await.unwrap().unwrap();
    for refused in [sell(), client.lock("stock").acquire().map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Runtime);
        assert!(error.to_string().contains("spawn_blocking"), "{error}");
    }
    // A task that was refused goes on.
    tokio::time::sleep(Duration::from_millis(1)).await;
    for _ in 0..3 {
        tokio::task::spawn_blocking(sell).await.unwrap().unwrap();
    }
    let refused = tokio::spawn(async { sell().unwrap_err().kind() });
    assert_eq!(refused.await.unwrap(), ErrorKind::Runtime);
}

#[tokio::test]
async fn blocking_calls_work_in_spawn_blocking_of_a_single_thread() {
    is_for_threads_that_may_block().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_calls_work_in_spawn_blocking_of_many_threads() {
    is_for_threads_that_may_block().await;
    tokio::task::block_in_place(sell).unwrap();
}

#[test]
fn work_whose_lock_was_lost_has_no_result() -> Result<()> {
    let client = Client::connect("memory:")?;
    let briefly = AcquireOptions::new().max_hold(Duration::from_millis(20));
    let guard = client.lock("report").acquire_with(briefly)?;
    let error = guard.while_held(|| guard.lost()).unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::MaxHold));
    assert_eq!(error.lock_name(), Some("report"));
    let mut begun = false;
    assert!(guard.while_held(|| begun = true).is_err());
    assert!(!begun, "the lock was lost before");
    Ok(())
}

/// A worker may hand over its callbacks just after another thread has closed the client.
#[test]
fn callbacks_of_a_guard_whose_client_has_closed_are_called() -> Result<()> {
    let client = Client::connect("memory:")?;
    let guard = client.lock("report").acquire()?;
    assert_eq!(client.close(Duration::ZERO)?, 1);
    let (lost, closing) = (mpsc::channel(), mpsc::channel());
    guard.on_lost(move |reason| lost.0.send(reason).unwrap());
    guard.on_closing(move || closing.0.send(()).unwrap());
    let limit = Duration::from_secs(10);
    assert_eq!(lost.1.recv_timeout(limit), Ok(LostReason::Closed));
    assert_eq!(closing.1.recv_timeout(limit), Ok(()));
    Ok(())
}

/// Two clients, a thread each: one waits until the other one has done its part.
#[test]
fn a_thread_waits_for_each_kind_and_goes_on() -> Result<()> {
    let [one, other] = [(); 2].map(|()| Client::connect("memory:kinds of threads"));
    let (one, other) = (one?, other?);
    std::thread::scope(|scope| {
        let [here, there] = [&one, &other].map(|client| client.barrier("solver", 2));
        let waits = scope.spawn(move || there.enter()?.leave());
        here.enter()?.leave()?;
        waits.join().unwrap()?;

        let render = one.semaphore("render");
        render.set_permits(2)?;
        let both = render.permits(2).acquire()?;
        let wanted = other.semaphore("render");
        let waits = scope.spawn(move || wanted.acquire()?.release());
        while other.status().waiting == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        both.release()?;
        waits.join().unwrap()?;

        let seats = one.counting_semaphore("seats");
        assert!(seats.set_permits_if_new(1)? && seats.try_acquire(1)?);
        let wanted = other.counting_semaphore("seats");
        let waits = scope.spawn(move || wanted.acquire(1));
        seats.release(1)?;
        waits.join().unwrap()?;
        assert_eq!(seats.available()?, 0);

        let gate = one.latch("gate");
        assert!(gate.set_count_if_new(1)?);
        let closed = other.latch("gate");
        assert!(
            closed
                .wait_timeout(Duration::ZERO)
                .unwrap_err()
                .is_timeout()
        );
        let waits = scope.spawn(move || closed.wait());
        gate.count_down()?;
        waits.join().unwrap()
    })
}

/// The thread is the owner. Its upgradeable guard lives on, and is not what the writer is downgraded to.
#[test]
fn a_thread_downgrades_to_a_new_reader_beside_its_upgradeable_one() {
    let client = Client::connect("memory:").unwrap();
    let sides = client.read_write_lock("prices");
    let held = sides.upgradeable_read().fenced().acquire().unwrap();
    let writer = sides.upgrade(&held).unwrap();
    let written = writer.token();
    let reader = sides.downgrade(writer).unwrap();
    assert!(reader.token() > written && written > held.token());
    assert_ne!(reader.owner_id(), held.owner_id());
    reader.release().unwrap();
    sides.upgrade(&held).unwrap().release().unwrap();
    held.release().unwrap();
}
