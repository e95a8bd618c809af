//! The leases of marks.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use testkit::proxy::{Mode, Proxy, Way};
use testkit::servers::EtcdServer;
use tidelock::once::Once;
use tidelock::store::{Env, MarkChange, Name, Store};
use tidelock::testing::{Polled, poll_times};
use tidelock::{Client, ErrorKind};

use crate::world::{SOON, ms, soon};

/// How long the marks here are kept. No other lease is as long.
const KEEP: Duration = Duration::from_secs(4323);

/// The leases of marks that have no key.
fn without_a_key(server: &EtcdServer) -> Vec<String> {
    let listed = server.admin(&["lease", "list"]).unwrap();
    let ids = listed.lines().skip(1); // the first line has their number
    let told = ids.map(|id| {
        let id = id.trim();
        server
            .admin(&["lease", "timetolive", id, "--keys"])
            .unwrap()
    });
    let is_left = |told: &String| told.contains("TTL(4323s)") && told.contains("keys([])");
    told.filter(is_left).collect()
}

/// Waits until no lease of a mark is without a key.
async fn no_lease_is_left(server: &EtcdServer) {
    let end = Instant::now() + SOON;
    loop {
        let left = without_a_key(server);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{left:#?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// A user that may read but not write. A candidate keeps its mark for three leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_is_refused_leaves_no_lease() {
    let server = EtcdServer::start().unwrap();
    server.user("reader", "secret", "else/").unwrap();
    let read = "role grant-permission reader --prefix=true read shop/";
    server.admin(&read.split(' ').collect::<Vec<_>>()).unwrap();
    server.guard().unwrap();
    let url = format!("etcd://reader:secret@{}/shop", server.addr());
    let builder = Client::builder()
        .lease(KEEP / 3)
        .publish_process_info(false);
    let reader = builder.connect(&url).await.unwrap();
    let refused = soon("an answer", reader.election("billing").campaign()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused);
    no_lease_is_left(&server).await;
}

/// The call of a job that is dropped at any await.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_anywhere_leaves_no_lease() {
    let server = EtcdServer::start().unwrap();
    let builder = Client::builder().publish_process_info(false);
    let client = builder.connect(&server.url()).await.unwrap();
    for polls in 1..500 {
        let job = client.once(&format!("report-{polls}")).keep(KEEP);
        let run = job.run(|run| async move {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(run.attempt())
        });
        match poll_times(run, polls, SOON).await {
            Polled::Done(ran) => {
                assert!(matches!(ran, Ok(Once::Ran(1))), "{ran:?}");
                return no_lease_is_left(&server).await;
            }
            Polled::Dropped => {}
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        }
    }
    panic!("it never ended");
}

/// A write is dropped while the reply to the grant of its lease is on its way, and then the client closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_dropped_before_a_close_leaves_no_lease() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start_opaque(server.addr()).unwrap();
    let (here, there) = (proxy.addr().to_string(), server.addr().to_string());
    let url = server.url().replace(&there, &here);
    let opened = Arc::<OnceLock<Store>>::default();
    let known = Arc::clone(&opened);
    let builder = Client::builder()
        .response_timeout(SOON)
        .publish_process_info(false);
    let connecting = builder.connect_to(async move |env: &Env| {
        let store = tidelock::testing::open(&url, env).await?;
        Ok(known.get_or_init(|| store).clone())
    });
    let client = connecting.await.unwrap();
    let marks = opened.get().unwrap().front.extensions().marks.unwrap();
    let name = Name::new("report").unwrap();
    proxy.set(Way::ToClient, Mode::Hold);
    let change = MarkChange::unacknowledged("today", None, "1", KEEP);
    let written = poll_times(marks.replace(&name, change), 1, SOON).await;
    assert!(matches!(written, Polled::Dropped), "{written:?}");
    let granted = async {
        while without_a_key(&server).is_empty() {
            tokio::time::sleep(ms(10)).await;
        }
    };
    soon("a lease", granted).await;
    let closing = tokio::spawn(async move { client.close(Duration::ZERO).await });
    // Longer than a close takes that waits for no reply.
    tokio::time::sleep(ms(300)).await;
    proxy.set(Way::ToClient, Mode::Pass);
    soon("the close", closing).await.unwrap();
    no_lease_is_left(&server).await;
}
