//! Replies as the decoder returns them.

use crate::store::redis::wire::reply::Reply;

pub(crate) fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

/// A list of these texts.
pub(crate) fn texts(all: &[&str]) -> Reply {
    Reply::List(all.iter().copied().map(text).collect())
}

/// The reply to `CLUSTER SLOTS` with some ranges of slots, each given by the ids of its nodes.
pub(crate) fn slots_of(ranges: &[&[&str]]) -> Reply {
    let node = |id: &&str| Reply::List(vec![text("h"), Reply::Int(1), text(id)]);
    let range = |ids: &&[&str]| {
        let mut range = vec![Reply::Int(0), Reply::Int(99)];
        range.extend(ids.iter().map(node));
        Reply::List(range)
    };
    Reply::List(ranges.iter().map(range).collect())
}
