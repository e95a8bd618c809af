//! What must hold of the URLs, names and patterns of all stores, whatever is written there.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::{Duration, UNIX_EPOCH};

use super::glob::matches_glob;
use crate::error::Result;
use crate::name::Name;
use crate::snapshot::ClientInfo;

/// Stands for a password wherever it must not be seen.
const SECRET: &str = "hunter2";
/// As long, and as secret: what is shown of both is the same.
const OTHER: &str = "correct";

/// What a URL was read as, and everything that is ever shown of it.
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) shown: String,
}

/// How URLs of a store begin, and how a good one goes on behind the login.
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
    check(form, text, crate::backend::redis::fuzz::url);
    crate::backend::redis::fuzz::socket(text);
}

/// The first letter says which store.
pub(crate) fn other_url(text: &str) {
    let (which, text) = pick(&[0, 1, 2, 3, 4, 5], text);
    match which {
        #[cfg(feature = "mysql")]
        1 => check(("mysql", "h:1/db"), text, super::mysql::fuzz::url),
        #[cfg(feature = "postgres")]
        2 => check(
            ("postgres", "h:1/db?table=t"),
            text,
            super::postgres::fuzz::url,
        ),
        #[cfg(feature = "zookeeper")]
        3 => check(
            ("zookeeper", "a:1,b/base"),
            text,
            super::zookeeper::fuzz::url,
        ),
        #[cfg(feature = "etcd")]
        4 => check(("etcds", "a:1,b/base"), text, super::etcd::fuzz::url),
        #[cfg(feature = "memcached")]
        5 => check(("memcached", "h:1"), text, super::memcached::fuzz::url),
        #[cfg(feature = "sqlite")]
        0 => super::sqlite::fuzz::url(text),
        _ => {}
    }
}

/// Told apart as the registry does it.
pub(crate) fn passwords(url: &str) -> Vec<String> {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    let read: fn(&str) -> Result<Vec<String>> = match scheme {
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => super::redis::fuzz::passwords,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => |url| super::mysql::fuzz::url(url).map(Login::passwords),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => |url| super::postgres::fuzz::url(url).map(Login::passwords),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => |url| super::zookeeper::fuzz::url(url).map(Login::passwords),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => |url| super::etcd::fuzz::url(url).map(Login::passwords),
        #[cfg(feature = "memcached")]
        "memcached" => |url| super::memcached::fuzz::url(url).map(Login::passwords),
        _ => |_| Ok(Vec::new()),
    };
    read(url).unwrap_or_default()
}

impl Login {
    fn passwords(self) -> Vec<String> {
        self.password
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect()
    }
}

/// How a store reads a client's details with that start.
type Client = fn(u64) -> Option<ClientInfo>;

/// Whatever start of a client stands in a store, it is read as a date that every machine has and everybody can write.
pub(crate) fn since(millis: u64) {
    let stores: &[Client] = &[
        #[cfg(feature = "redis")]
        super::redis::fuzz::client,
        #[cfg(feature = "zookeeper")]
        super::zookeeper::fuzz::client,
        #[cfg(feature = "memcached")]
        super::memcached::fuzz::client,
        #[cfg(feature = "etcd")]
        super::etcd::fuzz::client,
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

fn pick<'a, T: Copy>(among: &[T], text: &'a str) -> (T, &'a str) {
    let mut letters = text.chars();
    let number = letters.next().map_or(0, |letter| letter as usize);
    (among[number % among.len()], letters.as_str())
}

/// `text`: a user, two parts of a password and what follows the login, each in a line.
fn check((scheme, good): Form, text: &str, read: impl Fn(&str) -> Result<Login>) {
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
    // However badly the password is escaped. What shows the same word with another password has it from elsewhere.
    let (one, other) = (shown(SECRET), shown(OTHER));
    assert!(
        !one.contains(SECRET) || other.contains(SECRET),
        "{scheme}://{user}:{before}{SECRET}{after}@{tail} is shown: {one}"
    );
}

/// Every byte that is not plain, as `%41`.
pub(crate) fn escaped(text: &str) -> String {
    let each = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    each.collect()
}

/// A name makes one key, and the key makes that name again.
pub(crate) fn name(name: &Name) {
    assert!(matches_glob("*", name.as_str()));
    #[cfg(feature = "redis")]
    super::redis::fuzz::name(name);
    #[cfg(feature = "memcached")]
    super::memcached::fuzz::name(name);
    #[cfg(feature = "zookeeper")]
    super::zookeeper::fuzz::name(name);
    #[cfg(feature = "etcd")]
    super::etcd::fuzz::name(name);
    #[cfg(feature = "mysql")]
    super::mysql::fuzz::name(name);
}

pub(crate) fn glob(text: &str) {
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    // The slow way below takes a time that grows with the power of the stars.
    let (pattern, name) = (cut(pattern, 12), cut(name, 24));
    let (mut p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // A run of stars is one star, and costs it the most.
    p.dedup_by(|c, before| *c == '*' && *before == '*');
    assert_eq!(
        matches_glob(pattern, name),
        slowly(&p, &n),
        "{pattern:?} {name:?}"
    );
    #[cfg(feature = "redis")]
    super::redis::fuzz::glob(pattern, name);
}

fn cut(text: &str, most: usize) -> &str {
    let end = text
        .char_indices()
        .nth(most)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The definition, word for word.
fn slowly(pattern: &[char], name: &[char]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => (0..=name.len()).any(|skip| slowly(rest, &name[skip..])),
        Some((c, rest)) => name
            .split_first()
            .is_some_and(|(n, after)| (*c == '?' || c == n) && slowly(rest, after)),
    }
}

/// Each store keeps a lock for at least its lease, whatever it counts in, and one that rounds by no more than two units.
pub(crate) fn lease(lease: Duration) {
    let kept: &[(Duration, Duration)] = &[
        #[cfg(feature = "redis")]
        (super::redis::fuzz::kept(lease), Duration::from_millis(1)),
        #[cfg(feature = "mysql")]
        (super::mysql::fuzz::kept(lease), Duration::from_micros(1)),
        #[cfg(feature = "postgres")]
        (super::postgres::fuzz::kept(lease), Duration::from_micros(1)),
        #[cfg(feature = "etcd")]
        (super::etcd::fuzz::kept(lease), Duration::from_secs(1)),
        #[cfg(feature = "memcached")]
        (super::memcached::fuzz::kept(lease), Duration::from_secs(1)),
    ];
    for (kept, unit) in kept {
        assert!(*kept >= lease, "{kept:?} for {lease:?}");
        assert!(*kept <= lease + *unit * 2, "{kept:?} for {lease:?}");
    }
}

/// The same where the lease is an instant of a file's clock.
#[cfg(feature = "sqlite")]
pub(crate) fn stamp(lease: Duration, stamp: i64, later: Duration) {
    let kept = super::sqlite::fuzz::kept(lease, stamp, later);
    let room = i64::MAX.saturating_sub(stamp.max(0)).unsigned_abs();
    assert!(kept <= lease);
    // As far as the clock goes: it has run for 292 years then.
    assert!(
        kept == lease || u128::from(room) < lease.as_nanos(),
        "{kept:?} of {lease:?} at {stamp}"
    );
}
