//! The suite can fail: a store that breaks its word is caught.

use std::sync::Arc;

use tidelock::backend::{Attempt, BoxFuture, Env, Grant, Store};
use tidelock::testing::{Fixture, promises};

mod generous {
    use super::{Arc, Attempt, BoxFuture, Grant};
    use std::time::Duration;
    use tidelock::backend::{
        Ask, Backend, Capabilities, ClientId, Name, Page, Released, Renewal, Renewed, Ticket,
    };
    use tidelock::{ClientInfo, Finding, Result, Snapshot};

    /// Says yes to everybody.
    #[derive(Debug)]
    pub(super) struct Generous(pub(super) Arc<dyn Backend>);

    impl Backend for Generous {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }
        fn attempt<'a>(&'a self, _ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
            Box::pin(std::future::ready(Ok(Attempt::Acquired(Grant::default()))))
        }
        fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
            self.0.renew(batch)
        }
        fn lane(&self, name: &Name) -> u64 {
            self.0.lane(name)
        }
        fn release<'a>(&'a self, _ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
            Box::pin(std::future::ready(Ok(Released::Freed)))
        }
        fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
            self.0.withdraw(ticket)
        }
        fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
            self.0.force_release(name)
        }
        fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
            self.0.inspect(name)
        }
        fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
            self.0.list(pattern, cursor)
        }
        fn announce<'a>(
            &'a self,
            client: &'a ClientId,
            info: &'a ClientInfo,
            keep: Duration,
        ) -> BoxFuture<'a, Result<()>> {
            self.0.announce(client, info, keep)
        }
        fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
            self.0.examine()
        }
        fn close(&self) -> BoxFuture<'_, ()> {
            self.0.close()
        }
    }
}

fn generous() -> Fixture {
    Fixture::memory()
        .wrapped(|_: &Env, store: Store| Store::single(Arc::new(generous::Generous(store.front))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[should_panic(expected = "two holders at once")]
async fn a_store_that_lets_everybody_in_is_caught() {
    promises::mutex::one_holder_at_a_time(&generous()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[should_panic(expected = "two holders at once")]
async fn it_is_caught_also_by_those_who_leave_early() {
    promises::cancel::dropped_at_random_moments_400(&generous()).await;
}
