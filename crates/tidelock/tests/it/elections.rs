//! Elections during an outage of the store.

use std::time::Duration;

use tidelock::Client;
use tidelock::test_util::Plug;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Each campaign leaves two writes of its mark, one from its begin and one from its end. All of them wait until the store can be
/// reached again, and the next candidate would wait behind them.
#[tokio::test(start_paused = true)]
async fn campaigns_that_ended_in_an_outage_do_not_hold_up_the_next_one() {
    let plug = Plug::new();
    let client = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .plug(&plug)
        .connect("memory:")
        .await
        .unwrap();
    let election = client.election("billing");
    plug.pull();
    for _ in 0..200 {
        drop(timeout(SECOND, election.campaign()).await);
    }
    let candidate = election.clone();
    let campaign = tokio::spawn(async move { candidate.campaign().await });
    sleep(SECOND).await;
    plug.put_back();
    let before = plug.requests();
    let leadership = campaign.await.unwrap().unwrap();
    let sent = plug.requests() - before;
    assert!(sent <= 10, "{sent} requests");
    assert!(leadership.is_held());
    leadership.resign().await.unwrap();
}
