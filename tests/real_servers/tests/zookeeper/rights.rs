//! T27: a path that belongs to another user, or in which nobody may delete nodes for a while.

use std::convert::Infallible;

use testkit::servers::ZooKeeperServer;
use tidelock::once::Slot;
use tidelock::{AcquireOptions, Client, Credentials, ErrorKind, Guard, Severity};

use crate::world::{World, client, free, ms, soon, until_waiters};

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
    let owner = client(&url("owner:secret@"), ms(12_000)).await;
    // The first lock creates the path. The path exists while the lock is held.
    let held = owner.lock("kept").acquire().await.unwrap();
    assert_eq!(rights(&owner).await, Severity::Good);
    for login in ["", "other:secret@", "owner:wrong@"] {
        let stranger = client(&url(login), ms(12_000)).await;
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

/// ZooKeeper refuses no login, but gives a path to one user alone. The password that is given wins over that of the URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_without_a_user_is_for_the_user_of_the_url() {
    let server = ZooKeeperServer::start().unwrap();
    let url = |login: &str| format!("zookeeper://{login}@{}/theirs", server.addr());
    let owner = client(&url("owner:secret"), ms(12_000)).await;
    // The first lock creates the path. The path exists while the lock is held.
    let held = owner.lock("kept").acquire().await.unwrap();
    for login in ["owner", "owner:wrong"] {
        let settings = Client::builder()
            .lease(ms(12_000))
            .response_timeout(ms(3000))
            .publish_process_info(false)
            .credentials(Credentials::password("secret"));
        let same = settings.connect(&url(login)).await.unwrap();
        assert_eq!(rights(&same).await, Severity::Good, "{login}");
        free(&same, "till").await;
        same.close(ms(100)).await;
    }
    held.release().await.unwrap();
    owner.close(ms(100)).await;
}

/// The lease of a reader has ended, and the server refuses to delete its node. Returns another reader, whose node keeps the
/// path there.
async fn with_a_node_that_nobody_may_delete(world: &World) -> Guard {
    let kept = world.far.read_write_lock("till").read().acquire().await;
    world
        .server
        .admin("setAcl /w/till world:anyone:crwa")
        .unwrap();
    let short = AcquireOptions::new().expires_after(ms(1000));
    let near = world.near.read_write_lock("till").read();
    let guard = near.acquire_with(short).await.unwrap();
    soon("the loss", guard.lost()).await;
    // Nothing shows when the server has refused it.
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(world.nodes(), 2);
    kept.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_the_node_of_an_ended_lease_goes_when_the_client_may_delete_it_again() {
    let world = World::alike(ms(9000)).await;
    let kept = with_a_node_that_nobody_may_delete(&world).await;
    let open = "setAcl /w/till world:anyone:cdrwa";
    world.server.admin(open).unwrap();
    world.until_nodes(1).await;
    kept.release().await.unwrap();
    world.until_nodes(0).await;
}

/// The end of its session deletes the node, whatever the client may do. A session that is not ended ends by itself after a
/// lease or more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_a_client_that_may_not_delete_a_node_ends_its_session_when_it_is_closed() {
    let world = World::alike(ms(9000)).await;
    let _kept = with_a_node_that_nobody_may_delete(&world).await;
    world.near.close(ms(0)).await;
    world.until_nodes_within(ms(6000), 1).await;
}

/// A name that belongs to another user hides no other name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_passes_over_names_that_the_user_may_not_read() {
    let world = World::alike(ms(9000)).await;
    // The first lock creates the base path.
    let guard = world.near.lock("till").acquire().await.unwrap();
    let theirs = "addauth digest other:secret\ncreate /w/theirs \"\" auth::cdrwa";
    let said = world.server.admin(theirs).unwrap();
    assert!(said.contains("Created /w/theirs"), "{said}");
    let error = world.near.lock("theirs").inspect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(world.near.list("*").limit(10).await.unwrap(), ["till"]);
    guard.release().await.unwrap();
}

/// The lines of the page, in the server's own client, make a base path of which the user has what locking needs and no
/// more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_page_are_enough() {
    let lines = testkit::pages::block("stores/zookeeper.md", "\n## Rights\n").unwrap();
    let server = ZooKeeperServer::start().unwrap();
    let said = server.admin(&(lines.join("\n") + "\n")).unwrap();
    assert!(said.contains("Created /locks"), "{said}");

    let url = format!("zookeeper://billing:secret@{}/locks", server.addr());
    let [a, b] = [
        client(&url, ms(12_000)).await,
        client(&url, ms(12_000)).await,
    ];
    assert_eq!(rights(&a).await, Severity::Good);
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let next = b.lock("till");
    let next = tokio::spawn(async move { next.acquire().await });
    until_waiters(&a, "till", 1).await;
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    let reader = a.read_write_lock("prices").read().acquire().await;
    reader.unwrap().release().await.unwrap();
    let semaphore = a.semaphore("lanes");
    semaphore.set_permits_if_new(2).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    assert_eq!(a.list("lanes").limit(10).await.unwrap(), ["lanes"]);
    permit.release().await.unwrap();
    real_servers::runs_once(&a, "report").await.unwrap();
    real_servers::leads(&a, "billing").await.unwrap();

    // The user cannot open the path to others.
    let said = server
        .admin("addauth digest billing:secret\nsetAcl /locks world:anyone:cdrwa")
        .unwrap();
    assert!(said.contains("Insufficient permission"), "{said}");
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
