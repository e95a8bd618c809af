//! T27: a path that belongs to somebody else.

use testkit::servers::ZooKeeperServer;
use tidelock::{Client, ErrorKind, Severity};

use crate::world::{client, free, ms};

async fn rights(client: &Client) -> Severity {
    let findings = client.examine().await.unwrap();
    let rights = findings.iter().find(|one| one.subject == "rights");
    rights.unwrap().severity
}

/// Who may not queue under the base path is told so when asking, and by an examination before; nothing is left. To its
/// owner the same path is as good as any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_path_of_another_user_is_named_and_found() {
    let server = ZooKeeperServer::start().unwrap();
    let url = |login: &str| format!("zookeeper://{login}{}/theirs", server.addr());
    let owner = client(&url("owner:secret@"), ms(3000)).await;
    // The first lock makes the path; while it is held the path stays.
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
        stranger.close(ms(100)).await;
    }
    assert!(held.is_held());
    held.release().await.unwrap();
    free(&owner, "till").await;
    owner.close(ms(100)).await;
    assert_eq!(server.number("zk_ephemerals_count").unwrap(), 0);
}

/// Whoever names certificates means that what is sent is secret. It would not be.
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
