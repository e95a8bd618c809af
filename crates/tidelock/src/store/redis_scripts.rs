//! The texts of scripts of the Redis store, for the tests and the bench of this project.

use super::redis::keys;
use super::redis::layouts::scripts;
use crate::error::Result;
use crate::store::Name;

/// The function `tombstone_of` of scripts that derive the name of a tombstone.
pub const TOMBSTONE: &str = include_str!("redis/layouts/lua/tombstone.lua");

/// The name of the tombstone of an owner, as the client writes it.
///
/// # Errors
/// Fails when it is no name of a lock.
pub fn tombstone(name: &str, owner: &str) -> Result<String> {
    Ok(keys::tombstone(&Name::new(name)?, owner))
}

/// Acquires a Redisson lock.
pub fn acquire() -> &'static str {
    scripts::ACQUIRE.source
}

/// Releases a Redisson lock.
pub fn release() -> &'static str {
    scripts::RELEASE.source
}

/// Acquires a plain lock.
pub fn plain_acquire() -> &'static str {
    scripts::PLAIN_ACQUIRE.source
}

/// Releases a plain lock.
pub fn plain_release() -> &'static str {
    scripts::PLAIN_RELEASE.source
}

/// Renews Redisson locks.
pub fn renew() -> &'static str {
    scripts::RENEW.source
}

/// Acquires a fair lock, or takes a place in its queue.
pub fn fair_acquire() -> &'static str {
    scripts::FAIR_ACQUIRE.source
}

/// Releases a fair lock.
pub fn fair_release() -> &'static str {
    scripts::FAIR_RELEASE.source
}

/// Shows that a process waits for a fair lock.
pub fn fair_beat() -> &'static str {
    scripts::FAIR_BEAT.source
}

/// Takes permits of a semaphore.
pub fn acquire_permits() -> &'static str {
    scripts::ACQUIRE_PERMITS.source
}

/// Gives permits of a semaphore back.
pub fn release_permits() -> &'static str {
    scripts::RELEASE_PERMITS.source
}

/// Changes the permits of a counting semaphore.
pub fn change_semaphore() -> &'static str {
    scripts::CHANGE_SEMAPHORE.source
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A test of a script would otherwise show something of another one, or of none.
    #[test]
    fn each_name_stands_for_a_script_of_its_own() {
        let scripts = [
            acquire(),
            change_semaphore(),
            release(),
            plain_acquire(),
            plain_release(),
            renew(),
            fair_acquire(),
            fair_release(),
            fair_beat(),
            acquire_permits(),
            release_permits(),
        ];
        for script in scripts {
            assert!(script.contains("redis."), "{script}");
        }
        assert_eq!(BTreeSet::from(scripts).len(), scripts.len());
        assert_eq!(
            tombstone("{shop}:till", "c:1").unwrap(),
            "tidelock:withdrawn:{shop}:c:1"
        );
    }
}
