use futures_util::future::join;

use super::*;
use crate::client::Client;
use crate::store::LatchChange;
use crate::test_util::Plug;

async fn connect(plug: &Plug) -> Client {
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .plug(plug);
    builder.connect("memory:").await.unwrap()
}

/// The store forgets what is settled, and a late copy of the lost request would count once more then.
#[tokio::test(start_paused = true)]
async fn a_change_that_may_still_arrive_is_not_settled() {
    let plug = Plug::new();
    let client = connect(&plug).await;
    let count = Count::new(client.core(), CountKind::Latch, "gate");
    let change = async |change| count.change(CountChange::Latch(change)).await.unwrap();
    plug.lose_replies(1);
    assert!(change(LatchChange::SetIfNew(2)).await.changed);
    assert!(count.settled.lock().is_empty());
    assert_eq!(change(LatchChange::CountDown).await.count, 1);
    assert_eq!(count.settled.lock().len(), 1);
}

/// Without the message it would ask again only once a second.
#[tokio::test(start_paused = true)]
async fn a_message_ends_a_wait_at_once() {
    let client = connect(&Plug::new()).await;
    let (timers, gate) = (&client.core().timers, client.latch("gate"));
    assert!(gate.set_count_if_new(1).await.unwrap());
    let opens = async {
        timers.after(Duration::from_millis(5_500)).await;
        gate.count_down().await.unwrap();
        timers.now()
    };
    let (waited, opened) = join(gate.wait(), opens).await;
    waited.unwrap();
    assert!(timers.now().since(opened) < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn an_outage_may_last_a_lease_or_the_rest_of_the_time_of_the_caller() {
    let client = connect(&Plug::new()).await;
    let count = Count::new(client.core(), CountKind::Latch, "gate");
    let (now, lease) = (client.core().timers.now(), client.core().settings.lease);
    assert_eq!(count.patience(None), lease);
    assert_eq!(count.patience(Some(now + lease * 2)), lease);
    assert_eq!(count.patience(Some(now + lease / 2)), lease / 2);
    assert_eq!(count.patience(Some(now)), Duration::ZERO);
}
