//! Backoff and jitter: how long to pause before the next try. Every growing or random pause of the library is computed
//! here, and each caller has its own numbers.
//!
//! The pause before try `n` is `first * growth ^ n`, at most `longest`, and a share of it is random. A pause is only a
//! duration: the caller sleeps on the client's timers, on a condition variable, or in a callback of SQLite.

#[cfg(feature = "testing")]
use std::cell::Cell;
use std::time::Duration;

/// The pauses while a store does not answer: before a reconnect, and before a request that we repeat until the store
/// answers.
pub(crate) const RECONNECT: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(20), Duration::from_millis(640)).jitter(0.5);

/// Exponential backoff. Each pause is longer than the one before, up to a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExponentialBackoff {
    first: Duration,
    longest: Duration,
    growth: f64,
    jitter: f64,
}

impl ExponentialBackoff {
    /// The pauses double from `first` to `longest`, without jitter.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            growth: 2.0,
            jitter: 0.0,
        }
    }

    /// Sets the ratio of one pause to the pause before.
    pub(crate) const fn growth(self, growth: f64) -> Self {
        Self { growth, ..self }
    }

    /// Sets the random share of each pause, from 0 to 1. Without it, all clients that failed together would try again
    /// together.
    pub(crate) const fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The pause after the first try and `retries` more have failed.
    pub(crate) fn pause(&self, retries: u32) -> Duration {
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.growth.powi(retries);
        // An error means that the pause is too long for a `Duration`.
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(self.longest);
        with_jitter(pause.min(self.longest), self.jitter)
    }
}

/// A pause of at most `pause`, of which the share `jitter` is random.
pub(crate) fn with_jitter(pause: Duration, jitter: f64) -> Duration {
    if jitter == 0.0 {
        return pause; // we draw no random number: it would change what a seeded simulation draws next
    }
    pause.mul_f64(1.0 - jitter + jitter * random_share())
}

/// A random factor of at least 0 and less than 1.
fn random_share() -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rough random share is all that is needed"
    )]
    let share = (random() % 1024) as f64 / 1024.0;
    share
}

#[cfg(feature = "testing")]
thread_local! {
    /// The seed of the next random share on this thread. `None`: the shares are random.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on the jitter on this thread follows from the seed, so that a simulation can be replayed.
#[cfg(feature = "testing")]
pub(crate) fn seed(seed: u64) {
    SEED.set(Some(seed));
}

fn random() -> u64 {
    #[cfg(feature = "testing")]
    if let Some(seed) = SEED.get() {
        let mut dice = fastrand::Rng::with_seed(seed);
        let random = dice.u64(..);
        SEED.set(Some(dice.get_seed()));
        return random;
    }
    uuid::Uuid::new_v4().as_u64_pair().1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_grow_up_to_their_bound_and_never_overflow() {
        let doubling = ExponentialBackoff::new(MS * 10, MS * 100);
        let pauses: Vec<_> = (0..6).map(|retries| doubling.pause(retries)).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 100, 100].map(|n| MS * n));
        for retries in [1_000, 100_000, u32::MAX] {
            assert_eq!(doubling.pause(retries), MS * 100);
        }
        let never = ExponentialBackoff::new(Duration::ZERO, MS * 100);
        assert!(never.pause(1) == Duration::ZERO && never.pause(u32::MAX) <= MS * 100);
        let slow = ExponentialBackoff::new(MS * 8, MS * 64).growth(1.3);
        assert_eq!(slow.pause(0), MS * 8);
        assert_eq!(slow.pause(1), Duration::from_micros(10_400));
        assert_eq!(slow.pause(50), MS * 64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "one thread and very many steps")]
    fn only_the_share_of_the_jitter_is_random() {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let pause = RECONNECT.pause(0);
            assert!(pause >= MS * 10 && pause < MS * 20, "{pause:?}");
            seen.insert(pause);
            assert!(with_jitter(MS * 8, 0.25) >= MS * 6);
            assert!(with_jitter(MS * 8, 1.0) < MS * 8);
        }
        assert!(seen.len() > 100, "{} different pauses", seen.len());
    }

    /// A simulation that failed must fail again.
    #[cfg(feature = "testing")]
    #[test]
    fn a_seed_repeats_the_jitter() {
        let pauses = |number| {
            seed(number);
            [0, 1, 2].map(|tries| RECONNECT.pause(tries))
        };
        let first = pauses(7);
        assert_ne!(first, pauses(8));
        assert_eq!(first, pauses(7));
    }
}
