//! T42 to T64, T75, T77 and T78: clocks of clients, misuse, single stores, and all faults together.

use super::{
    Answer, CORE, ELSEWHERE, NO_KIND, ONE_PROCESS, Row, SAME_SERVER, only, promised, row, several,
};
use crate::store::Store::{
    Cluster, Etcd, Mariadb, Memcached, Memory, Plain, Postgres, Redis, Redlock, Replicas, Sentinel,
    Sqlite, Zookeeper,
};
use crate::stories as s;

pub(super) const ROWS: [Row; 26] = [
    row(42, "the client's wall clock jumps by an hour", |_| {
        Answer::played(&[s::CLOCKS_MOVED])
    }),
    row(
        43,
        "two clients whose clocks differ, in a fair lock",
        |store| match store {
            Memory => Answer::no("one process, and one clock"),
            Replicas => Answer::no(SAME_SERVER),
            Plain | Redlock | Memcached => Answer::no(NO_KIND),
            _ => Answer::own(),
        },
    ),
    row(44, "the machine is suspended", |store| {
        only(store, &[Redis], CORE)
    }),
    row(45, "an acquire is dropped at every await point", |store| {
        promised(
            store,
            &[
                "an_acquire_dropped_anywhere_leaves_nothing",
                "a_wait_dropped_anywhere_leaves_nothing",
                "an_extension_dropped_anywhere_harms_nothing",
            ],
        )
    }),
    row(46, "a guard is dropped anywhere", |store| {
        promised(
            store,
            &[
                "a_dropped_guard_releases",
                "a_guard_dropped_outside_a_runtime_releases",
                "the_end_of_a_runtime_leaves_nothing",
                "a_panic_releases",
            ],
        )
    }),
    row(47, "a release is cancelled", |store| {
        promised(store, &["a_release_dropped_anywhere_still_releases"])
    }),
    row(48, "three hundred wait for one lock", |_| {
        Answer::played(&[s::CROWD])
    }),
    row(
        49,
        "a fair lock with dead waiters at its head",
        |store| match store {
            Memory => Answer::no(ONE_PROCESS),
            Replicas => Answer::no(SAME_SERVER),
            Plain | Redlock | Memcached => Answer::no(NO_KIND),
            _ => Answer::own(),
        },
    ),
    row(50, "a writer among endless readers", |store| match store {
        Redis | Memory | Zookeeper | Sqlite | Postgres | Mariadb | Etcd => Answer::tested(&[
            "a_writer_is_not_starved_by_readers",
            "the_first_to_come_is_the_first_to_go",
        ]),
        Replicas | Sentinel | Cluster => Answer::no(SAME_SERVER),
        _ => Answer::no(NO_KIND),
    }),
    row(
        51,
        "permits: a holder dies, one too many comes back",
        |store| match store {
            Redis | Memory => Answer::tested(&[
                "permits_of_a_process_that_vanished_come_back_once",
                "no_request_makes_a_permit_too_many",
                "no_counted_request_counts_twice",
                "t51_an_acquire_goes_on_after_an_outage",
            ]),
            Sqlite | Postgres | Etcd | Zookeeper => Answer::tested(&[
                "permits_of_a_process_that_vanished_come_back_once",
                "no_request_makes_a_permit_too_many",
            ]),
            Replicas | Sentinel | Cluster => Answer::no(SAME_SERVER),
            _ => Answer::no(NO_KIND),
        },
    ),
    row(
        52,
        "a latch: counted down while it is waited for",
        |store| match store {
            Redis | Memory => Answer::tested(&[
                "all_waiters_go_on_at_zero_and_not_before",
                "calls_at_the_same_time_each_count_once",
                "t52_a_waiter_goes_on_after_an_outage",
            ]),
            Replicas | Sentinel | Cluster => Answer::no(SAME_SERVER),
            _ => Answer::no(NO_KIND),
        },
    ),
    row(
        53,
        "sets of locks in opposite order, one part hangs",
        |store| only(store, &[Redis], "the same for all stores; shown on redis"),
    ),
    row(54, "misuse: re-entry, double and late releases", |store| {
        promised(
            store,
            &[
                "the_last_guard_out_releases",
                "guards_released_together_release",
                "an_owner_in_two_tasks_shares_one_hold",
                "a_lost_hold_is_not_reentered",
                "release_after_loss_never_touches_the_next_holder",
            ],
        )
    }),
    row(55, "bad names and durations", |store| {
        promised(
            store,
            &[
                "bad_names_are_refused_before_traffic",
                "every_good_name_works",
                "senseless_durations_are_refused",
                "a_wait_of_zero_asks_once",
            ],
        )
    }),
    row(
        56,
        "PostgreSQL: sessions terminated, a pooler between",
        |store| match store {
            Postgres => Answer::played(&[s::TERMINATED]),
            _ => Answer::no(ELSEWHERE),
        },
    ),
    row(
        57,
        "MariaDB: connections killed, wait_timeout, long names",
        |store| match store {
            Mariadb => Answer::played(&[s::TERMINATED]),
            _ => Answer::no(ELSEWHERE),
        },
    ),
    row(
        58,
        "SQLite: busy, long readers, a full disk, killed inside",
        |store| only(store, &[Sqlite], ELSEWHERE),
    ),
    row(
        59,
        "ZooKeeper: sessions expire or are suspended, replies lost",
        |store| only(store, &[Zookeeper], ELSEWHERE),
    ),
    row(
        60,
        "etcd: leases revoked, a leader dies, compaction",
        |store| only(store, &[Etcd], ELSEWHERE),
    ),
    row(61, "memcached: restarts, evictions, long leases", |store| {
        only(store, &[Memcached], ELSEWHERE)
    }),
    row(
        62,
        "the command: killed, frozen, its lock lost",
        |store| match store {
            Memory => Answer::no("another process cannot share it"),
            Sqlite => Answer::own(),
            _ => Answer::no("the command does not know its store; shown on sqlite, its default"),
        },
    ),
    row(63, "all of it for an hour", |_| {
        Answer::no("a run of its own: cargo xtask storm")
    }),
    row(64, "a fleet of several languages", |store| match store {
        Redis => Answer::tested(&["two_java_and_two_rust_processes_never_overlap"]),
        Plain => Answer::tested(&["nobody_overlaps"]),
        Zookeeper => Answer::tested(&["two_curators_and_two_of_ours_never_overlap"]),
        Etcd => Answer::tested(&["etcdctl_and_tidelock_take_turns"]),
        Sentinel => Answer::tested(&["behind_sentinels_nobody_overlaps"]),
        Cluster => Answer::tested(&["in_a_cluster_nobody_overlaps"]),
        Redlock => Answer::tested(&["with_majorities_of_both_nobody_overlaps"]),
        Replicas => Answer::no(SAME_SERVER),
        _ => Answer::no("nobody else speaks its form"),
    }),
    row(
        75,
        "a waiter stands still for longer than a lease",
        |store| several(store, &[s::WAITER_FROZEN]),
    ),
    row(
        77,
        "a client is closed while guards of it are forgotten",
        |store| match store {
            Redis => Answer::tested(&[
                "a_forgotten_guard_keeps_no_thread_of_a_closed_client",
                "a_closed_client_leaves_no_record_on_redis",
            ]),
            Sqlite => Answer::tested(&["a_closed_client_leaves_no_record"]),
            _ => Answer::no("one test for all stores; shown on redis"),
        },
    ),
    row(
        78,
        "a barrier: members die or freeze, replies are lost, the server forgets",
        |store| match store {
            Replicas => Answer::own(),
            Plain | Redlock | Memcached => Answer::no(NO_KIND),
            _ => Answer::tested(&[
                "uses_of_a_barrier_do_not_mix",
                "a_member_that_dies_before_is_not_counted",
                "a_member_that_dies_inside_does_not_hold_up_the_others",
                "a_waiting_member_is_told_of_its_loss",
                "a_member_whose_replies_are_lost_enters_once",
                "a_time_limit_meets_the_last_member",
            ]),
        },
    ),
];
