//! The invariants that the fuzz targets check: URLs, names, patterns and leases of all stores.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::{Duration, UNIX_EPOCH};

use crate::error::Result;
use crate::name::Name;
use crate::snapshot::ClientInfo;
use crate::store::glob::matches_glob;

/// A password. No error message and no display may contain it.
const SECRET: &str = "hunter2";
/// Another password of the same length. What is shown must be the same for both.
const OTHER: &str = "correct";

/// A parsed URL, and all the text that is ever shown for it.
pub(crate) struct FuzzLogin {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) shown: String,
}

/// The scheme of a store's URLs, and a valid rest after the login.
type Form = (&'static str, &'static str);

#[cfg(feature = "redis")]
pub(crate) fn redis_url(text: &str) {
    const FORMS: [Form; 4] = [
        ("redis", "h:1/2"),
        ("rediss", "h"),
        ("redis+sentinel", "a:1,b/shop/2"),
        ("rediss+cluster", "a:1,b?sharded_pubsub=both"),
    ];
    let (form, text) = pick(&FORMS, text);
    check(form, text, crate::store::redis::fuzz::url);
    crate::store::redis::fuzz::socket(text);
}

/// The first character selects the store.
pub(crate) fn other_url(text: &str) {
    #[allow(unused_variables, reason = "a build without stores has no parser")]
    let (which, text) = pick(&[0, 1, 2, 3, 4, 5], text);
    match which {
        #[cfg(feature = "mysql")]
        1 => check(("mysql", "h:1/db"), text, crate::store::mysql::fuzz::url),
        #[cfg(feature = "postgres")]
        2 => check(
            ("postgres", "h:1/db?table=t"),
            text,
            crate::store::postgres::fuzz::url,
        ),
        #[cfg(feature = "zookeeper")]
        3 => check(
            ("zookeeper", "a:1,b/base"),
            text,
            crate::store::zookeeper::fuzz::url,
        ),
        #[cfg(feature = "etcd")]
        4 => check(("etcds", "a:1,b/base"), text, crate::store::etcd::fuzz::url),
        #[cfg(feature = "memcached")]
        5 => check(
            ("memcached", "h:1"),
            text,
            crate::store::memcached::fuzz::url,
        ),
        #[cfg(feature = "sqlite")]
        0 => crate::store::sqlite::fuzz::url(text),
        _ => {}
    }
}

/// The passwords in a URL. Selects the store by the scheme, as the registry does.
pub(crate) fn passwords(url: &str) -> Vec<String> {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    let read: fn(&str) -> Result<Vec<String>> = match scheme {
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => crate::store::redis::fuzz::passwords,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => |url| crate::store::mysql::fuzz::url(url).map(FuzzLogin::passwords),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            |url| crate::store::postgres::fuzz::url(url).map(FuzzLogin::passwords)
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => |url| crate::store::zookeeper::fuzz::url(url).map(FuzzLogin::passwords),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => |url| crate::store::etcd::fuzz::url(url).map(FuzzLogin::passwords),
        #[cfg(feature = "memcached")]
        "memcached" => |url| crate::store::memcached::fuzz::url(url).map(FuzzLogin::passwords),
        _ => |_| Ok(Vec::new()),
    };
    read(url).unwrap_or_default()
}

#[cfg(any(
    feature = "etcd",
    feature = "memcached",
    feature = "mysql",
    feature = "postgres",
    feature = "zookeeper"
))]
impl FuzzLogin {
    fn passwords(self) -> Vec<String> {
        self.password
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect()
    }
}

/// Decodes the stored details of a client that started at this time (milliseconds).
type FuzzClientInfo = fn(u64) -> Option<ClientInfo>;

/// Any stored start time decodes to a date up to the year 9999, which every platform can represent and print.
pub(crate) fn since(millis: u64) {
    let stores: &[FuzzClientInfo] = &[
        #[cfg(feature = "redis")]
        crate::store::redis::fuzz::client,
        #[cfg(feature = "zookeeper")]
        crate::store::zookeeper::fuzz::client,
        #[cfg(feature = "memcached")]
        crate::store::memcached::fuzz::client,
        #[cfg(feature = "etcd")]
        crate::store::etcd::fuzz::client,
    ];
    let year_9999 = Duration::from_secs(253_402_300_799);
    for client in stores {
        let since = client(millis).expect("details are read").since;
        let since = since.duration_since(UNIX_EPOCH).expect("none is earlier");
        assert!(since.as_secs() <= year_9999.as_secs(), "{since:?}");
        let given = Duration::from_millis(millis);
        assert!(given > year_9999 || since == given, "{since:?}");
    }
}

/// Selects one item by the first character. Returns it with the rest of the text.
fn pick<'a, T: Copy>(among: &[T], text: &'a str) -> (T, &'a str) {
    let mut letters = text.chars();
    let number = letters.next().map_or(0, |letter| letter as usize);
    (among[number % among.len()], letters.as_str())
}

/// Checks that the login round-trips and that no password is shown. The lines of `text`: a user, two parts of a
/// password, and the rest of the URL.
fn check((scheme, good): Form, text: &str, read: impl Fn(&str) -> Result<FuzzLogin>) {
    drop(read(&format!("{scheme}://{text}")));
    let mut lines = text.splitn(4, '\n');
    let [user, before, after, tail] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    if !(user.is_empty() || before.is_empty() && after.is_empty()) {
        let password = format!("{before}{after}");
        let url = format!("{scheme}://{}:{}@{good}", escaped(user), escaped(&password));
        let login = read(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(login.user.as_deref(), Some(user), "{url}");
        assert_eq!(login.password.unwrap_or_default(), password, "{url}");
    }
    let shown = |secret: &str| {
        let url = format!("{scheme}://{user}:{before}{secret}{after}@{tail}");
        match read(&url) {
            Ok(login) => login.shown,
            Err(error) => format!("{error} {error:?}"),
        }
    };
    // This holds even if the password is escaped badly. If the text shows the word with the other password too, the
    // word comes from another part of the URL.
    let (one, other) = (shown(SECRET), shown(OTHER));
    assert!(
        !one.contains(SECRET) || other.contains(SECRET),
        "{scheme}://{user}:{before}{SECRET}{after}@{tail} is shown: {one}"
    );
}

/// Percent-encodes every byte that is not an ASCII letter or digit.
pub(crate) fn escaped(text: &str) -> String {
    let each = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    each.collect()
}

/// Each name maps to one key, and the key maps back to the name.
pub(crate) fn name(name: &Name) {
    assert!(matches_glob("*", name.as_str()));
    #[cfg(feature = "redis")]
    crate::store::redis::fuzz::name(name);
    #[cfg(feature = "memcached")]
    crate::store::memcached::fuzz::name(name);
    #[cfg(feature = "zookeeper")]
    crate::store::zookeeper::fuzz::name(name);
    #[cfg(feature = "etcd")]
    crate::store::etcd::fuzz::name(name);
    #[cfg(feature = "mysql")]
    crate::store::mysql::fuzz::name(name);
}

/// [`matches_glob`] agrees with the recursive definition.
pub(crate) fn glob(text: &str) {
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    // The recursive definition takes time exponential in the number of stars, so we bound the input.
    let (pattern, name) = (cut(pattern, 12), cut(name, 24));
    let (mut p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // A run of stars means the same as one star, and is the most expensive case for the recursion.
    p.dedup_by(|c, before| *c == '*' && *before == '*');
    assert_eq!(
        matches_glob(pattern, name),
        slowly(&p, &n),
        "{pattern:?} {name:?}"
    );
    #[cfg(feature = "redis")]
    crate::store::redis::fuzz::glob(pattern, name);
}

fn cut(text: &str, most: usize) -> &str {
    let end = text
        .char_indices()
        .nth(most)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The definition of a pattern, as a recursion.
fn slowly(pattern: &[char], name: &[char]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => (0..=name.len()).any(|skip| slowly(rest, &name[skip..])),
        Some((c, rest)) => name
            .split_first()
            .is_some_and(|(n, after)| (*c == '?' || c == n) && slowly(rest, after)),
    }
}

/// Each store keeps a lock for at least its lease. A store that rounds up adds at most two of its units.
pub(crate) fn lease(lease: Duration) {
    let kept: &[(Duration, Duration)] = &[
        #[cfg(feature = "redis")]
        (
            crate::store::redis::fuzz::kept(lease),
            Duration::from_millis(1),
        ),
        #[cfg(feature = "mysql")]
        (
            crate::store::mysql::fuzz::kept(lease),
            Duration::from_micros(1),
        ),
        #[cfg(feature = "postgres")]
        (
            crate::store::postgres::fuzz::kept(lease),
            Duration::from_micros(1),
        ),
        #[cfg(feature = "etcd")]
        (
            crate::store::etcd::fuzz::kept(lease),
            Duration::from_secs(1),
        ),
        #[cfg(feature = "memcached")]
        (
            crate::store::memcached::fuzz::kept(lease),
            Duration::from_secs(1),
        ),
    ];
    for (kept, unit) in kept {
        assert!(*kept >= lease, "{kept:?} for {lease:?}");
        assert!(*kept <= lease + *unit * 2, "{kept:?} for {lease:?}");
    }
}

/// The same for SQLite, which stores the lease's end as an instant of the file's clock.
#[cfg(feature = "sqlite")]
pub(crate) fn stamp(lease: Duration, stamp: i64, later: Duration) {
    let kept = crate::store::sqlite::fuzz::kept(lease, stamp, later);
    let room = i64::MAX.saturating_sub(stamp.max(0)).unsigned_abs();
    assert!(kept <= lease);
    // A lease may be cut off only at the end of the clock's range, after 292 years.
    assert!(
        kept == lease || u128::from(room) < lease.as_nanos(),
        "{kept:?} of {lease:?} at {stamp}"
    );
}
