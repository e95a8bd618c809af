//! Warnings about holds that are kept, but not with all that was promised.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::subscriber::{NoSubscriber, set_default};
use tracing::{Dispatch, Level};

use super::*;

#[tokio::test]
async fn a_hold_whose_delay_is_lost_is_renewed_with_a_warning() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let delayed = AttemptRequest {
        delay: Duration::from_secs(10),
        ..ask(LockKind::Mutex)
    };
    etcd.grants(&delayed).await;
    let marker = server.key("shop/stock/1a.delay").unwrap().lease;
    let warned = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&warned);
    // As long as there is only one subscriber in the process, a thread without one decides for all threads that nobody
    // listens to a log statement.
    let _other = Dispatch::new(NoSubscriber::new());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_writer(move || {
            count.fetch_add(1, Ordering::SeqCst);
            io::sink()
        })
        .finish();
    let _scope = set_default(subscriber);
    for warnings in [0, 1] {
        let kept = etcd.renews(&delayed.ticket, LEASE).await;
        assert!(matches!(kept, Renewed::Kept), "{kept:?}");
        assert_eq!(warned.load(Ordering::SeqCst), warnings);
        server.etcd(|model| model.end_lease(marker));
    }
}
