//! Random factors for pauses, so that clients do not act at the same time.

#[cfg(feature = "testing")]
use std::cell::Cell;

#[cfg(feature = "testing")]
thread_local! {
    /// The seed of the next factor on this thread. `None`: factors are random.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on the factors on this thread follow from the seed, so that a simulation can be replayed.
#[cfg(feature = "testing")]
pub(crate) fn seed(seed: u64) {
    SEED.set(Some(seed));
}

/// A random factor of at least 0 and less than 1.
pub(crate) fn share() -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rough random share is all that is needed"
    )]
    let share = (random() % 1024) as f64 / 1024.0;
    share
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
