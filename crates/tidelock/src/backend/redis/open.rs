//! Opens the store: from a URL or its parts to the two store handles.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::ack::{Company, Undoing};
use super::cluster::{self, Cluster};
use super::events::Events;
use super::gate::{Entry, Finder, Gate};
use super::link::{Home, Link};
use super::place::{Nodes, Target, Way};
use super::plain::{self, Layout};
use super::request::Request;
use super::routes::{Face, Routes};
use super::sentinel::{self, Sentinel};
use super::stations::Stations;
use super::subscriber::{Subscriber, Ways};
use super::{Redis, Shared};
use crate::backend::{Env, Store, tls};
use crate::error::{Error, ErrorKind, Result};
use crate::servers::{Messages, Servers};

/// Connects. Fails at once if the server cannot be reached or rejects the login.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    let (layout, url) = plain::layout(url)?;
    open(layout, Target::parse(&url)?, env).await
}

/// Like [`connect`], from parts.
pub(crate) async fn connect_servers(servers: &Servers, env: &Env) -> Result<Store> {
    let layout = if servers.plain_locks {
        Layout::Plain
    } else {
        Layout::Redisson
    };
    open(layout, Target::of(servers)?, env).await
}

async fn open(layout: Layout, target: Target, env: &Env) -> Result<Store> {
    if !target.is_tls() && tls::is_wanted(&env.tls) {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "certificates are given, but no TLS is asked for; write rediss:// instead of redis://, or Servers::tls",
        ));
    }
    let entry = Entry {
        db: target.db,
        user: target.user,
        password: target.password,
        credentials: env.credentials.clone(),
        tls: env.tls.clone(),
        in_cluster: matches!(target.way, Way::Cluster(_)),
    };
    match target.way {
        Way::One(place) => one(layout, Finder::Fixed(place), entry, env).await,
        Way::Sentinels(who) => {
            let (background, timers) = (&env.background, &env.timers);
            let sentinel = Sentinel::new(who, &env.tls, background, timers, env.response_timeout);
            one(layout, Finder::Sentinel(Box::new(sentinel)), entry, env).await
        }
        Way::Cluster(nodes) => many(layout, nodes, entry, env).await,
    }
}

/// A little longer than the connect itself may take, because its error message is more precise than a timeout.
fn patience(env: &Env) -> Duration {
    env.response_timeout + Duration::from_millis(50)
}

async fn one(layout: Layout, finder: Finder, entry: Entry, env: &Env) -> Result<Store> {
    let (timers, db) = (&env.timers, entry.db);
    let gate = Arc::new(Gate::new(
        finder,
        entry,
        timers.clone(),
        env.response_timeout,
    ));
    if gate.sentinel().is_some() {
        let follow = sentinel::follow(Arc::downgrade(&gate), timers.clone());
        env.background.spawn(follow);
    }
    let front = Link::new(Arc::clone(&gate), Home::Caller);
    let back = Home::Background(env.background.clone());
    let back = Link::new(Arc::clone(&gate), back);
    let store = faces(
        (layout, db),
        [Routes::One(front.clone()), Routes::One(back)],
        Stations::One(gate),
        Ways::Plain,
        env,
    );
    front.get(timers.now() + patience(env)).await?;
    Ok(store)
}

async fn many(layout: Layout, nodes: Nodes, entry: Entry, env: &Env) -> Result<Store> {
    let (background, timers, db) = (env.background.clone(), env.timers.clone(), entry.db);
    let cluster = Cluster::new(
        nodes.places,
        entry,
        background,
        timers.clone(),
        env.response_timeout,
    );
    let cluster = Arc::new(cluster);
    cluster.look().await?;
    let ways = ways(nodes.sharded, &cluster).await?;
    let follow = cluster::follow(Arc::downgrade(&cluster), timers);
    env.background.spawn(follow);
    let routes = [Face::Front, Face::Back].map(|face| Routes::Cluster(Arc::clone(&cluster), face));
    let stations = Stations::Cluster(cluster);
    Ok(faces((layout, db), routes, stations, ways, env))
}

/// Chooses the kind of channel. A message published with SPUBLISH does not reach a plain subscriber, nor the reverse,
/// and servers before 7.0 know only PUBLISH.
async fn ways(sharded: Messages, cluster: &Arc<Cluster>) -> Result<Ways> {
    let known = match sharded {
        Messages::Off => false,
        Messages::On => true,
        Messages::Auto | Messages::Both => knows_shards(cluster).await?,
    };
    Ok(match (known, sharded) {
        (false, _) => Ways::Plain,
        (true, Messages::Auto) => Ways::Auto,
        (true, Messages::Both) => Ways::Both,
        (true, _) => Ways::Sharded,
    })
}

async fn knows_shards(cluster: &Arc<Cluster>) -> Result<bool> {
    let request = Request::new("PUBSUB").arg("SHARDNUMSUB");
    let routes = Routes::Cluster(Arc::clone(cluster), Face::Back);
    match routes.ask("", &request, routes.deadline()).await {
        Ok(_) => Ok(true),
        // We return the error instead of a guess: with a wrong guess, some waiters would not be woken.
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        Err(error) => {
            tracing::debug!(%error, "no sharded messages");
            Ok(false)
        }
    }
}

fn faces(
    (layout, db): (Layout, i64),
    routes: [Routes; 2],
    stations: Stations,
    ways: Ways,
    env: &Env,
) -> Store {
    let subscriber = Arc::new(Subscriber::new(&stations, ways, &env.background));
    let plainly = match ways {
        Ways::Plain => Arc::clone(&subscriber),
        // Servers publish keyspace events with PUBLISH only, even if clients use sharded channels.
        _ => Arc::new(Subscriber::new(&stations, Ways::Plain, &env.background)),
    };
    let shared = Arc::new(Shared {
        events: Events::new(db, stations.clone(), plainly),
        subscriber,
        stations,
        ways,
        lease: env.lease,
        // The requests after the acknowledgement must still fit into the response timeout.
        acknowledge_within: env.acknowledge_within.min(env.response_timeout / 3),
        timers: env.timers.clone(),
        background: env.background.clone(),
        warned: Mutex::default(),
        unasked: AtomicBool::new(false),
        company: Company::default(),
        undoing: Undoing::default(),
        unscripted: AtomicBool::new(false),
    });
    let [front, back] = routes.map(|routes| {
        Arc::new(Redis {
            routes,
            shared: Arc::clone(&shared),
            layout,
        })
    });
    Store { front, back }
}
