//! A cluster with mutual TLS, and a user with the least rights.

use anyhow::{Context, Result, ensure};
use testkit::servers::{Certs, Cluster, Flavour, RedisServer, ServerCert, Tls};
use tidelock::{Client, ErrorKind, Severity};

use real_servers::{SOON, ms, secs, within};

const TLS: Tls = Tls {
    cert: ServerCert::Good,
    client_certs: true,
};

/// The rights that `docs/guarantees.md` lists for a single server, and the additional ones for a cluster.
fn rights() -> Result<String> {
    let page = std::fs::read_to_string(testkit::workspace().join("docs/guarantees.md"))?;
    let mut lines = page.lines();
    let server = lines.find_map(|line| line.strip_prefix("ACL SETUSER locks on >PASSWORD "));
    let more = lines.find_map(|line| line.strip_prefix("ACL SETUSER locks +cluster"));
    let (server, more) = server.zip(more).context("the page has both lines")?;
    Ok(format!("{server} +cluster{more}"))
}

/// As a single server a node is refused, and the error names the URL to use even to a user with the least rights.
async fn a_node_is_refused(cluster: &Cluster, certs: &Certs) -> Result<()> {
    let url = cluster.url_as("locks", "secret");
    let alone = url.replace("rediss+cluster://", "rediss://");
    let alone = alone.split(',').next().context("a node")?;
    let builder = Client::builder().tls_ca(&certs.ca);
    let builder = builder.tls_identity(&certs.client, &certs.client_key);
    let refused = builder.connect(alone).await.err();
    let refused = refused.context("it was let in")?;
    ensure!(refused.kind() == ErrorKind::InvalidOptions, "{refused:?}");
    let text = format!("{refused} {refused:?}");
    ensure!(text.contains("write rediss+cluster://"), "{text}");
    ensure!(!text.contains("secret"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t27_the_rights_for_a_cluster_are_enough() -> Result<()> {
    let rights = rights()?;
    let server = RedisServer::builder()
        // The other server builds in the tests have no TLS.
        .flavour(Flavour::Redis7)
        .tls(TLS)
        .acl(&format!("user default off\nuser locks on >secret {rights}"));
    let cluster = Cluster::builder().server(server).start()?;
    let certs = cluster.certs().context("certificates")?;
    let connect = async || {
        Client::builder()
            .lease(secs(3))
            .response_timeout(secs(6))
            .connect_within(SOON)
            .tls_ca(&certs.ca)
            .tls_identity(&certs.client, &certs.client_key)
            .connect(&cluster.url_as("locks", "secret"))
            .await
    };
    let (one, two) = (connect().await?, connect().await?);
    a_node_is_refused(&cluster, certs).await?;
    for finding in one.diagnose().await? {
        let rights = finding.subject.contains("rights") || finding.found.contains("cannot see");
        ensure!(!rights || finding.severity == Severity::Good, "{finding:?}");
    }
    let guard = one.lock("shop:1").fenced().acquire().await?;
    let waiter = tokio::spawn(two.lock("shop:1").fenced().acquire());
    crate::heard_at(cluster.node_of("shop:1")?, "{shop:1}", SOON)?;
    ensure!(one.list("shop:*").limit(10).await? == ["shop:1"]);
    let seen = one.lock("shop:1").inspect().await?;
    ensure!(
        seen.waiters == Some(1) && seen.token == Some(guard.token()),
        "{seen:?}"
    );
    // During the migration ASK redirects the renewal and the release.
    let slot = cluster.slot_of("shop:1")?;
    let own = cluster.node_of("shop:1")?.port();
    let mut others = cluster.primaries()?.into_iter();
    let target = others.find(|node| node.port() != own).context("another")?;
    let migration = cluster.migration(slot, target)?;
    migration.begin()?;
    migration.move_keys()?;
    tokio::time::sleep(ms(3750)).await; // longer than the lease
    ensure!(guard.is_held(), "renewed where it went");
    guard.release().await.context("released where it went")?;
    migration.finish()?;
    let second = within(SOON, "the waiter gets it", waiter).await???;
    second.release().await?;
    // Without the one right that only identifies nodes there is one more finding, and locks still work.
    for node in cluster.nodes() {
        node.admin(&["ACL", "SETUSER", "locks", "-cluster|info"])?;
    }
    let findings = one.diagnose().await?;
    let finding = findings.iter().find(|one| one.subject == "rights: cluster");
    let advice = finding.and_then(|finding| finding.advice.as_deref());
    ensure!(advice == Some("allow +cluster|info"), "{findings:?}");
    one.lock("shop:2")
        .fenced()
        .acquire()
        .await?
        .release()
        .await?;
    Ok(())
}
