//! The lanes of a set and its list of locks, and what the tests of this room share.

pub(crate) mod scripted;

use std::collections::BTreeSet;

use super::*;
use crate::error::ErrorKind;
use crate::store::set::tests::scripted::{LIMIT, empty, env, patient, quorum, set_of, ticket};
use crate::test_util::Plug;
use crate::testing::{Twist, Twisted};

/// A member at which the lane of a lock is the digit at this place of its name.
#[derive(Debug)]
struct LaneByDigit(usize);

impl Twist for LaneByDigit {
    fn lane(&self, _inner: &dyn Backend, name: &Name) -> u64 {
        u64::from(name.as_str().as_bytes()[self.0] - b'0')
    }
}

/// The renewals of one lane go out in one batch, which a member that hangs delays as a whole.
#[tokio::test]
async fn locks_of_a_set_share_a_lane_only_if_they_share_one_at_each_member() {
    let env = env();
    let members = [0, 1].map(|place| {
        let store = Twisted::wrap(empty(&env), LaneByDigit(place));
        Member::new(store, None, format!("member {place}"), None)
    });
    let store = open(Plan {
        rule: Rule::All,
        members: Vec::from(members),
        timers: env.timers.clone(),
        background: env.background.clone(),
        response_timeout: LIMIT,
    });
    let lane = |name: &str| store.back.lane(&Name::new(name).unwrap());
    let names = ["11", "12", "21", "22"];
    let lanes: BTreeSet<u64> = names.iter().map(|name| lane(name)).collect();
    assert_eq!(lanes.len(), names.len(), "{lanes:?}");
    assert_eq!(lane("12 a"), lane("12 b"));
}

/// Whether a lock is held at enough of them is not known without the answers of as many.
#[tokio::test]
async fn fewer_members_than_a_lock_needs_do_not_tell_which_locks_are_held() {
    let (env, plugs) = (env(), [(); 3].map(|()| Plug::new()));
    let members = plugs.each_ref().map(|plug| {
        let store = plug.wrap(empty(&env));
        Member::new(store, None, "a".to_owned(), None)
    });
    let set = set_of(Rule::Majority(quorum()), &env, members.into_iter());
    let ticket = ticket();
    for part in 0..3 {
        let store = set.member(part, Side::Front);
        store.attempt(&patient(&ticket)).await.outcome.unwrap();
    }
    for (plug, expected) in plugs.iter().zip([
        Ok(vec!["stock".to_owned()]),
        Err(ErrorKind::Unavailable),
        Err(ErrorKind::Unavailable),
    ]) {
        plug.pull();
        let told = inspect::list(&set, "*").await;
        let told = told.map(|page| page.names).map_err(|error| error.kind());
        assert_eq!(told, expected);
    }
}
