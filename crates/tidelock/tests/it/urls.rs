//! The URLs of all stores: what is refused before anything is sent, and the pages that describe the options.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tidelock::testing::url_options;
use tidelock::{Client, Error, ErrorKind};

/// A URL of each scheme, with a password if it can have one, and its options.
const URLS: &[(&str, &[&str])] = &[
    ("memory:", &["like"]),
    ("memory:shop", &["like"]),
    #[cfg(feature = "sqlite")]
    ("sqlite:/nowhere/a.db", &[]),
    #[cfg(feature = "redis")]
    ("redis://u:hunter2@h/1", &["locks"]),
    #[cfg(feature = "redis")]
    ("rediss://u:hunter2@h", &["locks"]),
    #[cfg(feature = "redis")]
    (
        "redis+unix:///s",
        &["db", "user", "password", "pass", "locks"],
    ),
    #[cfg(feature = "redis")]
    (
        "redis+sentinel://u:hunter2@h,i/s",
        &["sentinel_user", "sentinel_password", "locks"],
    ),
    #[cfg(feature = "redis")]
    (
        "rediss+sentinel://u:hunter2@h,i/s",
        &["sentinel_user", "sentinel_password", "locks"],
    ),
    #[cfg(feature = "redis")]
    (
        "redis+cluster://u:hunter2@h,i",
        &["sharded_pubsub", "locks"],
    ),
    #[cfg(feature = "redis")]
    (
        "rediss+cluster://u:hunter2@h,i",
        &["sharded_pubsub", "locks"],
    ),
    #[cfg(feature = "postgres")]
    (
        "postgres://u:hunter2@h/d",
        &["table", "locks", "sslmode", "application_name"],
    ),
    #[cfg(feature = "postgres")]
    (
        "postgresql://u:hunter2@h/d",
        &["table", "locks", "sslmode", "application_name"],
    ),
    #[cfg(feature = "mysql")]
    (
        "mysql://u:hunter2@h/d",
        &["socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"],
    ),
    #[cfg(feature = "mysql")]
    (
        "mariadb://u:hunter2@h/d",
        &["socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"],
    ),
    #[cfg(feature = "zookeeper")]
    ("zookeeper://u:hunter2@h,i/base", &["session_timeout"]),
    #[cfg(feature = "etcd")]
    ("etcd://u:hunter2@h,i/prefix", &[]),
    #[cfg(feature = "etcd")]
    ("etcds://u:hunter2@h,i/prefix", &[]),
    #[cfg(feature = "memcached")]
    ("memcached://u:hunter2@h", &[]),
];

/// The error for a URL that is refused before anything is sent.
async fn refused(url: &str) -> Error {
    let error = Client::connect(url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}: {error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{url}: {shown}");
    error
}

#[tokio::test]
async fn an_unknown_option_is_refused_with_the_list_of_those_that_exist() {
    for (url, options) in URLS {
        let error = refused(&format!("{url}?nonsense=hunter2"))
            .await
            .to_string();
        if options.is_empty() {
            assert!(error.contains("has no options"), "{url}: {error}");
            continue;
        }
        let told = error.split_once("nonsense is none of its options; its options are ");
        let (_, list) = told.unwrap_or_else(|| panic!("{url}: {error}"));
        for option in *options {
            assert!(list.contains(option), "{url}: no {option} in {error}");
        }
    }
}

#[tokio::test]
async fn an_option_that_is_given_twice_is_refused() {
    for (url, options) in URLS {
        for option in options
            .iter()
            .filter(|it| **it == "locks" || **it == "session_timeout")
        {
            let value = match *option {
                "locks" if url.starts_with("redis") => "plain",
                "locks" => "rows",
                _ => "20s",
            };
            let url = format!("{url}?{option}={value}&{option}={value}");
            let error = refused(&url).await.to_string();
            assert!(
                error.contains(&format!("{option} is given twice")),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn a_value_that_is_refused_is_not_shown_and_its_option_is() {
    for (url, options) in URLS {
        let free = [
            "user",
            "password",
            "pass",
            "sentinel_user",
            "sentinel_password",
        ];
        let files = ["socket", "ssl-ca", "ssl-cert", "ssl-key"];
        let checked = |it: &&&str| !["table", "application_name"].contains(it);
        let checked = options.iter().filter(checked);
        for option in checked.filter(|it| !free.contains(it) && !files.contains(it)) {
            let error = refused(&format!("{url}?{option}=hunter2"))
                .await
                .to_string();
            let told = format!("the option {option} is ");
            assert!(error.contains(&told), "{url}: {error}");
        }
    }
}

/// The rest of a password with an unescaped `/`, `?`, `#` or `@` is shown by no error.
#[tokio::test]
async fn a_refused_url_shows_no_password() {
    for (url, _) in URLS.iter().filter(|(url, _)| url.contains("hunter2")) {
        for broken in [
            "1/hunter2",
            "1?hunter2",
            "1?hunter2=x",
            "1#hunter2",
            "1@x/hunter2",
            "%hunter2",
        ] {
            let url = url.replace("hunter2", broken);
            let read = tidelock::fuzz::passwords(&url);
            if read.is_empty() {
                refused(&url).await;
            }
        }
        refused(&url.replace("@h", "@h:99999")).await;
        refused(&url.replace("@h", "@")).await;
        refused(&url.replace("@h", "@[h]")).await;
        refused(&format!("{url}?%zz=1")).await;
    }
}

const HEAD: &str = "| option | value | default | meaning |\n| --- | --- | --- | --- |\n";

fn row([name, value, default, meaning]: [&str; 4]) -> String {
    format!("| `{name}` | {value} | {default} | {meaning} |\n")
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares a page with what the tables of the code say, or writes it.
fn keep_current(page: &Path, text: &str) {
    if std::env::var_os("TIDELOCK_WRITE_DOCS").is_some() {
        fs::write(page, text).unwrap();
    }
    let page_text = fs::read_to_string(page).unwrap();
    assert!(
        page_text == text,
        "{} is not current: run `{WRITE}`",
        page.display()
    );
}

const WRITE: &str = "TIDELOCK_WRITE_DOCS=1 cargo test -p tidelock --all-features --test it urls::";

fn has_all_stores() -> bool {
    let stores: BTreeSet<&str> = url_options().iter().map(|(store, ..)| *store).collect();
    stores.len() == 8
}

#[test]
fn every_page_names_the_options_of_its_store() {
    if !has_all_stores() {
        return;
    }
    for store in ["redis", "postgres", "mysql", "zookeeper", "memory"] {
        let mut rows: Vec<String> = Vec::new();
        for (of, _, options) in url_options() {
            for row in options.into_iter().map(row).filter(|_| of == store) {
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        let page = match store {
            "memory" => docs().join("testing-your-service.md"),
            _ => docs().join(format!("stores/{store}.md")),
        };
        let text = fs::read_to_string(&page).unwrap();
        let (before, rest) = text.split_once(HEAD).unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        keep_current(&page, &format!("{before}{HEAD}{}\n{after}", rows.concat()));
    }
}

const OPTIONS_PAGE: &str = "\
# URL options

The options of the URLs of all stores. An option that a URL does not have is an error, and so is one that is given
twice: a misspelled option must not silently name another store. In a password write `%2F` for `/`, `%3F` for `?`,
`%23` for `#`, `%40` for `@` and `%25` for `%`; or pass the password with `Credentials`, or to the command in `TIDELOCK_PASSWORD`.

This page is written from the tables in the code: `{WRITE}`.
";

#[test]
fn the_page_of_url_options_is_current() {
    if !has_all_stores() {
        return;
    }
    let mut text = OPTIONS_PAGE.replace("{WRITE}", WRITE);
    for (_, forms, options) in url_options() {
        let forms: Vec<String> = forms.split(", ").map(|form| format!("`{form}`")).collect();
        let title = forms[0].split([':', '`']).nth(1).unwrap();
        text.extend(["\n## `", title, ":`\n\n", &forms.join(", "), "\n\n"]);
        if options.is_empty() {
            text += "No options.\n";
        } else {
            text += HEAD;
            text.extend(options.into_iter().map(row));
        }
    }
    keep_current(&docs().join("url-options.md"), &text);
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_database_as_an_option_is_told_its_place() {
    for name in ["db", "database", "dbname"] {
        let url = format!("redis://127.0.0.1/?{name}=9");
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        let said = error.to_string();
        assert!(said.contains(name), "{said}");
        assert!(said.contains("the database is the path"), "{said}");
    }
}
