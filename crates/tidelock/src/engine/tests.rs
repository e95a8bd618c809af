//! Several threads use one client, with a store in memory. `cargo xtask miri` runs these where a load may return an older
//! value, as the memory model allows. No real processor shows every such order, and a scheduler that runs one task at a time
//! shows none.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Client, ErrorKind, Lock};

const THREADS: u32 = 3;
const TURNS: u32 = 3;

/// Longer than any of this takes under Miri: a lease that ends would excuse what must not happen.
const LEASE: Duration = Duration::from_secs(600);

/// What the lock protects. All accesses are relaxed, so a holder sees the value of the last one only if the lock makes it
/// visible.
#[derive(Default)]
struct Protected {
    turns: AtomicU32,
    inside: AtomicU32,
}

impl Protected {
    /// One turn of a holder.
    fn enter(&self) {
        assert_eq!(self.inside.load(Ordering::Relaxed), 0, "two holders");
        self.inside.store(1, Ordering::Relaxed);
        let turns = self.turns.load(Ordering::Relaxed);
        std::thread::yield_now();
        self.turns.store(turns + 1, Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().unwrap().block_on(future)
}

async fn connect() -> Client {
    let options = Client::builder().lease(LEASE);
    options.connect("memory:").await.unwrap()
}

/// Takes turns. The second of the threads drops its guards, which releases in the background; the others wait for that.
async fn take_turns(number: u32, lock: &Lock, protected: &Protected) {
    for _ in 0..TURNS {
        let guard = lock.acquire().await.unwrap();
        protected.enter();
        if number == 1 {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
    }
}

#[test]
fn each_holder_sees_what_the_last_one_has_written() {
    let (client, protected) = (block_on(connect()), Protected::default());
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (lock, protected) = (client.lock("a"), &protected);
            scope.spawn(move || block_on(take_turns(number, &lock, protected)));
        }
    });
    assert_eq!(protected.turns.into_inner(), THREADS * TURNS);
    assert_eq!(block_on(client.close(LEASE)), 0, "all were released");
}

#[test]
fn a_waiter_that_leaves_takes_no_turn_with_it() {
    let (client, protected) = (block_on(connect()), Protected::default());
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (lock, protected) = (client.lock("a"), &protected);
            scope.spawn(move || block_on(take_turns(number, &lock, protected)));
        }
        let lock = client.lock("a");
        scope.spawn(move || {
            for _ in 0..TURNS {
                // It is dropped as soon as it would wait, with whatever has been handed to it by then.
                block_on(async {
                    tokio::select! {
                        biased;
                        guard = lock.acquire() => drop(guard.unwrap()),
                        () = tokio::task::yield_now() => {}
                    }
                });
            }
        });
    });
    assert_eq!(protected.turns.into_inner(), THREADS * TURNS);
    assert_eq!(block_on(client.close(LEASE)), 0, "all were released");
}

#[test]
fn a_close_waits_for_the_holders_and_refuses_the_rest() {
    let (client, protected) = (block_on(connect()), Protected::default());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (lock, protected) = (client.lock("a"), &protected);
            scope.spawn(move || {
                block_on(async {
                    loop {
                        match lock.acquire().await {
                            Ok(guard) => {
                                protected.enter();
                                drop(guard);
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Closed);
                                break;
                            }
                        }
                    }
                });
            });
        }
        let left = block_on(client.close(LEASE));
        assert_eq!(left, 0, "every holder has released");
        assert_eq!(
            protected.inside.load(Ordering::Relaxed),
            0,
            "none is inside"
        );
    });
}
