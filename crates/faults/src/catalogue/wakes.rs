//! T70 to T72: servers of the wrong kind, messages in two forms, and turns between processes.

use super::{Answer, Row, row};
use crate::store::Store::Cluster;

pub(super) const ROWS: [Row; 2] = [
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
];

const ONE_FORM: &str = "messages have one form; a cluster has two";

const OF_A_CLUSTER: &str =
    "about nodes of a cluster; shown there, by every way in to a single server";
