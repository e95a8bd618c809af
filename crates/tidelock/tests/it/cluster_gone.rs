//! The log of a client whose Redis cluster has gone. A socket that speaks its protocol plays the only node. The test runs
//! in a process of its own, as all tests of the log do.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::Client;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::at_the_door::cluster::request;
use crate::environment::passes_with;
use crate::logs::listen;

/// The client asks for the slots once a second.
const SOON: Duration = Duration::from_secs(30);

/// A node with all slots.
#[derive(Debug, Clone)]
struct Node {
    port: u16,
    id: Arc<Mutex<&'static str>>,
    /// How often it was asked for the slots.
    asked: Arc<watch::Sender<usize>>,
}

impl Node {
    async fn start(id: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Self {
            port: listener.local_addr().unwrap().port(),
            id: Arc::new(Mutex::new(id)),
            asked: Arc::default(),
        };
        let served = node.clone();
        // Ends with the runtime of the test.
        tokio::spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(BufReader::new(peer)));
            }
        });
        node
    }

    async fn serve(self, mut peer: BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let request = request(&mut peer).await?;
            let words: Vec<&str> = request.iter().map(String::as_str).collect();
            let answer = match words.as_slice() {
                ["CLUSTER", "SLOTS"] => self.slots(),
                ["PUBSUB", ..] => "*0\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            };
            peer.write_all(answer.as_bytes()).await?;
        }
    }

    fn slots(&self) -> String {
        self.asked.send_modify(|asked| *asked += 1);
        let (id, port) = (*self.id.lock().unwrap(), self.port);
        let id = format!("${}\r\n{id}\r\n", id.len());
        format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n{id}")
    }

    /// Waits until it has been asked so often again.
    async fn is_asked(&self, times: usize) {
        let mut asked = self.asked.subscribe();
        let until = *asked.borrow() + times;
        let heard = timeout(SOON, asked.wait_for(|asked| *asked >= until)).await;
        drop(heard.unwrap().unwrap());
    }
}

#[test]
fn a_cluster_that_is_replaced_is_one_warning_and_its_return_another() {
    passes_with("cluster_gone::until_it_is_back", &[]);
}

#[tokio::test]
#[ignore = "a_cluster_that_is_replaced_is_one_warning_and_its_return_another runs it"]
async fn until_it_is_back() {
    let node = Node::start("ours").await;
    let url = format!("redis+cluster://127.0.0.1:{}", node.port);
    // On this thread, which alone has a listener.
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.response_timeout(Duration::from_secs(10));
    let client = client.connect(&url).await.unwrap();
    let (log, scope) = listen(tracing::Level::WARN);
    *node.id.lock().unwrap() = "another";
    while log.text().is_empty() {
        node.is_asked(1).await;
    }
    // It is told once, not at each refresh.
    node.is_asked(3).await;
    let text = log.text();
    assert_eq!(text.lines().count(), 1, "{text}");
    let at = format!(
        "127.0.0.1:{}: the node at this address is not of our",
        node.port
    );
    for part in ["WARN", "no node reports this cluster as up", &at] {
        assert!(text.contains(part), "{part}: {text}");
    }
    *node.id.lock().unwrap() = "ours";
    // One connect, and two refreshes.
    node.is_asked(3).await;
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
