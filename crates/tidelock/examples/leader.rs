//! A web service of several replicas. All of them serve requests; one of them also bills, and another takes over when it
//! ends.
//!
//! `cargo run --example leader -- redis://127.0.0.1:6379 web-1 127.0.0.1:8001`, and the same with `web-2` and another
//! port. Then ask `http://127.0.0.1:8001/ready`, `/leader`, and stop one with Ctrl-C or SIGTERM: the other leads at once.

use std::error::Error;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Router, serve};
use tidelock::Client;
use tidelock::election::{Election, LeadershipTerm};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "memory:".to_owned());
    let identity = args.next().unwrap_or_else(|| "web-1".to_owned());
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:8001".to_owned());

    let client = Client::connect(&url).await?;
    let election = client.election("billing").identity(&identity);
    let leading = tokio::spawn({
        let election = election.clone();
        async move { election.lead(bill).await }
    });

    let routes = Router::new()
        .route("/ready", get(ready))
        .route("/leader", get(leader))
        .with_state((client.clone(), election));
    let listener = TcpListener::bind(&listen).await?;
    println!("{identity} serves http://{}", listener.local_addr()?);
    serve(listener, routes)
        .with_graceful_shutdown(terminated())
        .await?;

    // The requests have ended. Now the leader drops its work and resigns, and a successor is woken.
    client.close(Duration::from_secs(5)).await;
    Ok(leading.await??)
}

/// The work of the leader. It is dropped at the next `await` when the leadership is lost.
async fn bill(term: LeadershipTerm) -> Result<(), std::convert::Infallible> {
    println!("leads in term {}", term.number());
    loop {
        // Pass `term.token()` on: the resource refuses a leader whose term has passed.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A replica is ready whether it leads or not. Sends nothing to the store.
async fn ready(State((client, election)): State<(Client, Election)>) -> (StatusCode, String) {
    let connected = client.status().is_connected;
    let code = if connected {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        code,
        format!("connected: {connected}, leads: {}\n", election.is_leader()),
    )
}

/// The leader, as the store shows it.
async fn leader(State((_, election)): State<(Client, Election)>) -> (StatusCode, String) {
    match election.leader().await {
        Ok(Some(leader)) => (StatusCode::OK, format!("{leader:?}\n")),
        Ok(None) => (StatusCode::OK, "nobody leads\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

/// Ctrl-C, or the SIGTERM that ends a container.
async fn terminated() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => tokio::select! {
                _ = interrupted => {}
                _ = terminate.recv() => {}
            },
            Err(_) => drop(interrupted.await),
        }
    }
    #[cfg(not(unix))]
    drop(interrupted.await);
}
