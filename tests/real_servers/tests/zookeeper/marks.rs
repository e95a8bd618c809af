//! The marks of jobs, elections and barriers: what a change that is delayed on its way may not do.

use std::sync::Arc;
use std::time::Duration;

use testkit::proxy::{Mode, Proxy, Way};
use testkit::servers::ZooKeeperServer;
use tidelock::store::{Backend, MarkChange, Marks, Name};
use tidelock::testing::Fixture;

use crate::permits::bare;
use crate::world::{SOON, ms, soon};

fn marks(store: &Arc<dyn Backend>) -> &dyn Marks {
    store.extensions().marks.unwrap()
}

fn change<'a>(before: Option<&'a str>, after: &'a str) -> MarkChange<'a> {
    MarkChange::unacknowledged("state", before, after, SOON)
}

/// A client reads a mark, and its change is delayed. In between the mark is deleted and made again: the new node has the
/// version of the old one. The change must not replace what it has not seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_change_does_not_replace_a_mark_that_was_made_again() {
    let server = ZooKeeperServer::start().unwrap();
    let proxy = Proxy::start_opaque(server.addr()).unwrap();
    let fixture = |addr: String| {
        Fixture::url(format!("zookeeper://{addr}/w")).lease_of(Duration::from_secs(3))
    };
    let [near, far] = [server.addr(), proxy.addr()].map(|addr| fixture(addr.to_string()));
    let (near, far) = (near.bare().await, far.bare().await);
    let (name, raw) = (Name::new("solver").unwrap(), bare(&server).await);
    let replace = async |before, after| {
        let replaced = marks(&near.store.front).replace(&name, change(before, after));
        assert!(replaced.await.unwrap(), "{before:?} {after}");
    };
    replace(None, "first").await;
    let far_marks = marks(&far.store.front);
    let seen = far_marks.read(&name, "state").await.unwrap();
    assert_eq!(seen.as_deref(), Some("first"));

    let clock = async || raw.check_stat("/w/%marks").await.unwrap().unwrap().version;
    let before = clock().await;
    proxy.set(Way::ToClient, Mode::Hold);
    let late = far_marks.replace(&name, change(Some("first"), "late"));
    let others = async {
        while clock().await == before {
            tokio::time::sleep(ms(5)).await;
        }
        replace(Some("first"), "").await;
        replace(None, "second").await;
        proxy.set(Way::ToClient, Mode::Pass);
    };
    let (late, ()) = soon("both", async { tokio::join!(late, others) }).await;
    assert!(
        !late.unwrap(),
        "it has replaced a mark that it has not seen"
    );
    let seen = far_marks.read(&name, "state").await.unwrap();
    assert_eq!(seen.as_deref(), Some("second"));
}
