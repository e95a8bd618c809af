//! The channel router: from a channel to the server that delivers its messages.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Timers;
use crate::store::redis::keys;
use crate::store::redis::slots;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::endpoint::Endpoint;
use crate::store::redis::wire::errors::{Redirect, ServerError};

/// The servers that deliver messages.
#[derive(Clone)]
pub(crate) enum ChannelRouter {
    One(Arc<Endpoint>),
    Cluster(Arc<Cluster>),
}

impl ChannelRouter {
    pub(crate) fn timers(&self) -> &Timers {
        match self {
            Self::One(endpoint) => &endpoint.timers,
            Self::Cluster(cluster) => &cluster.timers,
        }
    }

    /// The server that delivers a channel's messages. `None`: no node has the slot at the moment.
    pub(crate) fn of(&self, channel: &str) -> Option<Arc<Endpoint>> {
        match self {
            Self::One(endpoint) => Some(Arc::clone(endpoint)),
            Self::Cluster(cluster) => {
                // Only the node that has the key sends its keyspace events.
                let slot = slots::of(keys::of_events(channel).unwrap_or(channel));
                let node = cluster.owner(slot)?;
                Some(Arc::clone(&node.endpoint))
            }
        }
    }

    /// Reports a problem with a server: the addresses are refreshed.
    pub(crate) fn doubt(&self) {
        match self {
            Self::One(endpoint) => endpoint.doubt(),
            Self::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// Resolves when channels may have moved to another server, or at the limit.
    pub(crate) async fn change(&self, limit: Duration) {
        match self {
            Self::One(endpoint) => endpoint.timers.after(limit).await,
            Self::Cluster(cluster) => {
                let mut changes = cluster.changes.subscribe();
                // Both outcomes mean the same here: try again.
                let _ = cluster.timers.limit(limit, changes.changed()).await;
            }
        }
    }

    /// Whether subscribers have had time to follow the last change of the slot map.
    pub(crate) fn are_settled(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.is_settled(),
        }
    }

    /// Learns from an error where a channel is. `true`: a retry may succeed soon, on this or another server.
    pub(crate) fn learn(&self, endpoint: &Endpoint, server_error: &ServerError) -> bool {
        let Self::Cluster(cluster) = self else {
            return server_error.passes();
        };
        match endpoint
            .address()
            .and_then(|address| server_error.redirection(address))
        {
            Some(Redirect::Moved(slot, to)) => cluster.moved(slot, &to),
            Some(Redirect::Ask(..)) => cluster.doubt(),
            None if server_error.passes() => cluster.doubt(),
            None => return false,
        }
        true
    }

    /// Stops the background commands that follow the servers.
    pub(crate) fn close(&self) {
        match self {
            Self::One(endpoint) => endpoint.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::advance;

    use super::*;
    use crate::error::Result;
    use crate::store::redis::address::HostAddress;
    use crate::store::redis::topology::endpoint::{EndpointLogin, PrimaryFinder, ServerFinder};
    use crate::store::redis::wire::tests::{loopback, simulated};
    use crate::store::{BoxFuture, Clock};

    const LIMIT: Duration = Duration::from_secs(1);

    fn endpoint(finder: ServerFinder, timers: &Timers) -> Arc<Endpoint> {
        let entry = EndpointLogin::default();
        Arc::new(Endpoint::new(finder, entry, timers.clone(), LIMIT))
    }

    /// In simulated time, with the timers running.
    fn cluster() -> Arc<Cluster> {
        let (background, timers) = simulated();
        let (seeds, entry) = (vec![loopback(1)], EndpointLogin::default());
        let cluster = Cluster::new(seeds, entry, background, timers, LIMIT, LIMIT);
        Arc::new(cluster)
    }

    #[tokio::test]
    async fn a_channel_is_heard_at_the_node_that_has_its_slot() {
        let cluster = cluster();
        let router = ChannelRouter::Cluster(Arc::clone(&cluster));
        assert!(router.of("foo").is_none(), "no node is known");
        cluster.give_all_slots(&loopback(1));
        cluster.moved(slots::of("foo"), &loopback(2));
        for (channel, port) in [
            ("redisson_lock__channel:{foo}", 2),
            ("redisson_lock__channel:{bar}", 1),
            // Only the node that has the key tells its events.
            ("__keyspace@0__:foo", 2),
            ("__keyspace@0__:bar", 1),
        ] {
            let endpoint = router.of(channel).unwrap();
            assert_eq!(endpoint.address(), Some(&loopback(port)), "{channel}");
        }
    }

    #[tokio::test]
    async fn a_refused_subscription_is_tried_again_if_the_error_passes_or_names_another_node() {
        let cluster = cluster();
        cluster.give_all_slots(&loopback(1));
        let asked = Arc::clone(&cluster.owner(7).unwrap().endpoint);
        let of_cluster = ChannelRouter::Cluster(Arc::clone(&cluster));
        let of_server = ChannelRouter::One(Arc::clone(&asked));
        for (text, in_cluster, alone, port) in [
            ("ASK 7 127.0.0.1:2", true, false, 1),
            ("TRYAGAIN no", true, true, 1),
            ("NOPERM no", false, false, 1),
            ("MOVED 7 127.0.0.1:2", true, false, 2),
        ] {
            let error = ServerError::parse(text);
            assert_eq!(of_cluster.learn(&asked, &error), in_cluster, "{text}");
            assert_eq!(of_server.learn(&asked, &error), alone, "{text}");
            let owner = cluster.owner(7).unwrap();
            assert_eq!(owner.address, loopback(port), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_slot_map_is_waited_for_up_to_the_limit() {
        let cluster = cluster();
        cluster.give_all_slots(&loopback(1));
        let timers = cluster.timers.clone();
        let of_server = endpoint(ServerFinder::Fixed(loopback(1)), &timers);
        let of_server = ChannelRouter::One(of_server);
        let of_cluster = ChannelRouter::Cluster(Arc::clone(&cluster));
        for router in [&of_server, &of_cluster] {
            let begun = timers.now();
            router.change(LIMIT).await;
            assert!(timers.now().since(begun) >= LIMIT);
        }
        let begun = timers.now();
        let moves = async {
            timers.after(LIMIT).await;
            cluster.moved(7, &loopback(2));
        };
        tokio::join!(of_cluster.change(LIMIT * 10), moves);
        assert!(timers.now().since(begun) < LIMIT * 2);
    }

    /// Other clients follow a change of the slot map within seconds.
    #[tokio::test(start_paused = true)]
    async fn subscribers_count_as_settled_a_while_after_a_change_of_the_slot_map() {
        let cluster = cluster();
        let router = ChannelRouter::Cluster(Arc::clone(&cluster));
        let of_server = endpoint(ServerFinder::Fixed(loopback(1)), &cluster.timers);
        assert!(ChannelRouter::One(of_server).are_settled());
        cluster.give_all_slots(&loopback(1));
        assert!(!router.are_settled());
        advance(Duration::from_secs(60)).await;
        assert!(router.are_settled());
        cluster.moved(7, &loopback(2));
        assert!(!router.are_settled());
    }

    /// Sentinels that count how often they are asked to look again, and are closed.
    #[derive(Default)]
    struct CountingFinder {
        doubts: AtomicU32,
        closes: AtomicU32,
    }

    impl fmt::Display for CountingFinder {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("sentinels")
        }
    }

    impl PrimaryFinder for CountingFinder {
        fn find(&self) -> BoxFuture<'_, Result<HostAddress>> {
            Box::pin(std::future::pending())
        }

        fn note(&self, _: &HostAddress) -> bool {
            false
        }

        fn is_at(&self, _: &HostAddress) -> bool {
            true
        }

        fn doubt(&self) {
            self.doubts.fetch_add(1, Ordering::SeqCst);
        }

        fn close(&self) {
            self.closes.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn sentinels_are_asked_again_after_a_problem_and_stop_with_the_client() {
        let finder = Arc::<CountingFinder>::default();
        let counts = || {
            let count = |number: &AtomicU32| number.load(Ordering::SeqCst);
            (count(&finder.doubts), count(&finder.closes))
        };
        let timers = Timers::new(Clock::Boot);
        let primary = ServerFinder::Primary(Arc::clone(&finder) as _);
        let router = ChannelRouter::One(endpoint(primary, &timers));
        router.doubt();
        assert_eq!(counts(), (1, 0));
        router.close();
        assert_eq!(counts(), (1, 1));
    }
}
