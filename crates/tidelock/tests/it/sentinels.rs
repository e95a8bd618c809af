//! Sentinels of Redis that fall silent or are set up again. Sockets that speak their protocol play them.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::{Client, ClientBuilder};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::cluster_node::request;

/// A client asks for further sentinels every dozen seconds, and waits 100 ms for the answers. On a busy machine one may
/// come too late, so there is time for three.
const SOON: Duration = Duration::from_secs(40);

/// The time that a sentinel needs to list the others.
const SLOWNESS: Duration = Duration::from_millis(20);

/// What the sentinels report.
#[derive(Debug, Default)]
struct View {
    /// The number of failovers.
    epoch: u32,
    primary: u16,
    /// The ports of the sentinels, as they report them to clients.
    sentinels: Vec<u16>,
}

/// A sentinel.
#[derive(Debug, Clone)]
struct Sentinel {
    port: u16,
    view: Arc<Mutex<View>>,
    /// Notified when it is asked for the primary.
    asked: Arc<Notify>,
}

fn settings() -> ClientBuilder {
    let settings = Client::builder().publish_process_info(false);
    settings.response_timeout(Duration::from_secs(10))
}

async fn bound() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn texts(texts: &[&str]) -> String {
    let each: Vec<String> = texts.iter().copied().map(text).collect();
    format!("*{}\r\n{}", each.len(), each.concat())
}

/// A primary. Its task ends when the client closes its first connection.
async fn primary() -> (u16, JoinHandle<io::Result<()>>) {
    let (listener, port) = bound().await;
    (port, tokio::spawn(serve_once(listener)))
}

async fn serve_once(listener: TcpListener) -> io::Result<()> {
    let mut peer = BufReader::new(listener.accept().await?.0);
    loop {
        let request = request(&mut peer).await?;
        let answer = match request.first().map(String::as_str) {
            Some("ROLE") => texts(&["master"]),
            _ => "+OK\r\n".to_owned(),
        };
        peer.write_all(answer.as_bytes()).await?;
    }
}

impl Sentinel {
    /// Starts one, and the task with which it ends.
    async fn start(view: &Arc<Mutex<View>>) -> (Self, JoinHandle<()>) {
        let (listener, port) = bound().await;
        let sentinel = Self {
            port,
            view: Arc::clone(view),
            asked: Arc::default(),
        };
        let served = sentinel.clone();
        let task = tokio::spawn(async move {
            let mut peers = JoinSet::new();
            while let Ok((peer, _)) = listener.accept().await {
                peers.spawn(served.clone().serve(BufReader::new(peer)));
            }
        });
        (sentinel, task)
    }

    async fn serve(self, mut peer: BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let request = request(&mut peer).await?;
            let words: Vec<&str> = request.iter().map(String::as_str).collect();
            if let ["SENTINEL", "SENTINELS", _] = words.as_slice() {
                sleep(SLOWNESS).await;
            }
            let answer = self.answer(&words);
            peer.write_all(answer.as_bytes()).await?;
        }
    }

    fn answer(&self, words: &[&str]) -> String {
        let view = self.view.lock().unwrap();
        let (epoch, primary) = (view.epoch.to_string(), view.primary.to_string());
        match words {
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _] => {
                self.asked.notify_one();
                texts(&["127.0.0.1", &primary])
            }
            ["SENTINEL", "MASTER", _] => {
                let others = view.sentinels.len().saturating_sub(1).to_string();
                let address = ["ip", "127.0.0.1", "port", &primary];
                let group = ["num-other-sentinels", &others, "quorum", "2"];
                texts(&[&address[..], &["config-epoch", &epoch], &group].concat())
            }
            ["SENTINEL", "MYID"] => text(&self.port.to_string()),
            ["SENTINEL", "SENTINELS", _] => {
                let each = view.sentinels.iter().map(u16::to_string);
                let each = each.map(|port| texts(&["ip", "127.0.0.1", "port", &port]));
                let each: Vec<String> = each.collect();
                format!("*{}\r\n{}", each.len(), each.concat())
            }
            _ => "+OK\r\n".to_owned(),
        }
    }
}

/// The URL of these sentinels.
fn url(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!("redis+sentinel://{}/shop", hosts.join(","))
}

/// The first sentinel of the URL is frozen: it accepts connections and does not answer. The second one names a third.
#[tokio::test]
async fn a_silent_sentinel_hides_no_other() {
    let (_listener, silent) = bound().await;
    let (primary, _served) = primary().await;
    let view = Arc::new(Mutex::new(View {
        primary,
        ..View::default()
    }));
    let (named, _task) = Sentinel::start(&view).await;
    let (other, _task) = Sentinel::start(&view).await;
    view.lock().unwrap().sentinels = vec![named.port, other.port];
    let url = url(&[silent, named.port]);
    let client = settings().connect(&url).await.unwrap();
    let asked = timeout(SOON, other.asked.notified()).await;
    asked.expect("the client learns of the third one from the second");
    drop(client);
}

/// Sentinels get new addresses, as in Kubernetes, so the client knows more that are gone than living ones. The living
/// ones were set up again: they have seen no failover, and name another primary.
#[tokio::test]
async fn sentinels_that_were_set_up_again_are_believed_although_more_are_gone() {
    let (primary, served) = primary().await;
    let (_listener, new) = bound().await;
    let view = Arc::new(Mutex::new(View {
        epoch: 5,
        primary,
        ..View::default()
    }));
    let mut sentinels = Vec::new();
    for _ in 0..7 {
        sentinels.push(Sentinel::start(&view).await);
    }
    let ports: Vec<u16> = sentinels.iter().map(|(one, _)| one.port).collect();
    view.lock().unwrap().sentinels = ports.clone();
    let client = settings().connect(&url(&ports[..3])).await.unwrap();
    for (gone, task) in sentinels.drain(3..) {
        let asked = timeout(SOON, gone.asked.notified()).await;
        asked.expect("the client knows it");
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    *view.lock().unwrap() = View {
        epoch: 0,
        primary: new,
        sentinels: ports[..3].to_vec(),
    };
    let left = timeout(SOON, served).await;
    left.expect("the client leaves the primary of before")
        .unwrap()
        .unwrap_err();
    drop(client);
}
