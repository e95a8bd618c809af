//! The stores that cost most to build, the screen of `top` and the page of `web` are features of the command. A build without
//! one says so, and how to get it.

use std::sync::LazyLock;

/// The stores that a build can leave out: the cargo feature, the name, and whether this build has it.
const STORES: [(&str, &str, bool); 4] = [
    ("etcd", "etcd", cfg!(feature = "etcd")),
    ("mysql", "MySQL", cfg!(feature = "mysql")),
    ("postgres", "PostgreSQL", cfg!(feature = "postgres")),
    ("zookeeper", "ZooKeeper", cfg!(feature = "zookeeper")),
];

/// What `--version` prints: the version, and the stores of this build.
pub(crate) static VERSION: LazyLock<String> =
    LazyLock::new(|| version(&STORES, cfg!(feature = "screen"), cfg!(feature = "web")));

fn version(stores: &[(&str, &str, bool)], has_screen: bool, has_page: bool) -> String {
    let named = |wanted: bool| {
        let these = stores.iter().filter(|(.., present)| *present == wanted);
        these.map(|(_, name, _)| *name).collect::<Vec<_>>()
    };
    let present = [&["SQLite", "Redis", "memcached"], &*named(true)].concat();
    let text = format!(
        "{}\nstores: {}",
        env!("CARGO_PKG_VERSION"),
        present.join(", ")
    );
    let mut absent = named(false);
    if !has_screen {
        absent.push("the screen of `top`");
    }
    if !has_page {
        absent.push("the page of `web`");
    }
    if absent.is_empty() {
        return text;
    }
    format!(
        "{text}\nleft out: {}; to have all, in a checkout of tidelock: cargo install --path crates/tidelock-cli --all-features",
        absent.join(", ")
    )
}

/// Adds to the library's error about a store that this build left out how a user of the command gets it.
pub(crate) fn explained(message: String) -> String {
    let is_about = |(feature, ..): &&(&str, &str, bool)| {
        message.contains("this build has no ") && message.contains(&format!("`{feature}`"))
    };
    match STORES.iter().find(is_about) {
        Some((feature, ..)) => format!(
            "{message}; for the command, in a checkout of tidelock: cargo install --path crates/tidelock-cli --features {feature}, or --all-features for every store"
        ),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_what_is_left_out() {
        let stores = [("etcd", "etcd", true), ("mysql", "MySQL", false)];
        let told = version(&stores, true, true);
        assert!(told.contains("stores: SQLite, Redis, memcached, etcd\n"));
        assert!(told.contains("left out: MySQL;"), "{told}");
        let told = version(&stores, false, false);
        assert!(
            told.contains("left out: MySQL, the screen of `top`, the page of `web`;"),
            "{told}"
        );
        assert!(!version(&[("etcd", "etcd", true)], true, true).contains("left out"));
    }

    #[test]
    fn a_store_that_is_left_out_says_how_to_get_it() {
        // The text of the library's registry, which has a test of its own.
        let told = explained(
            "invalid option: this build has no MySQL: add the cargo feature `mysql` of tidelock"
                .into(),
        );
        assert!(told.contains("cargo install --path crates/tidelock-cli --features mysql"));
        let other = "no store has the URL scheme \"mongodb\"; use redis://";
        assert_eq!(explained(other.to_owned()), other);
    }
}
