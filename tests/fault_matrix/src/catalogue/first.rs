//! T01 to T23: holders, networks, and interference with a lock.

use super::{
    Answer, NAMED_ADDRESSES, NO_MESSAGES, NO_SERVER, OWN_RECORDS, Row, TYPES, lost_replies, only,
    proxied, redis, row, served, several,
};
use crate::store::Store::{
    Cluster, Etcd, Mariadb, Memcached, Memory, Plain, Postgres, Redis, Redlock, Replicas, Sentinel,
    Sqlite, Zookeeper,
};
use crate::stories as s;

pub(super) const ROWS: [Row; 23] = [
    row(1, "the holder is killed", |store| {
        several(store, &[s::HOLDER_KILLED])
    }),
    row(
        2,
        "the holder stands still for longer than its lease",
        |store| several(store, &[s::HOLDER_FROZEN]),
    ),
    row(
        3,
        "the holder's executor is blocked for longer than its lease",
        |_| Answer::played(&[s::EXECUTOR_BLOCKED]),
    ),
    row(
        4,
        "the server stands still for less than a lease",
        |store| served(store, &[s::SERVER_FROZEN_SHORTLY]),
    ),
    row(
        5,
        "the server stands still for longer than a lease",
        |store| served(store, &[s::SERVER_FROZEN]),
    ),
    row(
        6,
        "the server is killed and comes back empty",
        |store| match store {
            Redlock => Answer::played(&[s::SERVER_EMPTIED]),
            Postgres | Mariadb | Zookeeper => Answer::no("what it knows is on its disk: T07"),
            _ => served(store, &[s::SERVER_EMPTIED]),
        },
    ),
    row(
        7,
        "the server is killed and comes back with its data",
        |store| match store {
            Redis | Plain | Postgres | Mariadb | Zookeeper | Etcd => {
                Answer::played(&[s::SERVER_RESTARTED])
            }
            Memcached => Answer::no("it keeps nothing"),
            Replicas | Sentinel | Cluster => Answer::no("another server takes over: T31 to T34"),
            Redlock => {
                Answer::no("a restarted server votes with the data that it kept; shown on redis")
            }
            Sqlite | Memory => Answer::no(NO_SERVER),
        },
    ),
    row(8, "the network swallows everything", |store| {
        proxied(store, &[s::HALF_OPEN])
    }),
    row(
        9,
        "the network is slow: 50, 200, 900 ms each way",
        |store| proxied(store, &[s::SLOW_50, s::SLOW_200, s::SLOW_900]),
    ),
    row(10, "the reply to an acquire is lost", |store| {
        let promises = [
            "a_lost_reply_is_cleaned_up",
            "an_acquire_left_without_a_reply_is_withdrawn",
            "an_acquire_after_its_withdrawal_takes_no_effect",
        ];
        let of_marks = [
            "an_election_without_a_reply_is_won_once",
            "a_run_whose_acquire_had_no_reply_is_run_once",
        ];
        let answer = lost_replies(store).and_promised(store, &promises);
        answer.and_of_marks(store, &of_marks)
    }),
    row(11, "the reply to a release is lost", |store| {
        let promises = ["a_lost_release_reply_is_no_error"];
        let of_marks = [
            "a_resignation_without_a_reply_is_not_forgotten",
            "a_lost_reply_is_no_second_run",
        ];
        let answer = lost_replies(store).and_promised(store, &promises);
        answer.and_of_marks(store, &of_marks)
    }),
    row(12, "the reply to a renewal is lost", |store| {
        lost_replies(store).and_promised(store, &["a_lost_renewal_reply_loses_nothing"])
    }),
    row(
        13,
        "connections are reset every 20 ms",
        |store| match store {
            Sentinel | Cluster => Answer::played(&[s::KILLED_CONNECTIONS]),
            _ => served(store, &[s::RESETS]),
        },
    ),
    row(
        14,
        "the connections of sleeping waiters are ended",
        |store| match store {
            Redis | Replicas | Sentinel | Cluster | Redlock | Postgres => {
                Answer::played(&[s::LISTENERS_CUT])
            }
            Zookeeper | Etcd => Answer::no("waiters hear on the connection of all requests: T13"),
            _ => Answer::no(NO_MESSAGES),
        },
    ),
    row(
        15,
        "a release between the question and the subscription",
        |store| {
            let promises = ["a_waiter_gets_the_lock_when_it_is_released"];
            Answer::played(&[s::CALM]).and_promised(store, &promises)
        },
    ),
    row(
        16,
        "the message of a release is lost",
        |store| match store {
            Redis | Replicas | Redlock => Answer::played(&[s::MESSAGES_LOST]),
            Sentinel | Cluster => Answer::no(NAMED_ADDRESSES),
            Postgres | Zookeeper | Etcd => {
                Answer::no("a message is lost with its connection, and then waiters ask again: T13")
            }
            _ => Answer::no(NO_MESSAGES),
        },
    ),
    row(
        17,
        "the server serves nobody for a while",
        |store| match store {
            Sentinel => Answer::played(&[s::PAUSED_UNTIL_REPLACED]),
            _ => redis(store, &[s::PAUSED_SHORTLY, s::PAUSED]),
        },
    ),
    row(
        18,
        "one request keeps the server busy",
        |store| match store {
            Sentinel => Answer::played(&[s::ASLEEP_UNTIL_REPLACED]),
            _ => redis(store, &[s::ASLEEP]),
        },
    ),
    row(19, "the server forgets the scripts", |store| {
        redis(store, &[s::SCRIPTS_FORGOTTEN])
    }),
    row(
        20,
        "the lock is deleted under its holder, or all data is",
        |store| {
            match store {
                Memory => Answer::own(),
                _ if store.is_redis() || store == Memcached => {
                    Answer::played(&[s::LOCK_DELETED, s::FLUSHED])
                }
                _ => Answer::played(&[s::LOCK_DELETED]),
            }
            .and_promised(store, &["force_release_wakes_and_is_told"])
        },
    ),
    row(
        21,
        "something else stands at the lock's key",
        |store| match store {
            Plain => Answer::tested(&["the_two_kinds_refuse_each_others_names"]),
            Memcached => Answer::tested(&["t61_a_release_never_deletes_what_another_has_stored"]),
            Etcd => Answer::tested(&[
                "a_key_of_another_program_is_neither_shown_nor_deleted_as_a_holder",
            ]),
            _ => only(store, &[Redis], TYPES),
        },
    ),
    row(22, "a holder of another language", |store| match store {
        Plain => Answer::tested(&[
            "they_respect_each_other",
            "a_key_of_another_client_is_waited_for_and_left_alone",
        ]),
        Zookeeper => Answer::tested(&["two_curators_and_two_of_ours_never_overlap"]),
        Etcd => Answer::tested(&[
            "each_waits_for_the_other",
            "etcdctl_and_tidelock_take_turns",
        ]),
        Memcached => Answer::tested(&["t61_a_release_never_deletes_what_another_has_stored"]),
        _ => only(store, &[Redis], OWN_RECORDS),
    }),
    row(
        23,
        "a lock without an end, written by hand",
        |store| match store {
            Zookeeper => {
                Answer::no("what has no session is no ephemeral node: its owner deletes it")
            }
            Etcd => {
                Answer::tested(&["a_lock_without_a_lease_is_neither_shown_nor_deleted_as_a_holder"])
            }
            Memcached => Answer::tested(&["t61_a_release_never_deletes_what_another_has_stored"]),
            _ => only(store, &[Redis, Plain], OWN_RECORDS),
        },
    ),
];
