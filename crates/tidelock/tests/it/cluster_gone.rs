//! The log of a client whose Redis cluster has gone. A socket that speaks its protocol plays the only node. The test runs
//! in a process of its own, as all tests of the log do.

use std::mem;
use std::time::Duration;

use tidelock::Client;

use crate::cluster_node::Node;
use crate::environment::passes_with;
use crate::logs::listen;

#[test]
fn a_cluster_that_is_replaced_is_one_warning_and_its_return_another() {
    passes_with("cluster_gone::until_it_is_back", &[]);
}

#[tokio::test]
#[ignore = "a_cluster_that_is_replaced_is_one_warning_and_its_return_another runs it"]
async fn until_it_is_back() {
    let node = Node::start("*0\r\n", None).await;
    // On this thread, which alone has a listener.
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.response_timeout(Duration::from_secs(10));
    let client = client.connect(&node.url()).await.unwrap();
    let (log, scope) = listen(tracing::Level::WARN);
    let ours = mem::replace(&mut *node.id.lock().unwrap(), "another");
    while log.text().is_empty() {
        node.hears("CLUSTER SLOTS", 1).await;
    }
    // It is told once, not at each refresh.
    node.hears("CLUSTER SLOTS", 3).await;
    let text = log.text();
    assert_eq!(text.lines().count(), 1, "{text}");
    let at = format!("{}: the node at this address is not of our", node.address());
    for part in ["WARN", "no node reports this cluster as up", &at] {
        assert!(text.contains(part), "{part}: {text}");
    }
    *node.id.lock().unwrap() = ours;
    // One connect, and two refreshes.
    node.hears("CLUSTER SLOTS", 3).await;
    let text = log.text();
    assert_eq!(text.lines().count(), 2, "{text}");
    for part in ["WARN", "reports it as up again", "lasted="] {
        assert!(
            text.lines().nth(1).unwrap().contains(part),
            "{part}: {text}"
        );
    }
    drop((client, scope));
}
