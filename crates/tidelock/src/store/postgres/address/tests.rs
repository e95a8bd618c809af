//! A URL, and the settings that the driver gets of it.

use tokio_postgres::config::TargetSessionAttrs;

use super::*;
use crate::store::postgres::tests::fake_server::ScriptedDatabase;
use crate::store::postgres::tests::{LIMIT, env};

#[test]
fn a_table_is_nothing_but_a_name() {
    for good in ["locks", "shop.locks", "_l1"] {
        assert!(check(good).is_ok(), "{good}");
    }
    let long = "a".repeat(51);
    for bad in [
        "", "a.b.c", "Locks", "a;drop", "a b", "1a", "a\"", ".a", &long,
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_at_in_a_password_is_escaped() {
    for bad in [
        "u:a@hunter2@h/d",
        "u:a@x/hunter2@h",
        "u:a?b@hunter2@h",
        "u:a@h/d?dbname=hunter2@i",
        "u@=?host=?:hunter2@",
        "h/d?application_name=hunter2@b",
        "h:1/d?sslcert=hunter2@b",
    ] {
        let error = Address::read(&format!("postgres://{bad}")).map(drop);
        let error = error.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    for good in ["h/d", "u:a%40b@h/d", "u:a/b?c#d@h/d", "u@h/d?user=a@b"] {
        let address = Address::read(&format!("postgres://{good}")).unwrap();
        assert_eq!(address.to_string(), "postgres://h:5432/d", "{good}");
    }
}

#[test]
fn the_driver_gets_what_the_url_says() {
    let url = "postgresql://me:p'%5C/?x@a,[::1]:7,%2Frun/d%20b?keepalives=0&application_name=it's";
    let config = Address::read(url).unwrap().config;
    assert_eq!(config.get_user(), Some("me"));
    assert_eq!(config.get_password(), Some(&br"p'\/?x"[..]));
    assert_eq!(config.get_dbname(), Some("d b"));
    assert_eq!(config.get_application_name(), Some("it's"));
    assert!(!config.get_keepalives());
    assert_eq!(config.get_keepalives_idle(), keepalive::IDLE);
    let chosen = Address::read("postgres://h/d?keepalives_idle=5").unwrap();
    assert_eq!(chosen.config.get_keepalives_idle(), Duration::from_secs(5));
    let tcp = |host: &str| Host::Tcp(host.to_owned());
    let hosts = [tcp("a"), tcp("::1"), Host::Unix("/run".into())];
    assert_eq!(config.get_hosts(), hosts);
    assert_eq!(config.get_ports(), [5432, 7, 5432]);
    let socket = "postgres:///d?host=/run&port=7&user=u&password=a%40b+c";
    let config = Address::read(socket).unwrap().config;
    assert_eq!(config.get_hosts(), [Host::Unix("/run".into())]);
    assert_eq!(config.get_ports(), [7]);
    assert_eq!(config.get_password(), Some(&b"a@b+c"[..]));
}

#[test]
fn of_several_hosts_a_session_is_on_the_primary() {
    use TargetSessionAttrs::{Any, ReadWrite};
    for (url, expected) in [
        ("a,b/d?locks=session", ReadWrite),
        ("a/d?locks=session&host=b", ReadWrite),
        ("a,b/d?locks=session&target_session_attrs=any", Any),
        ("a/d?locks=session", Any),
        ("a,b/d", Any),
    ] {
        let address = Address::read(&format!("postgres://{url}")).unwrap();
        let found = address.config.get_target_session_attrs();
        assert_eq!(found, expected, "{url}");
    }
}

#[test]
fn ours_are_not_the_drivers() {
    let address = Address::read("postgres://h/d?table=t&keepalives=0").unwrap();
    assert_eq!(address.table, "t");
    assert!(!address.session_locks && address.tls.is_none() && !address.unnamed);
    let unnamed = Address::read("postgres://h/d?statements=unnamed");
    assert!(unnamed.unwrap().unnamed);
    let address = Address::read("postgres://h/d?locks=session").unwrap();
    assert!(address.session_locks);
    assert_eq!(address.table, TABLE);
    let url = "postgres://h/d?sslmode=verify-ca&sslrootcert=/a%20b/ca.pem&sslcert=c&sslkey=k";
    let address = Address::read(url).unwrap();
    assert_eq!(address.tls, Some(Check::AnyName));
    let files = TlsFiles {
        ca: Some("/a b/ca.pem".into()),
        cert: Some("c".into()),
        key: Some("k".into()),
    };
    assert_eq!(address.files, files);
}

#[test]
fn a_url_with_tls_gets_it_or_an_error() {
    for (mode, check) in [
        ("sslmode=disable", None),
        ("sslmode=require", Some(Check::Everything)),
        ("sslmode=verify-full", Some(Check::Everything)),
        ("%73slmode=require", Some(Check::Everything)),
        ("sslmode=verify-ca", Some(Check::AnyName)),
    ] {
        let address = Address::read(&format!("postgres://h/d?{mode}")).unwrap();
        assert_eq!(address.tls, check, "{mode}");
    }
    for bad in [
        "sslmode=prefer",
        "sslmode=allow",
        "sslmode=hunter2",
        "sslrootcert=hunter2@h",
        "sslcert=",
        "locks=hunter2",
        "statements=hunter2",
        "keepalives=hunter2",
    ] {
        let error = Address::read(&format!("postgres://h/d?{bad}")).map(drop);
        let error = error.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}
#[tokio::test]
async fn a_connect_has_the_limits_and_the_name_of_the_client() {
    for (options, mode, name) in [
        ("", SslMode::Disable, "tidelock"),
        ("?sslmode=require", SslMode::Require, "tidelock"),
        ("?application_name=shop", SslMode::Disable, "shop"),
    ] {
        let url = format!("postgres://h/d{options}");
        let config = Address::parse(&url, &env()).unwrap().config;
        assert_eq!(config.get_ssl_mode(), mode, "{options}");
        assert_eq!(config.get_application_name(), Some(name), "{options}");
        assert_eq!(config.get_connect_timeout(), Some(&LIMIT), "{options}");
    }
}

/// A client with certificates could send plain text unnoticed.
#[tokio::test]
async fn certificates_without_tls_are_an_error() {
    let with_ca = Env {
        tls: TlsFiles {
            ca: Some("ca.pem".into()),
            ..TlsFiles::default()
        },
        ..env()
    };
    for (env, options, is_accepted) in [
        (&env(), "sslmode=disable", true),
        (&env(), "sslcert=c&sslkey=k", false),
        (&env(), "sslnegotiation=direct", false),
        (&env(), "sslmode=require&sslnegotiation=direct", true),
        (&env(), "sslmode=require&sslcert=c&sslkey=k", true),
        (&env(), "sslmode=require&host=/run", false),
        (&env(), "sslmode=disable&host=/run", true),
        (&with_ca, "sslmode=disable", false),
        (&with_ca, "sslmode=verify-full", true),
    ] {
        let parsed = Address::parse(&format!("postgres://h/d?{options}"), env);
        let kind = parsed.err().map(|error| error.kind());
        let refused = (!is_accepted).then_some(ErrorKind::InvalidOptions);
        assert_eq!(kind, refused, "{options}");
    }
}

#[tokio::test]
async fn a_connect_logs_in_with_what_the_function_for_it_gives() {
    for (given, login) in [
        (None, ["me", "hunter2"]),
        (Some(Credentials::new("you", "given")), ["you", "given"]),
        (Some(Credentials::password("given")), ["me", "given"]),
        (Some(Credentials::default()), ["me", "hunter2"]),
    ] {
        let server = ScriptedDatabase::start().await;
        server.asks_for_password();
        let env = Env {
            credentials: given.map(|given| -> Arc<dyn Fn() -> Credentials + Send + Sync> {
                Arc::new(move || given.clone())
            }),
            ..env()
        };
        let url = server.url("&password=hunter2");
        let address = Address::parse(&url, &env).unwrap();
        let dialled = address.dial().await;
        assert!(dialled.is_ok());
        let [user, password] = login;
        let startup = &server.heard("STARTUP")[0].text;
        assert!(startup.contains(&format!("user {user} ")), "{startup}");
        let told = &server.heard("PASSWORD")[0].text;
        assert_eq!(*told, format!("PASSWORD {password}"));
    }
}

#[test]
fn a_url_that_contradicts_itself_or_names_no_host_says_so() {
    for (url, said) in [
        ("h/d?locks=session&table=t", "locks=session needs no table"),
        ("/d", "the host is missing"),
        ("h/d?table=T", "a table is called by at most 50 of"),
        ("h/d?sslmode=prefer", "would fall back to plain text"),
        ("h/d?sslmode=allow", "would fall back to plain text"),
    ] {
        let error = Address::read(&format!("postgres://{url}")).map(drop);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let usual = "postgres://h/d?locks=rows&statements=prepared&table=t";
    let address = Address::read(usual).unwrap();
    assert!(!address.session_locks && !address.unnamed);
}

#[test]
fn the_name_of_a_table_has_fifty_bytes_at_most() {
    let longest = "a".repeat(MAX_TABLE_BYTES);
    assert!(check(&longest).is_ok());
    assert!(check(&(longest + "a")).is_err());
}

#[test]
fn all_hosts_of_a_url_are_shown() {
    let address = Address::read("postgres://a,b:7,c/d").unwrap();
    assert_eq!(address.to_string(), "postgres://a:5432,b:7,c:5432/d");
}
