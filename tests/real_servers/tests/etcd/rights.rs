//! T27: users without all the rights that locks need.

use std::convert::Infallible;

use testkit::servers::EtcdServer;
use tidelock::once::Slot;
use tidelock::{Client, ErrorKind, Severity};

use crate::world::{ms, soon};

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

/// The right to one of two locks is revoked while both are held. One request renews both, and the server refuses it as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_lock_costs_no_other_its_lease() {
    let server = EtcdServer::start().unwrap();
    // What a client needs beside the locks begins with a `%`.
    server.user("clerk", "secret", "shop/%").unwrap();
    for name in ["allowed", "forbidden"] {
        let right = format!("role grant-permission clerk --prefix=true readwrite shop/{name}/");
        server.admin(&right.split(' ').collect::<Vec<_>>()).unwrap();
    }
    server.guard().unwrap();
    let lease = ms(4000);
    let builder = Client::builder()
        .lease(lease)
        .response_timeout(lease / 2)
        .publish_process_info(false);
    let url = format!("etcd://clerk:secret@{}/shop", server.addr());
    let client = builder.connect(&url).await.unwrap();
    let allowed = client.lock("allowed").acquire().await.unwrap();
    let forbidden = client.lock("forbidden").acquire().await.unwrap();
    let revoke = "role revoke-permission clerk --prefix=true shop/forbidden/";
    server
        .admin(&revoke.split(' ').collect::<Vec<_>>())
        .unwrap();
    let error = forbidden.extend(lease).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    // The other one was acquired before it, so it is lost by then too, unless it was renewed alone.
    soon("the loss", forbidden.lost()).await;
    allowed.release().await.unwrap();
}
