//! The form of the release messages: automatic, as Redisson does it, or set in the URL.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::Flavour;

use real_servers::{SOON, builder, eventually, ms, within};

/// So long that only a message can wake a waiter in time.
const LEASE: Duration = Duration::from_secs(30);

/// A waiter is woken by every client that publishes in the form it hears. The default publishes in every form that has
/// a listener, and hears every client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_are_heard_in_the_form_that_was_chosen() -> Result<()> {
    let cluster = crate::shared();
    let sharded = if cluster.nodes()[0].flavour() == Flavour::Redis62 {
        "off" // the server supports no other form
    } else {
        "on"
    };
    for (number, (waits, releases)) in [
        ("auto", sharded),
        (sharded, "auto"),
        (sharded, sharded),
        ("auto", "auto"),
        ("auto", "off"),
        ("off", "auto"),
        ("off", "off"),
        ("both", "auto"),
        ("both", "off"),
        ("auto", "both"),
        ("off", "both"),
    ]
    .into_iter()
    .enumerate()
    {
        let url = |how| format!("{}?sharded_pubsub={how}", cluster.url());
        let (one, two) = (
            builder(LEASE).connect(&url(releases)).await?,
            builder(LEASE).connect(&url(waits)).await?,
        );
        let name = format!("form {number}");
        let guard = one.lock(&name).acquire().await?;
        let waiter = tokio::spawn(two.lock(&name).acquire());
        let node = cluster.node_of(&name)?;
        crate::heard_at(node, &name, SOON)?;
        // If two clients have different settings, each treats the other as a foreign client and also subscribes in a
        // second form, and both are counted for a moment.
        let most = if waits == releases { 1 } else { 3 };
        let lock = one.lock(&name);
        let counted = async {
            while !lock
                .inspect()
                .await?
                .waiters
                .is_some_and(|count| (1..=most).contains(&count))
            {
                tokio::time::sleep(ms(5)).await;
            }
            anyhow::Ok(())
        };
        within(SOON, "one waiter is counted", counted).await??;
        guard.release().await?;
        let what = format!("{waits} waits, {releases} releases");
        let second = within(LEASE / 3, &what, waiter).await???;
        second.release().await?;
        for client in [one, two] {
            client.close(Duration::ZERO).await;
        }
    }
    Ok(())
}

/// A subscription connection closes some time after its last waiter, and all of them close with the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_connection() -> Result<()> {
    let cluster = crate::shared();
    let client = builder(LEASE).connect(&cluster.url()).await?;
    let other = builder(LEASE).connect(&cluster.url()).await?;
    for number in 0..12 {
        let name = format!("everywhere {number}");
        let guard = client.lock(&name).acquire().await?;
        let waiter = tokio::spawn(other.lock(&name).acquire());
        crate::heard_at(cluster.node_of(&name)?, &name, SOON)?;
        guard.release().await?;
        within(SOON, "woken", waiter).await???.release().await?;
    }
    let ids = [client.id().to_owned(), other.id().to_owned()];
    ensure!(ids[0] != ids[1]);
    client.close(Duration::ZERO).await;
    other.close(Duration::ZERO).await;
    for number in 0..12 {
        let name = format!("everywhere {number}");
        let node = cluster.node_of(&name)?;
        eventually(SOON, "nobody listens", || {
            Ok(crate::listeners(node, &name) == 0)
        })
        .with_context(|| name.clone())?;
    }
    Ok(())
}
