//! The rooms of the library: what the pages about its tests count separately.

/// The rooms, in the order of the pages.
pub(crate) const ROOMS: [&str; 12] = [
    "engine",
    "redis",
    "set",
    "memory",
    "sqlite",
    "postgres",
    "mysql",
    "zookeeper",
    "etcd",
    "memcached",
    "stores in common",
    "public API",
];

/// The sources of the library, from the root of the workspace.
pub(crate) const SOURCES: &str = "crates/tidelock/src/";

/// The room of a file of the library, which is named from [`SOURCES`].
pub(crate) fn room(file: &str) -> &'static str {
    let room = if let Some(rest) = file.strip_prefix("store/") {
        let (folder, _) = rest.split_once('/').unwrap_or(("", rest));
        let store = ROOMS[1..10].iter().find(|room| **room == folder);
        return store.unwrap_or(&"stores in common");
    } else if file.starts_with("engine/") {
        0
    } else {
        11
    };
    ROOMS[room]
}

/// The test binaries of the library and the command that need no server and are tests of the library.
pub(crate) const OWN_TESTS: &[&str] = &["it"];

/// The test binaries of `real_servers` that test a room. None for the rooms that have no server.
pub(crate) fn server_tests(room: &str) -> &'static [&'static str] {
    match room {
        "engine" => &["redis", "sets"],
        "redis" => &[
            "redis",
            "redis_plain",
            "replicas",
            "sentinel",
            "cluster",
            "redis_faults",
        ],
        "set" => &["sets"],
        "sqlite" => &["sqlite", "sqlite_faults"],
        "postgres" => &["postgres"],
        "mysql" => &["mysql"],
        "zookeeper" => &["zookeeper"],
        "etcd" => &["etcd"],
        "memcached" => &["memcached"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn each_file_has_a_room() {
        assert_eq!(room("engine/lease/table.rs"), "engine");
        assert_eq!(room("store/redis/wire/decode.rs"), "redis");
        assert_eq!(room("store/memcached/acquire.rs"), "memcached");
        assert_eq!(room("store/url/host.rs"), "stores in common");
        assert_eq!(room("store/errors.rs"), "stores in common");
        assert_eq!(room("lock.rs"), "public API");
    }
}
