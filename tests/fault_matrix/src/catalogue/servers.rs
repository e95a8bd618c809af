//! T24 to T41: servers that are full, closed, replaced or with a wrong clock.

use super::{Answer, NO_MESSAGES, NO_SERVER, NOT_REPLICATED, Row, only, row};
use crate::store::Store::{
    Cluster, Etcd, Mariadb, Memcached, Memory, Plain, Postgres, Redis, Redlock, Replicas, Sentinel,
    Sqlite, Zookeeper,
};
use crate::stories as s;

pub(super) const ROWS: [Row; 18] = [
    row(24, "the server's memory is full", |store| match store {
        Memcached => Answer::tested(&["t61_waiting_at_a_full_server_takes_the_lock_from_nobody"]),
        _ => only(store, &[Redis], "its locks are on a disk: T26"),
    }),
    row(25, "the server throws locks away", |store| match store {
        Memcached => Answer::tested(&["t61_an_eviction_is_told_at_the_next_renewal"]),
        _ => only(store, &[Redis], "it throws nothing away"),
    }),
    row(26, "the disk is full", |store| match store {
        Sqlite => Answer::tested(&[
            "t58_on_a_full_disk_nothing_is_granted_and_what_is_held_can_be_released",
        ]),
        Memory | Memcached => Answer::no("no disk"),
        Postgres | Mariadb | Zookeeper => Answer::played(&[s::DISK_FULL]),
        Etcd => Answer::played(&[s::DISK_FULL, s::QUOTA_USED_UP]),
        _ => only(store, &[Redis], ""),
    }),
    row(27, "rights are missing", |store| match store {
        Postgres => Answer::tested(&["the_rights_that_are_named_are_enough"]),
        Mariadb => Answer::tested(&["the_least_rights_are_enough"]),
        Sqlite | Memory => Answer::no("it has no users"),
        Memcached => Answer::no("its users all have the same rights"),
        Plain => Answer::tested(&[
            "without_scripts::one_holder_at_a_time",
            "without_scripts::a_lost_reply_is_cleaned_up",
        ]),
        Zookeeper | Etcd => Answer::own(),
        _ => only(store, &[Redis, Cluster], ""),
    }),
    row(
        28,
        "the right to channels is missing",
        |store| match store {
            Plain => Answer::no(NO_MESSAGES),
            _ => only(store, &[Redis], "no such rights"),
        },
    ),
    row(
        29,
        "TLS: wrong authority, wrong name, expired, plain text",
        |store| match store {
            Postgres | Mariadb | Etcd => Answer::own(),
            Zookeeper | Memcached => Answer::no("no TLS yet; a URL that asks for it is refused"),
            _ => only(store, &[Redis], NO_SERVER),
        },
    ),
    row(
        30,
        "the password is changed under a client",
        |store| match store {
            Sqlite | Memory => Answer::no("no password"),
            Zookeeper => {
                Answer::no("its server keeps no passwords; another one is another user: T27")
            }
            Postgres | Mariadb | Etcd | Memcached => {
                Answer::played(&[s::PASSWORD_CHANGED, s::PASSWORD_UNKNOWN])
            }
            _ => only(store, &[Redis], ""),
        },
    ),
    row(31, "a planned failover", |store| match store {
        Replicas | Cluster => Answer::played(&[s::FAILOVER]),
        Sentinel => Answer::played(&[s::FAILOVER_BY_SENTINELS, s::FAILOVER_ALL]),
        Etcd => Answer::tested(&["t31_a_leader_that_is_moved_takes_no_lock_with_it"]),
        _ => Answer::no(NOT_REPLICATED),
    }),
    row(
        32,
        "a failover to a replica that has not heard of the lock",
        |store| match store {
            Replicas => Answer::played(&[s::CRASH, s::CRASH_ALL]),
            Sentinel => Answer::tested(&[
                "with_any_every_loss_by_a_failover_is_told",
                "with_all_no_granted_lock_is_lost_by_a_failover",
            ]),
            Cluster => Answer::no("its one replica has acknowledged every grant: T34"),
            _ => Answer::no(NOT_REPLICATED),
        },
    ),
    row(
        33,
        "Sentinel: the primary dies or hangs",
        |store| match store {
            Sentinel => Answer::played(&[s::CRASH, s::HANG, s::CRASH_ALL, s::HANG_ALL]),
            _ => Answer::no("about Sentinel"),
        },
    ),
    row(
        34,
        "Cluster: the primary of a shard dies or hangs",
        |store| match store {
            Cluster => Answer::played(&[s::FAILOVER, s::SHARD_CRASH, s::SHARD_HANG]),
            _ => Answer::no("about a cluster"),
        },
    ),
    row(35, "Cluster: the lock's slot moves", |store| match store {
        Cluster => Answer::played(&[s::LOCKS_MOVED]),
        _ => Answer::no("about a cluster"),
    }),
    row(36, "Cluster: down, torn, loading, busy", |store| {
        only(store, &[Cluster], "about a cluster")
    }),
    row(37, "one of several shards hangs", |store| {
        only(store, &[Cluster], "one shard")
    }),
    row(
        38,
        "RedLock: one, two, three of five hang",
        |store| match store {
            Redlock => Answer::played(&[s::ONE_FROZEN, s::TWO_FROZEN, s::THREE_FROZEN]),
            _ => Answer::no("about a majority"),
        },
    ),
    row(
        39,
        "RedLock: a server comes back empty",
        |store| match store {
            Redlock => Answer::played(&[s::ONE_EMPTIED]),
            _ => Answer::no("about a majority"),
        },
    ),
    row(40, "RedLock: votes are split", |store| match store {
        Redlock => Answer::played(&[s::CALM]),
        _ => Answer::no("about a majority"),
    }),
    row(41, "the server's wall clock jumps", |store| match store {
        Memory => Answer::no(NO_SERVER),
        Sqlite => Answer::no("its deadlines are on the boot clock"),
        Zookeeper | Memcached => Answer::no("its deadlines are on the monotonic clock"),
        Postgres | Mariadb | Etcd => Answer::played(&[s::CLOCK_SET]),
        _ => only(store, &[Redis], ""),
    }),
];
