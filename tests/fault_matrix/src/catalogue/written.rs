//! T65, T68 and T73: data that other programs write under the name of a lock.

use super::{Answer, OWN_RECORDS, Row, SAME_SERVER, only, promised, row};
use crate::store::Store::{
    Cluster, Etcd, Mariadb, Memcached, Memory, Plain, Postgres, Redis, Redlock, Replicas, Sentinel,
    Sqlite, Zookeeper,
};

const SERVER_COUNTS: &str = "the server counts, and nobody can set its numbers";

pub(super) const ROWS: [Row; 3] = [
    row(
        65,
        "a lock of another kind is taken at its key: RReadWriteLock, a string",
        |store| match store {
            Redis | Redlock => Answer::own(),
            Plain => Answer::tested(&[
                "the_two_kinds_refuse_each_others_names",
                "a_key_that_was_deleted_or_taken_over_is_a_loss_and_is_not_touched",
            ]),
            // Both kinds of lock are its own, and they exclude each other.
            Zookeeper | Memory => promised(store, &["a_writer_excludes_all"]),
            Replicas | Sentinel | Cluster => Answer::no(SAME_SERVER),
            Sqlite | Postgres | Mariadb | Etcd | Memcached => Answer::no(OWN_RECORDS),
        },
    ),
    row(
        68,
        "counters beyond 2^53, at their end, below zero, or no numbers",
        |store| match store {
            Redis | Plain | Sqlite | Postgres | Mariadb => Answer::own(),
            Replicas | Sentinel | Cluster => Answer::no(SAME_SERVER),
            Redlock | Memcached => Answer::no("has no tokens"),
            Memory => Answer::no("nobody else can write its counters"),
            Zookeeper | Etcd => Answer::no(SERVER_COUNTS),
        },
    ),
    row(
        73,
        "RFairLock and RSpinLock on its name, which tell others nothing",
        |store| {
            only(
                store,
                &[Redis, Cluster],
                "only Redisson has them, as hashes",
            )
        },
    ),
];
