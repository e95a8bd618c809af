//! Parses a URL into addresses and login.

use crate::error::Result;
use crate::redis::topology::PubSubMode;
use crate::store::redis::address::build::UrlLogin;
use crate::store::redis::address::{Address, HostAddress, ServerAddress};
use crate::store::url::{
    UrlDialect, UrlOption, UrlParts, UrlRefusal, UrlResult, UrlSyntax, decode,
};

/// The values of the options.
#[derive(Default)]
pub(crate) struct RedisOptions {
    plain_locks: bool,
    db: i64,
    login: UrlLogin,
    messages: Option<PubSubMode>,
}

const LOCKS: UrlOption = UrlOption::new(
    "locks",
    "redisson or plain",
    "redisson",
    "the kind of all locks",
);

pub(crate) const SERVER: UrlSyntax<RedisOptions> = UrlSyntax {
    forms: "redis://user:password@host:port/db, rediss://…",
    dialect: UrlDialect::Web,
    options: &[LOCKS],
    set,
    unsupported: &[],
};

pub(crate) const SOCKET: UrlSyntax<RedisOptions> = UrlSyntax {
    forms: "redis+unix:///path?db=n&user=…&password=…",
    options: &[
        UrlOption::new("db", "a number", "0", "`redis+unix`: the database"),
        UrlOption::login("user", "`redis+unix`: the user"),
        UrlOption::login("password", "`redis+unix`: the password"),
        UrlOption::login("pass", "`redis+unix`: the same as `password`"),
        LOCKS,
    ],
    ..SERVER
};

pub(crate) const SENTINEL: UrlSyntax<RedisOptions> = UrlSyntax {
    forms: "redis+sentinel://user:password@host:port,…/service/db, rediss+sentinel://…",
    options: &[
        UrlOption::login(
            "sentinel_user",
            "`redis+sentinel`: the user at the sentinels",
        ),
        UrlOption::login(
            "sentinel_password",
            "`redis+sentinel`: the password at the sentinels",
        ),
        LOCKS,
    ],
    ..SERVER
};

pub(crate) const CLUSTER: UrlSyntax<RedisOptions> = UrlSyntax {
    forms: "redis+cluster://user:password@host:port,…, rediss+cluster://…",
    options: &[
        UrlOption::new(
            "sharded_pubsub",
            "auto, on, off or both",
            "auto",
            "`redis+cluster`: the form of messages",
        ),
        LOCKS,
    ],
    ..SERVER
};

fn set(options: &mut RedisOptions, name: &str, value: &str) -> UrlResult<()> {
    match (name, value) {
        ("locks", "redisson") => options.plain_locks = false,
        ("locks", "plain") => options.plain_locks = true,
        ("db", db) => options.db = database(db)?,
        ("user" | "sentinel_user", user) => options.login.user = some(user),
        ("password" | "pass" | "sentinel_password", password) => {
            options.login.password = Some(password.to_owned());
        }
        ("sharded_pubsub", "auto") => options.messages = Some(PubSubMode::Auto),
        ("sharded_pubsub", "on") => options.messages = Some(PubSubMode::On),
        ("sharded_pubsub", "off") => options.messages = Some(PubSubMode::Off),
        ("sharded_pubsub", "both") => options.messages = Some(PubSubMode::Both),
        _ => return Err(UrlRefusal::value()),
    }
    Ok(())
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        match text.split(':').next().unwrap_or_default() {
            "redis+unix" => SOCKET.read(text, |url, options| Self::socket(&url, options)),
            "redis+sentinel" | "rediss+sentinel" => SENTINEL.read(text, Self::sentinel),
            "redis+cluster" | "rediss+cluster" => {
                CLUSTER.read(text, |url, options| Self::cluster(url, &options))
            }
            _ => SERVER.read(text, |url, options| Self::server(url, &options)),
        }
    }

    fn server(url: UrlParts<'_>, options: &RedisOptions) -> UrlResult<Self> {
        if !matches!(url.scheme, "redis" | "rediss") {
            return Err("its scheme is none of Redis".into());
        }
        let host = HostAddress::tcp(url.host()?, 6379, url.scheme == "rediss");
        let db = url.path.trim_matches('/');
        Self::with_login(ServerAddress::One(host), db, url, options)
    }

    fn socket(url: &UrlParts<'_>, options: RedisOptions) -> UrlResult<Self> {
        if !url.is_local() {
            return Err("a socket has no host: write redis+unix:///path with three slashes".into());
        }
        if url.path.len() < 2 {
            return Err("the path of the socket is missing".into());
        }
        Ok(Self {
            way: ServerAddress::One(HostAddress::Unix(decode(url.path)?.into())),
            db: options.db,
            user: options.login.user,
            password: options.login.password,
            plain_locks: options.plain_locks,
        })
    }

    fn sentinel(url: UrlParts<'_>, mut options: RedisOptions) -> UrlResult<Self> {
        let path = url.path.trim_matches('/');
        let (service, db) = path.split_once('/').unwrap_or((path, ""));
        let addresses = all(&url, 26379)?;
        let login = std::mem::take(&mut options.login);
        let way = ServerAddress::sentinels(addresses, &decode(service)?, login)?;
        Self::with_login(way, db, url, &options)
    }

    fn cluster(url: UrlParts<'_>, options: &RedisOptions) -> UrlResult<Self> {
        let path = url.path.trim_matches('/');
        let messages = options.messages.unwrap_or(PubSubMode::Auto);
        let way = ServerAddress::cluster(all(&url, 6379)?, optional(path)?, messages)?;
        Self::with_login(way, path, url, options)
    }

    fn with_login(
        way: ServerAddress,
        db: &str,
        url: UrlParts<'_>,
        options: &RedisOptions,
    ) -> UrlResult<Self> {
        Ok(Self {
            way,
            db: optional(db)?,
            user: url.user,
            password: url.password.filter(|password| !password.is_empty()),
            plain_locks: options.plain_locks,
        })
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn all(url: &UrlParts<'_>, port: u16) -> UrlResult<Vec<HostAddress>> {
    let tls = url.scheme.starts_with("rediss+");
    let hosts = url.hosts()?.iter();
    Ok(hosts
        .map(|host| HostAddress::tcp(host, port, tls))
        .collect())
}

/// The number of a database; 0 if the URL names none.
fn optional(db: &str) -> UrlResult<i64> {
    match db {
        "" => Ok(0),
        db => database(db),
    }
}

fn database(text: &str) -> UrlResult<i64> {
    match text.parse() {
        Ok(db) if (0..=i64::from(i32::MAX)).contains(&db) => Ok(db),
        _ => Err("the database is not a number; write /0 to /15".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn tcp(host: &str, port: u16, tls: bool) -> HostAddress {
        HostAddress::Tcp {
            host: host.to_owned(),
            port,
            tls,
        }
    }

    #[test]
    fn urls_name_the_place_the_database_and_the_user() {
        for (url, address, db, user, password) in [
            (
                "redis://localhost",
                tcp("localhost", 6379, false),
                0,
                None,
                None,
            ),
            ("redis://h:7/3", tcp("h", 7, false), 3, None, None),
            (
                "redis://:p%40ss@h/",
                tcp("h", 6379, false),
                0,
                None,
                Some("p@ss"),
            ),
            (
                "rediss://me:s%25x@h:1/2",
                tcp("h", 1, true),
                2,
                Some("me"),
                Some("s%x"),
            ),
            ("redis://[::1]:9", tcp("::1", 9, false), 0, None, None),
            (
                "redis://me:@h/2147483647",
                tcp("h", 6379, false),
                i64::from(i32::MAX),
                Some("me"),
                None,
            ),
            (
                "redis+unix:///s?user=&password=p",
                HostAddress::Unix("/s".into()),
                0,
                None,
                Some("p"),
            ),
            (
                "redis+unix:///run/r%20s?db=4&user=u&pass=p",
                HostAddress::Unix("/run/r s".into()),
                4,
                Some("u"),
                Some("p"),
            ),
        ] {
            let target = Address::parse(url).unwrap();
            assert_eq!(target.way, ServerAddress::One(address), "{url}");
            assert_eq!(target.db, db, "{url}");
            assert_eq!(target.user.as_deref(), user, "{url}");
            assert_eq!(target.password.as_deref(), password, "{url}");
        }
    }

    #[test]
    fn sentinels_are_several_hosts_and_a_service() {
        let url =
            "redis+sentinel://me:p%40s@a,b:7,[::1]/shop/2?sentinel_user=w&sentinel_password=x%26y";
        let target = Address::parse(url).unwrap();
        let ServerAddress::Sentinels(found) = &target.way else {
            panic!("{target:?}");
        };
        let addresses = [
            tcp("a", 26379, false),
            tcp("b", 7, false),
            tcp("::1", 26379, false),
        ];
        assert_eq!(found.addresses, addresses);
        assert_eq!((found.service.as_str(), target.db), ("shop", 2));
        assert_eq!(found.user.as_deref(), Some("w"));
        assert_eq!(found.password.as_deref(), Some("x&y"));
        assert_eq!(target.user.as_deref(), Some("me"));
        assert_eq!(target.password.as_deref(), Some("p@s"));
        assert_eq!(
            format!("{target:?}"),
            "redis+sentinel://a:26379,b:7,[::1]:26379/shop/2"
        );
        assert!(Address::parse("rediss+sentinel://a/s").unwrap().is_tls());
    }

    #[test]
    fn a_cluster_is_several_hosts() {
        for (query, sharded) in [
            ("", PubSubMode::Auto),
            ("?sharded_pubsub=auto", PubSubMode::Auto),
            ("?sharded_pubsub=on", PubSubMode::On),
            ("?sharded_pubsub=both", PubSubMode::Both),
            ("/0?sharded_pubsub=off", PubSubMode::Off),
        ] {
            let url = format!("rediss+cluster://me:secret@a:1,b{query}");
            let target = Address::parse(&url).unwrap();
            let addresses = vec![tcp("a", 1, true), tcp("b", 6379, true)];
            assert_eq!(
                target.way,
                ServerAddress::cluster(addresses, 0, sharded).unwrap()
            );
            assert_eq!(target.password.as_deref(), Some("secret"));
            assert_eq!(format!("{target:?}"), "rediss+cluster://a:1,b:6379/0");
        }
    }

    #[test]
    fn a_mistaken_url_is_refused_without_showing_the_password() {
        for url in [
            "redis://:hunter2@h/x",
            "redis://:hunter2@h/-1",
            "redis://:hunter2@h/2147483648",
            "redis+unix:///?pass=hunter2",
            "redis://:hunter2@h?dbb=1",
            "redis://:hunter2@",
            "rediss://:hunter2@h#insecure",
            "redis+unix://:hunter2@host/p",
            "redis+unix://?pass=hunter2",
            "redis://:hunter2%zz@h",
            "redis://:hunter2@h:99999",
            "redis+sentinel://:hunter2@h",
            "redis+sentinel://:hunter2@h,/s",
            "redis+sentinel://:hunter2@h,i:x/s",
            "redis+sentinel://:hunter2@h/s?db=hunter2",
            "redis+sentinel:hunter2",
            "redis+cluster://:hunter2@h/1",
            "redis+sentinel://me:1/hunter2@h",
            "redis+sentinel://me:x@i/hunter2@h/shop",
            "redis://me:1?hunter2@h",
            "redis+sentinel://me:1/s?hunter2@h",
            "redis+cluster://me:1?hunter2=x@h",
            "redis+cluster://:hunter2@h?sharded_pubsub=hunter2",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        let target = Address::parse("redis://me:hunter2@h:1/2").unwrap();
        assert_eq!(format!("{target:?}"), "redis://h:1/2");
    }

    #[test]
    fn the_url_says_how_locks_are_written() {
        for (url, plain) in [
            ("redis://h/1", false),
            ("redis://h/1?locks=plain", true),
            ("redis+unix:///s?db=1&locks=plain&user=a", true),
            ("redis+cluster://h?locks=plain", true),
            ("redis+sentinel://h/s?locks=plain", true),
            ("redis://h?locks=redisson", false),
        ] {
            assert_eq!(Address::parse(url).unwrap().plain_locks, plain, "{url}");
        }
        for bad in ["redis://h?locks=x", "redis://h?locks=plain&locks=redisson"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plus_in_an_option_is_a_space() {
        let address = Address::parse("redis+unix:/s?password=a+b%2Bc@d").unwrap();
        assert_eq!(address.password.as_deref(), Some("a b+c@d"));
    }
}
