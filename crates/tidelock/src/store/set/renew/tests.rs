//! The renewals of a majority, and what a lock that is restored at a server leaves behind.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::error::ErrorKind;
use crate::store::set::member::Member;
use crate::store::set::tests::scripted::{
    LIMIT, Scripted, empty, env, majority_of, quorum, set_of, ticket,
};
use crate::store::{Backend, ReplicaAck};
use crate::testing::{Twist, Twisted};

/// Answers no renewal.
#[derive(Debug)]
struct Silent;

impl Twist for Silent {
    fn renew<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(std::future::pending())
    }
}

fn batch() -> [Renewal; 1] {
    [Renewal {
        ticket: ticket(),
        lease: LIMIT,
        wish: ReplicaAck::Off,
    }]
}

/// A caller may drop its extension. If its entry went on counting it, nothing would remove the entry.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_dropped_leaves_no_entry() {
    let env = env();
    let store = Twisted::wrap(empty(&env), Silent);
    let member = Member::new(store, None, String::new(), None);
    let set = set_of(Rule::Majority(quorum()), &env, std::iter::once(member));
    let batch = batch();
    {
        let mut renewing = pin!(renew(&set, Side::Front, &batch));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(renewing.as_mut().poll(&mut cx).is_pending());
        assert_eq!(set.in_doubt_log.len(), 1);
    }
    assert_eq!(set.in_doubt_log.len(), 0);
}

/// The release must withdraw the lock where the request that restores it may still take effect, and only there.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_restored_is_in_doubt_until_that_is_answered() {
    let server = Scripted::default;
    for (restored, in_doubt) in [
        (server().grants(), false),
        (server().fails(ErrorKind::Unavailable), false),
        (server().fails(ErrorKind::OutcomeUnknown), true),
        (server().grants_in_doubt(), true),
    ] {
        let restored = restored.renews(Renewed::Gone);
        let set = majority_of(quorum(), &[&server(), &server(), &restored]);
        let batch = batch();
        let renewed = renew(&set, Side::Back, &batch).await.unwrap();
        assert!(matches!(renewed[..], [Renewed::Kept]));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(restored.asked().len(), 1);
        let left = set.in_doubt_log.in_doubt(&batch[0].ticket);
        assert_eq!(left, in_doubt, "{restored:?}");
    }
}

/// A server that does not tell its run counts, and is not asked again. One that has not answered may be another address of
/// a server that counts already.
#[tokio::test(start_paused = true)]
async fn a_server_counts_once_it_has_answered_which_run_it_is() {
    for (kind, counts) in [(ErrorKind::Refused, true), (ErrorKind::Unavailable, false)] {
        let server = || Scripted::default().tells_run(Err(Error::new(kind)));
        let servers = [(); 3].map(|()| server());
        let set = majority_of(quorum(), &servers.each_ref());
        for renewals in 1..3 {
            let renewed = renew(&set, Side::Back, &batch()).await.unwrap();
            let is_kept = matches!(renewed[..], [Renewed::Kept]);
            assert_eq!(is_kept, counts || renewals > 1, "{kind:?}");
            let asked = if counts { 1 } else { renewals };
            assert_eq!(servers[0].run_asked(), asked, "{kind:?}");
        }
    }
}
