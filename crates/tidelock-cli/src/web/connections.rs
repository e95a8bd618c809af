//! The connections to the page: how many there are, and for how long one may be silent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

/// Bounds the connections. A client that comes later waits until one of them has ended.
const MOST: u16 = 500;

/// A connection without a whole request for so long is closed. Otherwise clients that connect and send nothing would take all
/// places, or all files that this process may open.
const SILENT: Duration = Duration::from_secs(10);

/// The pause after a connection could not be accepted, as when this process has too many files open.
const AGAIN: Duration = Duration::from_millis(200);

/// The connections that are open. Each has one of the places.
#[derive(Debug)]
pub(super) struct Connections(Arc<Semaphore>);

impl Connections {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(usize::from(MOST))))
    }

    /// Answers requests. A connection ends with its current request once `running` is false.
    pub(super) async fn accept_all(
        &self,
        listener: TcpListener,
        pages: Router,
        running: watch::Receiver<bool>,
    ) -> Infallible {
        loop {
            let Ok(place) = Arc::clone(&self.0).acquire_owned().await else {
                return std::future::pending().await; // nobody closes the semaphore
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let pages = pages.clone().layer(Extension(ConnectInfo(peer)));
                    tokio::spawn(answer(stream, pages, running.clone(), place));
                }
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    /// Waits until no connection is open.
    pub(super) async fn ended(&self) {
        let _ = self.0.acquire_many(u32::from(MOST)).await;
    }
}

/// Answers the requests of one connection.
async fn answer(
    stream: TcpStream,
    pages: Router,
    mut running: watch::Receiver<bool>,
    place: OwnedSemaphorePermit,
) {
    let mut http = Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(SILENT);
    let service = TowerToHyperService::new(pages);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let stopped = async move {
        // An error is an end as well.
        let _ = running.wait_for(|running| !*running).await;
    };
    // An error is one of the client: it has gone, was silent, or does not speak HTTP.
    tokio::select! {
        _ = &mut connection => {}
        () = stopped => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
    drop(place);
}
