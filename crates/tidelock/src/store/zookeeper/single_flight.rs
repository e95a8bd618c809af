//! Single flight: one read per key is in flight, and callers that arrive meanwhile share the next one.
//!
//! Without it a slow server would never recover. It would answer after its callers had timed out, and each of them
//! would ask again. With a hundred waiters for one name, a hundred lists of a hundred nodes would be in flight over
//! and over, and no answer would arrive in time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::mem;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::Background;

/// For each key, the callers that wait for the next read. An entry exists while a read is in flight.
type SingleFlightWaiters<K, T> = HashMap<K, Vec<oneshot::Sender<T>>>;

pub(crate) struct SingleFlight<K, T>(Arc<Mutex<SingleFlightWaiters<K, T>>>);

impl<K, T> SingleFlight<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + 'static,
{
    /// Returns the result of a read that starts after this call. `None`: the client is shutting down.
    ///
    /// Has no time limit. Cancel safe: a caller may leave, and the read ends with its session at the latest.
    pub(crate) async fn next<F>(
        &self,
        background: &Background,
        at: K,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let first = match lock(&self.0).entry(at.clone()) {
            Entry::Occupied(mut others) => {
                others.get_mut().push(answer);
                false
            }
            Entry::Vacant(nobody) => {
                nobody.insert(vec![answer]);
                true
            }
        };
        if first {
            let mut flight = Flight {
                waiting: Arc::clone(&self.0),
                at,
                over: false,
            };
            background.spawn(async move {
                while let Some(those) = flight.take_waiting() {
                    let seen = read().await;
                    for one in those {
                        // An error means that the caller has left.
                        let _ = one.send(seen.clone());
                    }
                }
            });
        }
        answered.await.ok()
    }
}

/// Runs one read after another, as long as callers wait. If it is dropped early, with its runtime, no caller is left
/// waiting.
struct Flight<K: Eq + Hash, T> {
    waiting: Arc<Mutex<SingleFlightWaiters<K, T>>>,
    at: K,
    /// Its entry is gone, and a new one may belong to another flight.
    over: bool,
}

impl<K: Eq + Hash, T> Flight<K, T> {
    /// Takes the callers that share the next read. `None`: nobody waits, and the flight is over.
    fn take_waiting(&mut self) -> Option<Vec<oneshot::Sender<T>>> {
        let mut waiting = lock(&self.waiting);
        let mut those = mem::take(waiting.get_mut(&self.at)?);
        those.retain(|one| !one.is_closed());
        if those.is_empty() {
            waiting.remove(&self.at);
            self.over = true;
            return None;
        }
        Some(those)
    }
}

impl<K: Eq + Hash, T> Drop for Flight<K, T> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let left = lock(&self.waiting).remove(&self.at);
        drop(left);
    }
}

fn lock<K, T>(
    waiting: &Mutex<SingleFlightWaiters<K, T>>,
) -> MutexGuard<'_, SingleFlightWaiters<K, T>> {
    waiting.lock()
}

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> fmt::Debug for SingleFlight<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::store::Clock;

    /// The first caller reads alone. A hundred more arrive during that read, and half of them leave. The others share
    /// one read, which started after they had arrived.
    #[tokio::test]
    async fn a_caller_during_a_read_shares_the_next_read() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let (reads, begun) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let answers = Arc::new(Semaphore::new(0));
        let next = || {
            let (begun, answers) = (Arc::clone(&begun), Arc::clone(&answers));
            reads.next(&background, "a", move || {
                let (number, answers) =
                    (begun.fetch_add(1, Ordering::SeqCst), Arc::clone(&answers));
                async move {
                    answers.acquire().await.unwrap().forget();
                    number
                }
            })
        };
        let mut first = Box::pin(next());
        assert!(futures_util::poll!(&mut first).is_pending());
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(next())).collect();
        for other in &mut others {
            assert!(futures_util::poll!(other).is_pending());
        }
        others.truncate(50);
        answers.add_permits(2);
        assert_eq!(first.await, Some(0));
        for other in others {
            assert_eq!(
                other.await,
                Some(1),
                "it had begun before, or nobody shared it"
            );
        }
        answers.add_permits(1);
        assert_eq!(next().await, Some(2), "nothing is remembered");
    }

    #[tokio::test]
    async fn nobody_waits_for_a_look_that_went_with_its_runtime() {
        let (background, stop) = Background::start(Clock::Boot).unwrap();
        let reads = SingleFlight::<_, ()>::default();
        let mut one = Box::pin(reads.next(&background, "a", std::future::pending));
        assert!(futures_util::poll!(&mut one).is_pending());
        drop(stop);
        assert_eq!(one.await, None);
        assert!(lock(&reads.0).is_empty());
    }
}
