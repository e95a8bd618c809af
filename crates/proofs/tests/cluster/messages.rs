//! In which form a release is told: as Redisson would, or as the URL says.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::Flavour;

use crate::common::{SOON, builder, eventually, ms, within};

/// So long that only a message wakes.
const LEASE: Duration = Duration::from_secs(30);

/// Whoever hears one form is woken by whoever tells in that form, and by the default, which also hears everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_are_heard_in_the_form_that_was_chosen() -> Result<()> {
    let cluster = crate::shared();
    let sharded = if cluster.nodes()[0].flavour() == Flavour::Redis62 {
        "off" // it knows no other
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
        guard.release().await?;
        let what = format!("{waits} waits, {releases} releases");
        let second = within(ms(1000), &what, waiter).await???;
        let seen = one.lock(&name).inspect().await?;
        // A client takes another for a stranger if their settings differ, and then it listens for a moment too: in two
        // forms, until the server counts it as one.
        let most = if waits == releases { 1 } else { 3 };
        ensure!(
            seen.waiters
                .is_some_and(|count| (1..=most).contains(&count)),
            "{what}: {seen:?}"
        );
        second.release().await?;
        for client in [one, two] {
            client.close(Duration::ZERO).await;
        }
    }
    Ok(())
}

/// Connections for subscriptions end when nobody has waited for a while, and all of them when the client closes.
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
