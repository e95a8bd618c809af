//! What the library logs. Each test runs in a process of its own: the first thread that reaches a log statement decides
//! for the whole process whether anybody listens, and the threads of other tests have no listener.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::Client;
use tracing_subscriber::fmt::MakeWriter;

use super::environment::passes_with;

/// The log of this thread.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

async fn log_of_a_client(lease: Duration, response_timeout: Duration) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let scope = tracing::subscriber::set_default(subscriber);
    let builder = Client::builder()
        .lease(lease)
        .response_timeout(response_timeout);
    builder.connect("memory:").await.unwrap();
    drop(scope);
    log.text()
}

#[test]
fn a_lease_below_six_response_timeouts_warns() {
    passes_with("logs::short_and_long_leases", &[]);
}

#[tokio::test]
#[ignore = "a_lease_below_six_response_timeouts_warns runs it"]
async fn short_and_long_leases() {
    let second = Duration::from_secs(1);
    let short = log_of_a_client(second * 5, second).await;
    assert!(
        short.contains("WARN") && short.contains("lease is shorter than 6 response timeouts"),
        "{short}"
    );
    let long = log_of_a_client(second * 6, second).await;
    assert!(!long.contains("WARN"), "{long}");
}
