//! The shared reader of URLs, with a made-up store.

use super::*;

#[derive(Default)]
struct Values {
    mode: Option<String>,
    password: Option<String>,
}

const SYNTAX: UrlSyntax<Values> = UrlSyntax {
    forms: "db://host",
    dialect: UrlDialect::Web,
    options: &[
        UrlOption::new("mode", "fast or safe", "fast", "how"),
        UrlOption::login("password", "secret"),
    ],
    set: |values, name, value| {
        match (name, value) {
            ("mode", "fast" | "safe") => values.mode = Some(value.to_owned()),
            ("password", _) => values.password = Some(value.to_owned()),
            _ => return Err(UrlRefusal::value()),
        }
        Ok(())
    },
    unsupported: &["tls"],
};

/// User, password, hosts, path, mode, and the password among the options.
type Parts = (
    Option<String>,
    Option<String>,
    Vec<String>,
    String,
    Option<String>,
    Option<String>,
);

fn read(text: &str, dialect: UrlDialect) -> Result<Parts> {
    UrlSyntax { dialect, ..SYNTAX }.read(text, |url, values| {
        Ok((
            url.user.clone(),
            url.password.clone(),
            url.all_hosts().iter().map(ToString::to_string).collect(),
            decode(url.path)?,
            values.mode,
            values.password,
        ))
    })
}

fn refused(text: &str) -> String {
    let error = read(text, UrlDialect::Web).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{text}: {error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    error.to_string()
}

#[test]
fn a_url_has_login_hosts_path_and_options() {
    let url =
        "db://me:p%40s%20s@a,b:7,[0:0::1]:9,[fe80::1%25eth0]/x%20y/z?mode=fast&password=a@b+c";
    let (user, password, hosts, path, mode, secret) = read(url, UrlDialect::Web).unwrap();
    assert_eq!(user.as_deref(), Some("me"));
    assert_eq!(password.as_deref(), Some("p@s s"));
    assert_eq!(hosts, ["a", "b:7", "[::1]:9", "[fe80::1%eth0]"]);
    assert_eq!(path, "/x y/z");
    assert_eq!(mode.as_deref(), Some("fast"));
    assert_eq!(secret.as_deref(), Some("a@b c"));
    let local = read("db:x/y?&mode=safe&", UrlDialect::Plain).unwrap();
    assert_eq!((local.2.len(), &*local.3), (0, "x/y"));
    assert_eq!(local.4.as_deref(), Some("safe"));
    // Without a login, an `@` in the path is no rest of a password.
    let local = read("db:/x@y", UrlDialect::Plain).unwrap();
    assert_eq!(local.3, "/x@y");
}

#[test]
fn dialects_disagree_about_three_characters() {
    let url = "db://u:p#w@h/a?password=x+y";
    assert!(read(url, UrlDialect::Web).is_err());
    let (_, password, _, _, _, secret) = read(url, UrlDialect::Plain).unwrap();
    assert_eq!(password.as_deref(), Some("p#w"));
    assert_eq!(secret.as_deref(), Some("x+y"));
    let (_, password, hosts, path, ..) = read("db://u:p/q?r@h/a", UrlDialect::Libpq).unwrap();
    assert_eq!(password.as_deref(), Some("p/q?r"));
    assert_eq!((&*hosts[0], &*path), ("h", "/a"));
    let last = read("db://u:p@q@h", UrlDialect::Web).unwrap();
    assert_eq!(last.1.as_deref(), Some("p@q"));
    assert!(read("db://u:p@q@h", UrlDialect::Libpq).is_err());
}

#[test]
fn an_option_that_is_refused_is_named() {
    for (url, told) in [
        (
            "db://h?mood=fast",
            "mood is none of its options; its options are mode, password",
        ),
        (
            "db://h?mode=hunter2",
            "the option mode is fast or safe (db://host)",
        ),
        (
            "db://h?mode=fast&mode=fast",
            "the option mode is given twice",
        ),
        (
            "db://h?mode=fast@hunter2",
            "write %3F for a ? in a password, and %40 for an @ in the option mode",
        ),
    ] {
        let error = refused(url);
        assert!(error.contains(told), "{error}");
    }
    let error = read("db://h?use_tls=1", UrlDialect::Web).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_name_that_may_be_the_rest_of_a_password_is_not_shown() {
    for url in [
        "db://u:1?hunter2@h",
        "db://u:1?hunter2=x@h",
        "db://u:1?mode=fast&hunter2=x@h",
        "db://h?password=x&hunter2",
        "db://h?password=x&hunter2=1",
        "db://h?hunter2_hunter2_hunter2_hunter2_hunter2=1",
        "db://h?hunter2%20x=1",
    ] {
        let error = refused(url);
        assert!(
            error.contains("unknown") && error.contains("mode"),
            "{error}"
        );
    }
}

#[test]
fn a_url_that_makes_no_sense_is_refused() {
    for url in [
        "hunter2",
        "db://:hunter2@h,/a",
        "db://:hunter2@h:0",
        "db://:hunter2@h:65536",
        "db://:hunter2@h:+1",
        "db://:hunter2@::1",
        "db://:hunter2@[::1",
        "db://:hunter2@[::1]7",
        "db://:hunter2@[h]",
        "db://:hunter2@h i",
        "db://:hunter2%zz@h",
        "db://:hunter2%ff@h",
        "db://:hunter2@h\n",
        "db://:hunter2@h#x",
        "db://u:1/hunter2@h",
        "db://u:x@i/hunter2@h",
    ] {
        refused(url);
    }
}

/// Libpq ends the login at the first `@`. The rest of a password would be read as a host, or as an option.
#[test]
fn an_at_sign_that_ends_the_login_early_is_refused() {
    for (url, told) in [
        (
            "db://u:p@hunter2@h",
            "write %40 for an @ in a password or an option",
        ),
        (
            "db://h?mode=hunter2@x",
            "write %40 for an @ in a password or an option",
        ),
        (
            "db://h?a=1&%6dode=hunter2@x",
            "write %40 for an @ in a password or an option",
        ),
        ("db://u@hunter2@h", "write %2F for a / and %40 for an @"),
    ] {
        let error = read(url, UrlDialect::Libpq).unwrap_err().to_string();
        assert!(error.contains(told), "{url}: {error}");
        assert!(!error.contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn a_store_of_one_server_needs_one_host_and_others_at_least_one() {
    let only = |text: &str| SYNTAX.read(text, |url, _| Ok(url.host()?.to_string()));
    let all = |text: &str| SYNTAX.read(text, |url, _| Ok(url.hosts()?.len()));
    assert_eq!(only("db://[::1]:7").unwrap(), "[::1]:7");
    assert_eq!(all("db://a,b").unwrap(), 2);
    let too_many = only("db://a,b").unwrap_err().to_string();
    assert!(too_many.contains("it has more than one host"), "{too_many}");
    for url in ["db:", "db:///x", "db://u:p@/x"] {
        for error in [only(url).unwrap_err(), all(url).unwrap_err()] {
            let told = error.to_string();
            assert!(told.contains("the host is missing"), "{url}: {told}");
        }
    }
}

#[test]
fn a_url_with_a_host_or_a_login_is_not_local() {
    for (url, is_local) in [
        ("db:x", true),
        ("db:///x", true),
        ("db://h/x", false),
        ("db://u@/x", false),
        ("db://:p@/x", false),
    ] {
        let read = SYNTAX.read(url, |url, _| Ok(url.is_local()));
        assert_eq!(read.unwrap(), is_local, "{url}");
    }
}

#[test]
fn a_password_alone_is_that_of_the_user_without_a_name() {
    for (url, user, password) in [
        ("db://u:p@h", Some("u"), Some("p")),
        ("db://:p@h", Some(""), Some("p")),
        ("db://u@h", Some("u"), None),
        ("db://h", None, None),
    ] {
        let login = SYNTAX.read(url, |url, _| Ok(url.login())).unwrap();
        let (user, password) = (user.map(str::to_owned), password.map(str::to_owned));
        assert_eq!(login, (user, password), "{url}");
    }
}

/// Only where the database is a part of the path.
#[test]
fn an_option_for_the_database_is_told_its_place() {
    for (forms, option, is_told) in [
        ("db://host/db", "dbname", true),
        ("db://host/database", "db", true),
        ("db://host/db", "mood", false),
        ("db://host", "database", false),
    ] {
        let syntax = UrlSyntax { forms, ..SYNTAX };
        let url = format!("db://h?{option}=7");
        let error = syntax.read(&url, |_, _| Ok(())).unwrap_err().to_string();
        assert!(error.contains(option), "{error}");
        let told = error.contains("the database is the path of the URL");
        assert_eq!(told, is_told, "{error}");
    }
}

#[test]
fn the_path_of_a_file_is_not_empty() {
    let mut slot = None;
    assert!(file(&mut slot, "").is_err() && slot.is_none());
    file(&mut slot, "/etc/ca.pem").unwrap();
    assert_eq!(slot, Some(PathBuf::from("/etc/ca.pem")));
}
