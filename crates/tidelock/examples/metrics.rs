//! A service whose locks appear on a dashboard. The rules and the dashboard for it are in the folder `monitoring`.
//!
//! `cargo run --example metrics -- redis://127.0.0.1:6379 127.0.0.1:9000`, then open <http://127.0.0.1:9000/metrics>.
//! Without arguments it uses the memory of this process, and this address.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tidelock::{Client, ErrorKind};

/// The bounds of the histograms, in seconds: from a free lock in the memory of a process to a wait of five minutes.
/// Without them the exporter writes summaries, which cannot be added up over processes.
const SECONDS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0,
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "memory:".to_owned());
    let listen: SocketAddr = args.next().as_deref().unwrap_or("127.0.0.1:9000").parse()?;

    // The recorder comes before the client: a handle that was registered without a recorder stays silent.
    PrometheusBuilder::new()
        .with_http_listener(listen)
        .set_buckets_for_metric(Matcher::Prefix("tidelock_".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Prefix("db_client_".to_owned()), &SECONDS)?
        .install()?;
    let client = Client::builder()
        .metric_groups([("stock:*", "stock"), ("order:*", "order")])
        .connect(&url)
        .await?;
    println!("http://{listen}/metrics");

    let sellers = (0..4).map(|seller| sell(client.clone(), seller));
    futures_util::future::try_join_all(sellers).await?;
    Ok(())
}

/// Sells until the process ends: each sale locks one of two articles for a moment, and gives up after 50 ms.
async fn sell(client: Client, seller: u64) -> tidelock::Result<()> {
    for sale in 0.. {
        let article = client.lock(&format!("stock:{}", (seller + sale) % 2));
        match article.acquire_timeout(Duration::from_millis(50)).await {
            Ok(guard) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                guard.release().await?;
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
