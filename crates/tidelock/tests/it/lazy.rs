//! Clients that connect with their first operation: what is refused without a connection.

use std::time::Duration;

use tidelock::{AcquireOptions, Client, ErrorKind};

/// URLs of servers that nobody runs. Port 1 refuses connections.
#[cfg(all(
    feature = "etcd",
    feature = "memcached",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
const NOBODY: [&str; 11] = [
    "redis://127.0.0.1:1",
    "redis://127.0.0.1:1?locks=plain",
    "redis+unix:///nowhere/redis.sock",
    "redis+sentinel://127.0.0.1:1/shop",
    "redis+cluster://127.0.0.1:1",
    "postgres://127.0.0.1:1/shop",
    "postgres://127.0.0.1:1/shop?locks=session",
    "mysql://127.0.0.1:1/shop",
    "zookeeper://127.0.0.1:1",
    "etcd://127.0.0.1:1",
    "memcached://127.0.0.1:1",
];

#[cfg(all(
    feature = "etcd",
    feature = "memcached",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
#[tokio::test]
async fn a_store_that_is_away_is_told_with_its_own_error() {
    let urls = NOBODY.map(|url| tokio::spawn(is_told(url)));
    for told in urls {
        told.await.unwrap();
    }
}

#[cfg(all(
    feature = "etcd",
    feature = "memcached",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
async fn is_told(url: &str) {
    let limit = Duration::from_secs(4);
    // Each attempt to connect ends within the wait limit.
    let settings = Client::builder().response_timeout(limit / 2);
    let client = settings.connect_lazy(url).unwrap();
    assert!(!client.status().is_connected, "{url}");
    let begun = std::time::Instant::now();
    let error = client.lock("a").acquire_timeout(limit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{url}: {error}");
    assert!(begun.elapsed() >= limit, "{url}: {:?}", begun.elapsed());
    let told = error.to_string();
    let causes = ["refused", "No such file", "none of"];
    assert!(causes.iter().any(|it| told.contains(it)), "{url}: {told}");
    client.close(Duration::ZERO).await;
}

/// The errors are those of a client that is connected, and come without an attempt to connect.
#[cfg(all(
    feature = "etcd",
    feature = "memcached",
    feature = "postgres",
    feature = "redis"
))]
#[tokio::test]
async fn an_ability_that_the_store_lacks_is_refused_without_a_connection() {
    let postgres = Client::connect_lazy("postgres://127.0.0.1:1/shop").unwrap();
    let unsupported = |error: tidelock::Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    };
    let memcached = Client::connect_lazy("memcached://127.0.0.1:1").unwrap();
    unsupported(memcached.fair_lock("a").acquire().await.unwrap_err());
    unsupported(
        memcached
            .read_write_lock("a")
            .read()
            .acquire()
            .await
            .unwrap_err(),
    );
    unsupported(postgres.plain_lock("a").acquire().await.unwrap_err());
    let delayed = AcquireOptions::new().lock_delay(Duration::from_secs(1));
    unsupported(postgres.lock("a").acquire_with(delayed).await.unwrap_err());
    let sequencer = "tidelock1:exclusive:7:primary".parse().unwrap();
    unsupported(postgres.verify(&sequencer).await.unwrap_err());
    let session = Client::connect_lazy("postgres://127.0.0.1:1/shop?locks=session").unwrap();
    unsupported(session.lock("a").fenced().acquire().await.unwrap_err());
    unsupported(
        session
            .lock("a")
            .fenced()
            .raise_token(tidelock::FencingToken::new(7))
            .await
            .unwrap_err(),
    );
    // What the store has is asked for: the error is that of the connect.
    let etcd = Client::connect_lazy("etcd://127.0.0.1:1").unwrap();
    let error = etcd.verify(&sequencer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // A zero wait retries an outage for a response timeout.
    let settings = Client::builder().response_timeout(Duration::from_millis(200));
    let redis = settings.connect_lazy("redis://127.0.0.1:1").unwrap();
    for lock in [redis.fair_lock("a"), redis.plain_lock("a")] {
        let error = lock.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn an_invalid_url_is_refused_at_once() {
    for url in [
        "nonsense:",
        "",
        "memory:?like=nothing",
        #[cfg(feature = "redis")]
        "redis://127.0.0.1:1?nope=1",
        #[cfg(feature = "redis")]
        "redis+sentinel://127.0.0.1:1",
        #[cfg(feature = "sqlite")]
        "sqlite:a.db?mode=ro",
        #[cfg(feature = "postgres")]
        "postgres://127.0.0.1:1/shop?tabel=x",
    ] {
        let lazy = Client::connect_lazy(url).unwrap_err();
        let eager = Client::connect(url).await.unwrap_err();
        assert_eq!(lazy.kind(), ErrorKind::InvalidOptions, "{url}");
        assert_eq!(lazy.to_string(), eager.to_string(), "{url}");
    }
    #[cfg(feature = "redis")]
    {
        let settings = Client::builder().tls_ca("/etc/shop/ca.pem");
        let error = settings.connect_lazy("redis://127.0.0.1:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    }
}

/// The password may be in a variable, or in `Credentials`.
#[cfg(all(feature = "etcd", feature = "memcached", feature = "zookeeper"))]
#[tokio::test]
async fn a_user_alone_in_the_url_needs_a_password_from_elsewhere() {
    for store in ["etcd", "memcached", "zookeeper"] {
        let url = format!("{store}://hunter2@127.0.0.1:1");
        let error = Client::connect_lazy(&url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{store}: {error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("a user needs a password"), "{text}");
        assert!(!text.contains("hunter2"), "it may be a password: {text}");
        let password = tidelock::Credentials::password("secret");
        let settings = Client::builder().credentials(password);
        let client = settings.connect_lazy(&url).unwrap();
        assert!(!client.status().is_connected);
    }
}

#[test]
fn outside_a_runtime_it_is_refused() {
    let error = Client::connect_lazy("memory:").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Runtime);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_lazy_client_of_a_file_creates_it_with_the_first_operation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    let client = Client::connect_lazy(&url).unwrap();
    assert!(!file.exists());
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(file.exists());
    let other = Client::connect(&url).await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    client.close(Duration::ZERO).await;
}

#[cfg(feature = "blocking")]
#[test]
fn a_blocking_client_may_be_lazy_too() {
    use tidelock::blocking;

    let client = blocking::Client::connect_lazy("memory:").unwrap();
    assert!(!client.status().is_connected);
    client.lock("a").acquire().unwrap().release().unwrap();
    assert!(client.status().is_connected);
}

#[test]
fn the_environment_names_the_store_of_a_lazy_client() {
    let variables = [("TIDELOCK_STORE", "memory:"), ("TIDELOCK_PREFIX", "shop:")];
    crate::environment::passes_with("lazy::in_a_shop", &variables);
}

#[tokio::test]
#[ignore = "the_environment_names_the_store_of_a_lazy_client runs it"]
async fn in_a_shop() {
    let client = Client::from_env_lazy().unwrap();
    assert!(!client.status().is_connected);
    assert_eq!(client.lock("stock").name(), "shop:stock");
    drop(client.lock("stock").acquire().await.unwrap());
}
