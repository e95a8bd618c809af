//! The Lua scripts. The text is ours; the effects are those of Redisson's scripts, as far as other clients can see
//! them.
//!
//! No script starts with a `#!lua` line: Redis 6.2 does not support it, and with it a server would refuse the whole
//! script when its memory is full. Each script checks before it writes, because Redis does not roll back a script
//! that fails later.

use crate::store::redis::wire::script::{Script, sha1};

/// A script is the concatenation of its files: functions that several scripts use come first.
macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $($file:literal),+) => {
        $(#[$doc])*
        pub(crate) static $name: Script = Script::new(
            concat!($(include_str!($file)),+),
            || sha1(concat!($(include_str!($file)),+)),
        );
    };
}

script!(
    /// Redisson: `RedissonLock.tryLockInnerAsync`, `RedissonFencedLock.tryLockInnerAsync`.
    ACQUIRE, "lua/tombstone.lua", "lua/acquire.lua", "lua/names.lua", "lua/sweep.lua", "lua/token.lua", "lua/acquire_rest.lua"
);
script!(
    /// Redisson: `RedissonLock.unlockInnerAsync`. Also withdraws.
    RELEASE, "lua/tombstone.lua", "lua/release.lua", "lua/listeners.lua", "lua/tell.lua", "lua/names.lua", "lua/release_told.lua", "lua/sweep.lua", "lua/tell_sides.lua", "lua/hand_over.lua", "lua/others.lua", "lua/release_others.lua"
);
script!(
    /// Redisson: `LockTask`.
    RENEW, "lua/listeners.lua", "lua/tell.lua", "lua/names.lua", "lua/sweep.lua", "lua/tell_sides.lua", "lua/hand_over.lua", "lua/others.lua", "lua/renew.lua"
);
script!(
    /// Renews locks in many slots of one cluster node.
    RENEW_SLOTS, "lua/renew_slots.lua"
);
script!(
    /// Redisson: `RedissonLock.forceUnlockAsync`.
    FORCE_RELEASE, "lua/listeners.lua", "lua/tell.lua", "lua/names.lua", "lua/sweep.lua", "lua/tell_sides.lua", "lua/sides.lua", "lua/number.lua", "lua/permits.lua", "lua/hand_over.lua", "lua/others.lua", "lua/seen.lua", "lua/force_release.lua"
);
script!(
    /// Redisson: `RedissonReadLock.tryLockInnerAsync`, `RedissonWriteLock.tryLockInnerAsync`.
    ACQUIRE_SIDE, "lua/names.lua", "lua/sweep.lua", "lua/token.lua", "lua/tell_sides.lua", "lua/sides.lua", "lua/acquire_side.lua"
);
script!(
    /// Redisson: `RedissonReadLock.unlockInnerAsync`, `RedissonWriteLock.unlockInnerAsync`. Also withdraws.
    RELEASE_SIDE, "lua/names.lua", "lua/tell_sides.lua", "lua/sides.lua", "lua/release_side.lua"
);
script!(
    /// Redisson: `ReadLockTask`, and `LockTask` for writers.
    RENEW_SIDE, "lua/names.lua", "lua/tell_sides.lua", "lua/sides.lua", "lua/renew_side.lua"
);
script!(
    /// Redisson: `RedissonFairLock.tryLockInnerAsync`.
    FAIR_ACQUIRE, "lua/listeners.lua", "lua/tell.lua", "lua/names.lua", "lua/sweep.lua", "lua/token.lua", "lua/hand_over.lua", "lua/ahead.lua", "lua/fair_queue.lua", "lua/fair_acquire.lua"
);
script!(
    /// Redisson: `RedissonFairLock.unlockInnerAsync`, `RedissonFairLock.acquireFailedAsync`. Also withdraws.
    FAIR_RELEASE, "lua/listeners.lua", "lua/tell.lua", "lua/names.lua", "lua/sweep.lua", "lua/tell_sides.lua", "lua/hand_over.lua", "lua/others.lua", "lua/ahead.lua", "lua/fair_release.lua"
);
script!(
    /// Keeps the places of this process in the queue of a fair lock.
    FAIR_BEAT, "lua/listeners.lua", "lua/tell.lua", "lua/names.lua", "lua/hand_over.lua", "lua/fair_queue.lua", "lua/fair_beat.lua"
);
script!(
    /// Redisson: `RedissonPermitExpirableSemaphore.tryAcquireAsync`.
    ACQUIRE_PERMITS, "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/acquire_permits.lua"
);
script!(
    /// Redisson: `RedissonPermitExpirableSemaphore.releaseAsync`. Also withdraws.
    RELEASE_PERMITS, "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/release_permits.lua"
);
script!(
    /// Redisson: `RedissonPermitExpirableSemaphore.updateLeaseTimeAsync`.
    RENEW_PERMITS, "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/renew_permits.lua"
);
script!(
    /// Redisson: `trySetPermitsAsync`, `setPermitsAsync` and `addPermitsAsync` of `RedissonPermitExpirableSemaphore`.
    CHANGE_PERMITS, "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/change_permits.lua"
);
script!(
    /// Redisson: `trySetCountAsync`, `countDownAsync` and `deleteAsync` of `RedissonCountDownLatch`.
    CHANGE_LATCH, "lua/number.lua", "lua/counts.lua", "lua/latch.lua", "lua/change_latch.lua"
);
script!(
    /// Read-only. Redisson: `RedissonCountDownLatch.getCountAsync`.
    LATCH_COUNT, "lua/number.lua", "lua/latch.lua", "lua/latch_count.lua"
);
script!(
    /// Redisson: `tryAcquireAsync`, `releaseAsync`, `trySetPermitsAsync`, `addPermitsAsync` and `drainPermitsAsync` of
    /// `RedissonSemaphore`.
    CHANGE_SEMAPHORE, "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/counts.lua", "lua/change_semaphore.lua"
);
script!(
    /// Read-only. Redisson: `RedissonSemaphore.availablePermitsAsync`.
    SEMAPHORE_COUNT, "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/semaphore_count.lua"
);
script!(
    /// Read-only.
    INSPECT_PERMITS, "lua/listeners.lua", "lua/names.lua", "lua/number.lua", "lua/permits.lua", "lua/inspect_permits.lua"
);
script!(
    /// Read-only.
    INSPECT, "lua/listeners.lua", "lua/names.lua", "lua/sides.lua", "lua/inspect.lua"
);
script!(
    /// Doctor check: whether the user may use a counter.
    TRY_COUNTER, "lua/try_counter.lua"
);
script!(
    /// Raises the token counter of either layout.
    RAISE_TOKEN, "lua/raise_token.lua"
);
script!(
    /// Read-only. The marks are keys of tidelock.
    READ_MARK, "lua/marks.lua", "lua/read_mark.lua"
);
script!(
    /// Compares and sets a mark.
    REPLACE_MARK, "lua/marks.lua", "lua/replace_mark.lua"
);
script!(
    /// Read-only.
    NEWEST_MARKS, "lua/marks.lua", "lua/newest_marks.lua"
);
script!(
    /// Writes only a key of tidelock.
    ANNOUNCE, "lua/announce.lua"
);

script!(
    /// The plain lock: `SET NX PX` if the key is free.
    PLAIN_ACQUIRE, "lua/tombstone.lua", "lua/plain_acquire.lua", "lua/token.lua", "lua/plain_acquire_rest.lua"
);
script!(
    /// The plain lock: compare and delete. Also withdraws.
    PLAIN_RELEASE, "lua/tombstone.lua", "lua/plain_release.lua", "lua/plain_release_rest.lua"
);
script!(
    /// The plain lock: compare and expire.
    PLAIN_RENEW, "lua/plain_renew.lua"
);
script!(
    /// The plain lock: compare and expire, in many slots of one cluster node.
    PLAIN_RENEW_SLOTS, "lua/plain_renew_slots.lua"
);
script!(
    /// The plain lock: delete, regardless of the owner.
    PLAIN_FORCE_RELEASE, "lua/plain_owner.lua", "lua/plain_force_release.lua"
);
script!(
    /// The plain lock: read-only.
    PLAIN_INSPECT, "lua/plain_owner.lua", "lua/plain_inspect.lua"
);

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Script; 32] = [
        &RENEW_SLOTS,
        &PLAIN_RENEW_SLOTS,
        &CHANGE_SEMAPHORE,
        &SEMAPHORE_COUNT,
        &CHANGE_LATCH,
        &LATCH_COUNT,
        &READ_MARK,
        &REPLACE_MARK,
        &NEWEST_MARKS,
        &ACQUIRE_PERMITS,
        &RELEASE_PERMITS,
        &RENEW_PERMITS,
        &CHANGE_PERMITS,
        &INSPECT_PERMITS,
        &RAISE_TOKEN,
        &FAIR_ACQUIRE,
        &FAIR_RELEASE,
        &FAIR_BEAT,
        &PLAIN_ACQUIRE,
        &PLAIN_RELEASE,
        &PLAIN_RENEW,
        &PLAIN_FORCE_RELEASE,
        &PLAIN_INSPECT,
        &ACQUIRE,
        &RELEASE,
        &RENEW,
        &FORCE_RELEASE,
        &ACQUIRE_SIDE,
        &RELEASE_SIDE,
        &RENEW_SIDE,
        &INSPECT,
        &ANNOUNCE,
    ];

    #[test]
    fn scripts_run_on_every_server_since_6_2() {
        for script in ALL {
            assert!(!script.source.starts_with("#!"), "{}", script.source);
            assert_eq!(script.sha().len(), 40);
        }
    }

    #[test]
    fn nothing_is_counted_up_but_the_token() {
        for script in ALL {
            assert!(
                !script.source.contains("hincrby"),
                "a repeat would count twice"
            );
        }
    }

    /// The names on the left of each assignment that declares nothing.
    fn assigned(source: &str) -> impl Iterator<Item = &str> {
        let left = source.lines().filter_map(|line| line.split_once(" = "));
        let left = left.map(|(left, _)| left.trim_start());
        let left = left.filter(|left| !left.starts_with("local ") && !left.starts_with("for "));
        let names = left.flat_map(|left| left.split(", "));
        names.filter(|name| {
            name.bytes()
                .all(|letter| letter.is_ascii_lowercase() || letter == b'_')
        })
    }

    /// A server refuses to set a global variable: the script ends there, although it has written something already.
    #[test]
    fn no_script_assigns_a_global() {
        for script in ALL {
            let declared: Vec<&str> = script
                .source
                .lines()
                .filter_map(|line| line.trim_start().strip_prefix("local "))
                .flat_map(|rest| rest.split(" = ").next().unwrap_or(rest).split(", "))
                .collect();
            for name in assigned(script.source) {
                assert!(name != "_" && declared.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn hashes_are_those_the_server_computes() {
        assert_eq!(sha1("return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
