//! Releases that the store refuses.

use std::sync::Arc;
use std::time::Duration;

use tidelock::store::{Backend, BoxFuture, Released, Store, Ticket, ready};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, Error, ErrorKind, Result};

/// Answers each release with this error.
#[derive(Debug)]
struct Refusing(ErrorKind);

impl Twist for Refusing {
    fn release<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        ready(Err(Error::new(self.0)))
    }
}

/// A client that answers each release of its callers with this error. The connection of the background works.
pub(crate) async fn with_refused_releases(url: &str, kind: ErrorKind) -> Client {
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.connect_to(async |env| {
        let store = tidelock::testing::open(url, env).await?;
        let back = Arc::clone(&store.back);
        let refusing = Twisted::wrap(store, Refusing(kind));
        Ok(Store::new(refusing.front, back))
    });
    client.await.unwrap()
}

/// The connection of the callers may be refused while that of the background works. A set may have freed some of its parts
/// before another one was refused.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_is_repeated_in_the_background() {
    use ErrorKind::{InvalidOptions, Refused, Runtime};
    for kind in [Refused, Runtime, InvalidOptions] {
        let url = format!("memory:refused-release-{}", kind.as_str());
        let client = with_refused_releases(&url, kind).await;
        let builder = Client::builder()
            .simulated_time()
            .publish_process_info(false);
        let other = builder.connect(&url).await.unwrap();
        let parts = [other.lock("b"), client.lock("c")];
        let both = other.multi_lock(parts).unwrap();
        for (lock, names) in [(client.lock("a"), &["a"][..]), (both, &["b", "c"][..])] {
            let guard = lock.acquire().await.unwrap();
            let error = guard.release().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            for name in names {
                // Far less than the lease.
                let limit = Duration::from_secs(1);
                let next = other.lock(name).acquire_timeout(limit).await;
                next.unwrap().release().await.unwrap();
            }
        }
    }
}
