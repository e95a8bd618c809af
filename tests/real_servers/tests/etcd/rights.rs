//! T27: users without all the rights that locks need.

use std::convert::Infallible;

use testkit::servers::EtcdServer;
use tidelock::once::Slot;
use tidelock::{Client, ErrorKind, Severity};

use crate::world::soon;

/// A client with the usual times: a server that checks passwords takes a while on a busy machine.
async fn patient(url: &str) -> Client {
    let builder = Client::builder().publish_process_info(false);
    builder.connect(url).await.unwrap()
}

/// A user that cannot read the prefix is refused at the first connect. The doctor reports a user that can read but not
/// write, and its acquire fails at once. The holder is not affected, and the refused users leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_right_that_is_missing_is_named_and_found() {
    let server = EtcdServer::start().unwrap();
    server.user("clerk", "secret", "shop/").unwrap();
    server.user("guest", "secret", "else/").unwrap();
    server.user("reader", "secret", "else/").unwrap();
    let read = "role grant-permission reader --prefix=true read shop/";
    server.admin(&read.split(' ').collect::<Vec<_>>()).unwrap();
    server.guard().unwrap();
    let url = |user: &str| format!("etcd://{user}:secret@{}/shop", server.addr());

    let clerk = patient(&url("clerk")).await;
    let held = clerk.lock("till").acquire().await.unwrap();
    let findings = clerk.diagnose().await.unwrap();
    let danger = |one: &tidelock::Finding| one.severity == Severity::Danger;
    assert!(!findings.iter().any(danger), "{findings:#?}");

    let error = Client::connect(&url("guest")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");

    let reader = patient(&url("reader")).await;
    assert!(reader.lock("till").inspect().await.unwrap().is_locked());
    let findings = reader.diagnose().await.unwrap();
    let rights = findings.iter().find(|one| one.subject == "rights");
    assert_eq!(rights.unwrap().severity, Severity::Danger, "{findings:#?}");
    for name in ["till", "safe"] {
        let asked = soon("an answer", reader.lock(name).acquire()).await;
        let error = asked.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("permission"), "{error}");
    }

    let job = reader.once("report").slot(Slot::id("Monday"));
    let refused = job.run(|_| async { Ok::<_, Infallible>(()) }).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused);
    let refused = reader.election("billing").campaign().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused);

    assert!(held.is_held());
    held.release().await.unwrap();
    assert!(server.keys().unwrap().is_empty());
    real_servers::runs_once(&clerk, "report").await.unwrap();
    real_servers::leads(&clerk, "billing").await.unwrap();
}
