//! T70 to T72: servers of the wrong kind, messages in two forms, and fairness between processes.

use super::{Answer, Row, row};
use crate::store::Store::{Cluster, Etcd, Plain, Redis, Redlock, Replicas, Sentinel, Zookeeper};

pub(super) const ROWS: [Row; 3] = [
    row(
        70,
        "a single server is expected and a node of a cluster answers, or the reverse",
        |store| match store {
            Cluster => Answer::own(),
            _ => Answer::no(OF_A_CLUSTER),
        },
    ),
    row(
        71,
        "some clients hear plain messages only, others sharded ones only",
        |store| match store {
            Cluster => Answer::own(),
            _ => Answer::no(ONE_FORM),
        },
    ),
    row(
        72,
        "waiters that are slower to come: a JVM, a client that polls; beside short waits",
        |store| match store {
            Redis | Plain | Cluster => Answer::own(),
            Replicas | Sentinel => Answer::no("as on one Redis; shown there"),
            Redlock => Answer::no("turns between processes are not promised on a set"),
            Zookeeper | Etcd => Answer::no("the store queues all waiters itself"),
            _ => Answer::no("turns between processes are not promised there"),
        },
    ),
];

const ONE_FORM: &str = "messages have one form; a cluster has two";

const OF_A_CLUSTER: &str =
    "about nodes of a cluster; shown there, by every way in to a single server";
