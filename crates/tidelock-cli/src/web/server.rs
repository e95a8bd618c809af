//! The addresses of the page, and what stands at each.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{Html, IntoResponse, Response, Sse};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tidelock::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::covers::Shown;
use crate::exit::Outcome;
use crate::inspect::with_store;
use crate::top::GOODBYE;
use crate::top::pace::Looks;
use crate::web::connections::Connections;
use crate::web::doctor::Doctor;
use crate::web::guard::guard;
use crate::web::hosts::Hosts;
use crate::web::metrics;
use crate::web::page::Pages;
use crate::web::sampler::{Sampler, Seen};
use crate::web::view::View;
use crate::web::writes::{self, Writes};

/// Bounds what a program that opens event streams and forgets them can take from this process.
const MOST_VIEWERS: usize = 200;

/// How soon a browser opens an event stream again that has ended.
const RETRY: Duration = Duration::from_secs(1);

/// What all requests share.
pub(super) struct Shared {
    pub(super) hosts: Hosts,
    pub(super) writes: Writes,
    sampler: Sampler,
    doctor: Doctor,
    pages: Pages,
    store: Shown,
    /// Event streams end when it is dropped.
    running: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(
        client: &Client,
        store: Shown,
        hosts: Hosts,
        every: Duration,
        writes: Writes,
    ) -> Self {
        let pages = Pages::new(store.to_string(), every, writes.are_allowed());
        Self {
            hosts,
            writes,
            sampler: Sampler::new(),
            doctor: Doctor::new(client.clone()),
            pages,
            store,
            running: watch::Sender::new(true),
        }
    }
}

/// Answers requests until `ended` does.
pub(super) async fn serve(
    listener: TcpListener,
    shared: Shared,
    looks: Looks<'_>,
    ended: impl Future<Output = ()>,
) {
    let shared = Arc::new(shared);
    let (connections, running) = (Connections::new(), shared.running.subscribe());
    let pages = router(Arc::clone(&shared));
    tokio::select! {
        never = connections.accept_all(listener, pages, running) => match never {},
        never = shared.sampler.look_for_all(looks) => match never {},
        () = ended => {}
    }
    shared.running.send_replace(false);
    // A request that is being answered gets its answer, but nobody waits for who does not read it.
    let _ = timeout(GOODBYE, connections.ended()).await;
    // The client must stay open until then. Otherwise the line of an unlock would say that the client is closed, although
    // the lock may be free.
    shared.writes.finish().await;
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/doctor", get(doctor))
        .route("/api/locks", get(locks))
        .route("/api/events", get(api_events))
        .route("/api/holder", get(writes::holder))
        .route("/api/unlock", post(writes::unlock))
        .route("/metrics", get(figures))
        .route("/healthz", get(async || "ok\n"))
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&shared),
            guard,
        ))
        .with_state(shared)
}

async fn page(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let seen = shared.sampler.now().await;
    match shared.pages.whole(&View::of(query.as_deref()), &seen) {
        Ok((page, policy)) => ([(CONTENT_SECURITY_POLICY, policy)], Html(page)).into_response(),
        Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, failure.message).into_response(),
    }
}

/// What `tidelock doctor` finds. It is asked only here: on Redis it writes.
async fn doctor(State(shared): State<Arc<Shared>>) -> Response {
    let found = shared.doctor.ask().await;
    match shared.pages.doctor(&found) {
        Ok((page, policy)) => ([(CONTENT_SECURITY_POLICY, policy)], Html(page)).into_response(),
        Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, failure.message).into_response(),
    }
}

/// As `top --once --json`, or an error. A picture that is not of now is none.
fn as_json(seen: &Seen) -> Result<Value, Value> {
    match (&seen.trouble, &seen.picture) {
        (None, Some((picture, _))) => Ok(picture.as_json()),
        (trouble, _) => {
            let trouble = trouble.as_deref().unwrap_or("it has not answered yet");
            Err(json!({ "error": format!("the store: {trouble}") }))
        }
    }
}

async fn locks(State(shared): State<Arc<Shared>>) -> Response {
    let (status, object) = match as_json(&shared.sampler.after_look().await) {
        Ok(object) => (StatusCode::OK, object),
        Err(object) => (StatusCode::SERVICE_UNAVAILABLE, object),
    };
    let body = with_store(&shared.store, object) + "\n";
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The same figures for Prometheus.
async fn figures(State(shared): State<Arc<Shared>>) -> Response {
    let text = metrics::of(&shared.sampler.after_look().await);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// Each change of what a page shows, as a part of that page.
async fn events(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let view = View::of(query.as_deref());
    let part = move |shared: &Shared, seen: &Seen| shared.pages.part(&view, seen);
    // As JSON it is one line.
    let data = move |shared: &Shared, seen: &Seen| Ok(json!(part(shared, seen)?).to_string());
    stream_of(shared, data)
}

/// Each new picture, as `/api/locks` has it.
async fn api_events(State(shared): State<Arc<Shared>>) -> Response {
    stream_of(shared, |shared, seen| {
        let object = as_json(seen).unwrap_or_else(|error| error);
        Ok(with_store(&shared.store, object))
    })
}

fn stream_of(
    shared: Arc<Shared>,
    data: impl Fn(&Shared, &Seen) -> Outcome<String> + Send + 'static,
) -> Response {
    if shared.sampler.viewers() >= MOST_VIEWERS {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many event streams\n").into_response();
    }
    let mut running = shared.running.subscribe();
    let stopped = async move {
        let _ = running.wait_for(|running| !*running).await;
    };
    let stream = changes(shared, data).take_until(Box::pin(stopped));
    let events = Sse::new(stream).keep_alive(KeepAlive::default());
    // An nginx before this server would keep events until they fill its buffer: the page would stand still for minutes.
    ([("x-accel-buffering", "no")], events).into_response()
}

/// A viewer that reads slowly misses changes, and gets the newest one.
fn changes(
    shared: Arc<Shared>,
    data: impl Fn(&Shared, &Seen) -> Outcome<String> + Send + 'static,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(
        (shared, data, None::<watch::Receiver<Seen>>),
        |(shared, data, followed)| async move {
            let (seen, now) = match followed {
                None => shared.sampler.follow().await,
                Some(mut seen) => {
                    seen.changed().await.ok()?;
                    let now = seen.borrow_and_update().clone();
                    (seen, now)
                }
            };
            let event = Event::default().id(now.number.to_string()).retry(RETRY);
            let event = match data(&shared, &now) {
                Ok(data) => event.data(data),
                Err(failure) => event.comment(failure.message.replace(['\r', '\n'], " ")),
            };
            Some((Ok(event), (shared, data, Some(seen))))
        },
    )
}
