//! Looks that many want at once: one is under way, and whoever comes meanwhile shares the next.
//!
//! A server that is slow for a moment answers after those who asked have given up, and each of them asks again: of a hundred
//! who wait for one name each would have a list of a hundred nodes on its way, over and over, and no answer would ever
//! come in time again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::backend::Background;

/// By what is looked at: those who want to see it next. There is an entry as long as a look is under way.
type Waiting<K, T> = HashMap<K, Vec<oneshot::Sender<T>>>;

pub(super) struct Looks<K, T>(Arc<Mutex<Waiting<K, T>>>);

impl<K, T> Looks<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + 'static,
{
    /// What is seen by a look that begins after this call. `None`: the client is going.
    ///
    /// Not bounded in time: whoever waits may leave, and the look ends with its session at the latest.
    pub(super) async fn next<F>(
        &self,
        background: &Background,
        at: K,
        look: impl Fn() -> F + Send + Sync + 'static,
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
                while let Some(those) = flight.board() {
                    let seen = look().await;
                    for one in those {
                        // An error means that it has left.
                        let _ = one.send(seen.clone());
                    }
                }
            });
        }
        answered.await.ok()
    }
}

/// One look after the other, as long as somebody wants one. Dropped halfway, with the runtime, it leaves nobody waiting.
struct Flight<K: Eq + Hash, T> {
    waiting: Arc<Mutex<Waiting<K, T>>>,
    at: K,
    /// The entry is gone, or already another one's.
    over: bool,
}

impl<K: Eq + Hash, T> Flight<K, T> {
    /// Those who share the next look. `None`: nobody wants one, and it is over.
    fn board(&mut self) -> Option<Vec<oneshot::Sender<T>>> {
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

fn lock<K, T>(waiting: &Mutex<Waiting<K, T>>) -> MutexGuard<'_, Waiting<K, T>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, T> Default for Looks<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> fmt::Debug for Looks<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::backend::Clock;

    /// The first one looks alone. A hundred come while it does, half of them leave; the others share one look, which began
    /// after they had come.
    #[tokio::test]
    async fn who_comes_while_one_looks_shares_the_next_look() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let (looks, begun) = (Looks::default(), Arc::new(AtomicUsize::new(0)));
        let answers = Arc::new(Semaphore::new(0));
        let next = || {
            let (begun, answers) = (Arc::clone(&begun), Arc::clone(&answers));
            looks.next(&background, "a", move || {
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
        let looks = Looks::<_, ()>::default();
        let mut one = Box::pin(looks.next(&background, "a", std::future::pending));
        assert!(futures_util::poll!(&mut one).is_pending());
        drop(stop);
        assert_eq!(one.await, None);
        assert!(lock(&looks.0).is_empty());
    }
}
