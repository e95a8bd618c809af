//! Opens the store: from a URL or its parts to the two store handles.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt};

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
use crate::store::redis::topology::cluster::{Cluster, ClusterNode};
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::endpoint::{Endpoint, EndpointLogin, ServerFinder};
use crate::store::redis::topology::job::ServerJob;
use crate::store::redis::topology::router::{ConnectionFace, RETRY_LIMIT, RETRY_PAUSES, Router};
use crate::store::redis::topology::sentinel;
use crate::store::redis::topology::sentinel::Sentinel;
use crate::store::redis::wire::errors::{server_error, unsent};
use crate::store::redis::wire::reply::RequestError;
use crate::store::redis::wire::request::Request;
use crate::store::redis::{Redis, Shared};
use crate::store::{BootInstant, Env, Store, Timers, answers_kept, tls};

/// How long we wait for the other nodes after the first one that has no sharded channels.
const OTHER_NODES: Duration = Duration::from_millis(100);

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
        known_nodes: Arc::default(),
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

/// How long a first connect waits.
fn patience(env: &Env) -> Duration {
    env.response_timeout + env.connect_slack()
}

/// How long no node may answer before the client looks for another cluster at the addresses of the URL.
fn gone_after(env: &Env) -> Duration {
    env.lease.max(env.response_timeout * 10)
}

/// How long replicas have to acknowledge. The requests after that must still fit into the response timeout.
fn acknowledged_within(env: &Env) -> Duration {
    env.acknowledge_within.min(env.response_timeout / 3)
}

/// How long a node that does not answer is asked for sharded channels again. `limit`: the response timeout.
fn asks_again_for(limit: Duration) -> Duration {
    RETRY_LIMIT.min(limit / 3)
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
        gone_after(env),
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

/// Asks all primaries at once whether they have sharded channels. The question concerns no slot: a node that is down must
/// not keep out a client, which can use the locks of all others.
async fn knows_shards(cluster: &Arc<Cluster>) -> Result<bool> {
    let router = Router::Cluster(Arc::clone(cluster), ConnectionFace::Back);
    let (timers, deadline) = (&cluster.timers, router.deadline());
    let job = ShardJob { deadline };
    let give_up = timers.now() + asks_again_for(cluster.limit);
    let nodes = cluster.primaries();
    let each = nodes
        .iter()
        .map(|node| ask_until(give_up, timers, &router, node, &job));
    let asked: FuturesUnordered<_> = each.collect();
    any_knows(timers, asked).await
}

/// Asks one node, and again for a short while if it does not answer. Each node on its own: one that hangs must not keep
/// us from asking another one again, whose first answer was lost.
async fn ask_until(
    give_up: BootInstant,
    timers: &Timers,
    router: &Router,
    node: &ClusterNode,
    job: &ShardJob,
) -> Result<bool> {
    let mut retries = 0;
    loop {
        match router.run_on(node, job).await {
            Err(error) if error.is_retryable() && timers.now() < give_up => {
                timers.after(RETRY_PAUSES.pause(retries)).await;
                retries += 1;
            }
            answer => return answer,
        }
    }
}

/// Whether one of the nodes has sharded channels. An error means that no node has answered.
///
/// While a cluster is upgraded, its nodes differ. Then the new ones are right: a client that uses plain messages does so
/// as long as it lives, and would not wake those that hear only sharded ones. At a node without them its scripts publish
/// plain messages, and its waiters poll.
async fn any_knows(
    timers: &Timers,
    mut answers: impl Stream<Item = Result<bool>> + Unpin,
) -> Result<bool> {
    // Each node answers, or fails, at its own deadline.
    let mut end = BootInstant::FAR;
    let (mut refused, mut failure) = (false, None::<Error>);
    while let Some(Some(answer)) = timers.until(end, answers.next()).await {
        match answer {
            Ok(true) => return Ok(true),
            Ok(false) => {
                refused = true;
                end = end.min(timers.now() + OTHER_NODES);
            }
            // We keep an error that no retry helps, such as a wrong password.
            Err(error) if failure.as_ref().is_none_or(Error::is_retryable) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    match failure {
        _ if refused => Ok(false),
        Some(error) => Err(error),
        None => Err(unsent("no node of the cluster has slots")),
    }
}

/// Asks a node whether it has sharded channels.
struct ShardJob {
    deadline: BootInstant,
}

impl ServerJob for ShardJob {
    type Output = bool;

    /// No key: [`knows_shards`] chooses the node.
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
            // The request changes nothing, so we may send it again.
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
        ack_policy: AckPolicy::new(
            acknowledged_within(env),
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

#[cfg(test)]
mod tests;
