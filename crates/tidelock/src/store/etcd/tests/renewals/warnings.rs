//! Warnings about holds that are kept, but not with all that was promised.

use super::*;
use crate::store::tests::log::ThreadLog;

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
    let log = ThreadLog::start();
    for warnings in [0, 1] {
        let kept = etcd.renews(&delayed.ticket, LEASE).await;
        assert!(matches!(kept, Renewed::Kept), "{kept:?}");
        assert_eq!(log.count("WARN"), warnings);
        server.etcd(|model| model.end_lease(marker));
    }
}
