//! T27: a path that belongs to another user.

use std::convert::Infallible;

use testkit::servers::ZooKeeperServer;
use tidelock::once::Slot;
use tidelock::{Client, ErrorKind, Severity};

use crate::world::{client, free, ms};

async fn rights(client: &Client) -> Severity {
    let findings = client.diagnose().await.unwrap();
    let rights = findings.iter().find(|one| one.subject == "rights");
    rights.unwrap().severity
}

/// A user who may not create nodes under the base path gets an error from each request, and the doctor reports it
/// beforehand. No node stays behind. For its owner the same path works as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_path_of_another_user_is_named_and_found() {
    let server = ZooKeeperServer::start().unwrap();
    let url = |login: &str| format!("zookeeper://{login}{}/theirs", server.addr());
    let owner = client(&url("owner:secret@"), ms(3000)).await;
    // The first lock creates the path. The path exists while the lock is held.
    let held = owner.lock("kept").acquire().await.unwrap();
    assert_eq!(rights(&owner).await, Severity::Good);
    for login in ["", "other:secret@", "owner:wrong@"] {
        let stranger = client(&url(login), ms(3000)).await;
        assert_eq!(rights(&stranger).await, Severity::Danger, "{login}");
        for name in ["kept", "till"] {
            let error = stranger.lock(name).acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{login}: {error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let job = stranger.once("report").slot(Slot::id("Monday"));
        let refused = job.run(|_| async { Ok::<_, Infallible>(()) }).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused, "{login}");
        let refused = stranger.election("billing").campaign().await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Refused, "{login}");
        stranger.close(ms(100)).await;
    }
    real_servers::runs_once(&owner, "report").await.unwrap();
    real_servers::leads(&owner, "billing").await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
    free(&owner, "till").await;
    owner.close(ms(100)).await;
    assert_eq!(server.number("zk_ephemerals_count").unwrap(), 0);
}

/// A caller that configures certificates expects encryption, and the store has none. It must refuse instead of
/// connecting in plain text.
#[tokio::test]
async fn certificates_are_not_left_out_in_silence() {
    let builder = Client::builder().tls_ca("/etc/shop/ca.pem");
    let refused = builder
        .connect("zookeeper://127.0.0.1:1")
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOptions, "{refused}");
    assert!(refused.to_string().contains("no TLS"), "{refused}");
}
