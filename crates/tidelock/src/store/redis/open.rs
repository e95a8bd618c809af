//! Opens the store: from a URL or its parts to the two store handles.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::redis::topology::{PubSubMode, Topology};
use crate::store::beats::Beats;
use crate::store::redis::address::{Address, ClusterNodes, ServerAddress};
use crate::store::redis::layouts::Layout;
use crate::store::redis::layouts::fair::beats::RedisBeat;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::keyspace_events::KeyspaceEvents;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::recent_holders::RecentHolders;
use crate::store::redis::replicas::AckPolicy;
use crate::store::redis::topology::cluster;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::endpoint::{Endpoint, EndpointLogin, ServerFinder};
use crate::store::redis::topology::job::ServerJob;
use crate::store::redis::topology::router::{ConnectionFace, Router};
use crate::store::redis::topology::sentinel;
use crate::store::redis::topology::sentinel::Sentinel;
use crate::store::redis::wire::errors::{server_error, unsent};
use crate::store::redis::wire::reply::RequestError;
use crate::store::redis::wire::request::Request;
use crate::store::redis::{Redis, Shared};
use crate::store::{BootInstant, Env, Store, answers_kept, tls};

/// Connects. Fails at once if the server cannot be reached or rejects the login.
pub(crate) async fn connect(url: &str, env: &Env) -> Result<Store> {
    open(target(url, env)?, env).await
}

/// Like [`connect`], from parts.
pub(crate) async fn connect_topology(servers: &Topology, env: &Env) -> Result<Store> {
    open(target_of(servers, env)?, env).await
}

/// Checks the URL and the settings, without a request.
pub(crate) fn target(url: &str, env: &Env) -> Result<Address> {
    checked(Address::parse(url)?, env)
}

/// Like [`target`], from parts.
pub(crate) fn target_of(servers: &Topology, env: &Env) -> Result<Address> {
    checked(Address::of(servers)?, env)
}

/// Refuses certificates without TLS: everything would go in plain text.
fn checked(target: Address, env: &Env) -> Result<Address> {
    if !target.is_tls() && tls::is_wanted(&env.tls) {
        return Err(Error::new(ErrorKind::InvalidOptions).because(
            "TLS certificates are set, but the address does not use TLS; write rediss:// instead of redis://, or call redis::Topology::tls",
        ));
    }
    Ok(target)
}

async fn open(target: Address, env: &Env) -> Result<Store> {
    let layout = if target.plain_locks {
        Layout::Plain
    } else {
        Layout::Redisson
    };
    let entry = EndpointLogin {
        db: target.db,
        user: target.user,
        password: target.password,
        credentials: env.credentials.clone(),
        tls: env.tls.clone(),
        in_cluster: matches!(target.way, ServerAddress::Cluster(_)),
    };
    let db = entry.db;
    match target.way {
        ServerAddress::One(address) => {
            let endpoint = endpoint(ServerFinder::Fixed(address), entry, env);
            one(layout, endpoint, db, env).await
        }
        ServerAddress::Sentinels(who) => {
            let (background, timers) = (&env.background, &env.timers);
            let sentinel = Sentinel::new(who, &env.tls, background, timers, env.response_timeout);
            let sentinel = Arc::new(sentinel);
            let finder = ServerFinder::Primary(Arc::clone(&sentinel) as _);
            let endpoint = endpoint(finder, entry, env);
            let (primary, follower) = (Arc::downgrade(&sentinel), Arc::downgrade(&endpoint));
            background.spawn(sentinel::follow(primary, follower, timers.clone()));
            one(layout, endpoint, db, env).await
        }
        ServerAddress::Cluster(nodes) => many(layout, nodes, entry, env).await,
    }
}

/// A little longer than the connect itself may take, because its error message is more precise than a timeout.
fn patience(env: &Env) -> Duration {
    env.response_timeout + Duration::from_millis(50)
}

fn endpoint(finder: ServerFinder, entry: EndpointLogin, env: &Env) -> Arc<Endpoint> {
    let endpoint = Endpoint::new(finder, entry, env.timers.clone(), env.response_timeout);
    Arc::new(endpoint)
}

async fn one(layout: Layout, endpoint: Arc<Endpoint>, db: i64, env: &Env) -> Result<Store> {
    let timers = &env.timers;
    let front = Connection::new(Arc::clone(&endpoint), ConnectionRuntime::Caller);
    let back = ConnectionRuntime::Background(env.background.clone());
    let back = Connection::new(Arc::clone(&endpoint), back);
    let store = faces(
        (layout, db),
        [Router::One(front.clone()), Router::One(back)],
        ChannelRouter::One(endpoint),
        PublishModes::Plain,
        env,
    );
    front.get(timers.now() + patience(env)).await?;
    Ok(store)
}

async fn many(
    layout: Layout,
    nodes: ClusterNodes,
    entry: EndpointLogin,
    env: &Env,
) -> Result<Store> {
    let (background, timers, db) = (env.background.clone(), env.timers.clone(), entry.db);
    let cluster = Cluster::new(
        nodes.addresses,
        entry,
        background,
        timers.clone(),
        env.response_timeout,
    );
    let cluster = Arc::new(cluster);
    cluster.refresh_map().await?;
    let ways = ways(nodes.sharded, &cluster).await?;
    let follow = cluster::follow(Arc::downgrade(&cluster), timers);
    env.background.spawn(follow);
    let router = [ConnectionFace::Front, ConnectionFace::Back]
        .map(|face| Router::Cluster(Arc::clone(&cluster), face));
    let channel_router = ChannelRouter::Cluster(cluster);
    Ok(faces((layout, db), router, channel_router, ways, env))
}

/// Chooses the kind of channel. A message published with SPUBLISH does not reach a plain subscriber, nor the reverse,
/// and servers before 7.0 know only PUBLISH.
async fn ways(sharded: PubSubMode, cluster: &Arc<Cluster>) -> Result<PublishModes> {
    let known = match sharded {
        PubSubMode::Off => false,
        PubSubMode::On => true,
        PubSubMode::Auto | PubSubMode::Both => knows_shards(cluster).await?,
    };
    Ok(match (known, sharded) {
        (false, _) => PublishModes::Plain,
        (true, PubSubMode::Auto) => PublishModes::Auto,
        (true, PubSubMode::Both) => PublishModes::Both,
        (true, _) => PublishModes::Sharded,
    })
}

async fn knows_shards(cluster: &Arc<Cluster>) -> Result<bool> {
    let router = Router::Cluster(Arc::clone(cluster), ConnectionFace::Back);
    let deadline = router.deadline();
    router.run(&ShardJob { deadline }).await
}

/// Asks a node whether it has sharded channels.
struct ShardJob {
    deadline: BootInstant,
}

impl ServerJob for ShardJob {
    type Output = bool;

    fn key(&self) -> &'static str {
        ""
    }

    fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// Only a refusal of this request tells that the node has none. For any other failure we return an error instead of a
    /// guess: with a wrong guess, some waiters would not be woken.
    async fn run(&self, connection: &Connection, _asking: bool) -> Result<bool> {
        let request = Request::new("PUBSUB").arg("SHARDNUMSUB");
        let conn = connection.get(self.deadline).await?;
        match connection.settle(&conn, &request, self.deadline).await {
            Ok(_) => Ok(true),
            // The request changes nothing, so the router may send it again.
            Err(RequestError::Broken(why)) => Err(unsent(format_args!("{connection:?}: {why}"))),
            Err(RequestError::Server(refusal)) => {
                let error = refusal.error();
                let is_temporary = error.kind() == ErrorKind::Unavailable;
                if is_temporary || refusal.ends_session() || server_error(&error).is_some() {
                    return Err(error);
                }
                tracing::debug!(%error, "the server has no sharded pub/sub; using plain messages");
                Ok(false)
            }
        }
    }
}

fn faces(
    (layout, db): (Layout, i64),
    [front, back]: [Router; 2],
    channel_router: ChannelRouter,
    ways: PublishModes,
    env: &Env,
) -> Store {
    let subscriber = Arc::new(Subscriber::new(&channel_router, ways, &env.background));
    let plainly = match ways {
        PublishModes::Plain => Arc::clone(&subscriber),
        // Servers publish keyspace events with PUBLISH only, even if clients use sharded channels.
        _ => Arc::new(Subscriber::new(
            &channel_router,
            PublishModes::Plain,
            &env.background,
        )),
    };
    let beat = RedisBeat {
        router: back.clone(),
        channel_router: channel_router.clone(),
        ways,
        subscriber: Arc::clone(&subscriber),
    };
    let beats = Beats::new(beat, env.timers.clone(), env.background.clone());
    let shared = Arc::new(Shared {
        beats,
        events: KeyspaceEvents::new(db, channel_router.clone(), plainly),
        spinning: RecentHolders::new(env.timers.clone()),
        subscriber,
        channel_router,
        ways,
        lease: env.lease,
        answers_kept: answers_kept(env.lease),
        // The requests after the acknowledgement must still fit into the response timeout.
        ack_policy: AckPolicy::new(
            env.acknowledge_within.min(env.response_timeout / 3),
            env.timers.clone(),
            env.background.clone(),
        ),
        timers: env.timers.clone(),
        background: env.background.clone(),
        warned: Mutex::default(),
        unscripted: AtomicBool::new(false),
        declares_keys: AtomicBool::new(false),
    });
    let side = |router: &Router, layout| {
        Arc::new(Redis {
            router: router.clone(),
            shared: Arc::clone(&shared),
            layout,
        })
    };
    let store = |layout| Store::new(side(&front, layout), side(&back, layout));
    Store {
        plain: Some(Box::new(store(Layout::Plain))),
        ..store(layout)
    }
}
