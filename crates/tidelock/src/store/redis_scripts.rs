//! The texts of scripts of the Redis store, for the tests and the bench of this project.

use super::redis::layouts::scripts;

/// Acquires a Redisson lock.
pub fn acquire() -> &'static str {
    scripts::ACQUIRE.source
}

/// Releases a Redisson lock.
pub fn release() -> &'static str {
    scripts::RELEASE.source
}

/// Renews Redisson locks.
pub fn renew() -> &'static str {
    scripts::RENEW.source
}
