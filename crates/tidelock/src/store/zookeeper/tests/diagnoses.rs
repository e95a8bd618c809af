//! The findings of the doctor at a server.

use super::*;
use crate::snapshot::Severity;

/// The findings about this subject.
async fn found(store: &ZooKeeper, subject: &str) -> Vec<(Severity, String)> {
    let all = store.diagnose().await.unwrap();
    let fit = all.into_iter().filter(|finding| finding.subject == subject);
    fit.map(|finding| (finding.severity, finding.found))
        .collect()
}

#[tokio::test]
async fn a_server_that_grants_less_than_a_lease_needs_is_named() {
    for (granted, timeout, is_short) in [
        (40_000, Severity::Good, 0),
        (20_000, Severity::Advice, 0),
        (9_999, Severity::Advice, 1),
    ] {
        let server = TestServer::start().await;
        server.grants(granted);
        let store = server.store().await;
        let seen = found(&store, "session timeout").await;
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].0, timeout, "{granted}");
        let short = found(&store, "short sessions").await;
        assert_eq!(short.len(), is_short, "{granted}");
    }
}

#[tokio::test]
async fn the_servers_are_counted_if_the_server_tells_of_them() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(found(&store, "servers").await.is_empty());
    let config = b"server.1=a:2888:3888:participant;2181\nserver.2=b:1:2\nserver.3=c:1:2";
    server.tree(|tree| tree.make("/zookeeper/config", config));
    let seen = found(&store, "servers").await;
    let expected = (Severity::Good, "3 servers that vote".to_owned());
    assert_eq!(seen, [expected]);
}

/// The rights of the base path, each by its bits, scheme and id.
type Rights<'a> = &'a [(i32, &'a str, &'a str)];

#[tokio::test]
async fn rights_that_are_too_wide_or_too_narrow_are_named() {
    const CREATE_AND_READ: i32 = 5;
    const DELETE: i32 = 8;
    const ALL: i32 = 31;

    let (good, advice, danger) = (Severity::Good, Severity::Advice, Severity::Danger);
    let server = TestServer::start().await;
    let nobody = server.store().await;
    let me = server.open("me:secret@", "", &env()).await.unwrap();
    let made_later = found(&nobody, "rights").await;
    assert_eq!(made_later, [(good, "/tidelock".to_owned())]);
    server.tree(|tree| tree.make("/tidelock", b""));
    let rights: [(Rights<'_>, Severity, Severity); 5] = [
        (&[(ALL, "world", "anyone")], advice, advice),
        (&[(DELETE, "world", "anyone")], advice, advice),
        (&[(ALL, "digest", "me:x")], danger, good),
        (&[(ALL, "digest", "you:x")], danger, danger),
        (
            &[
                (CREATE_AND_READ, "world", "anyone"),
                (DELETE, "digest", "me:x"),
            ],
            danger,
            good,
        ),
    ];
    for (rights, of_nobody, of_me) in rights {
        let owned = rights
            .iter()
            .map(|&(bits, scheme, id)| (bits, scheme.to_owned(), id.to_owned()));
        server.tree(|tree| tree.node_mut("/tidelock").rights = owned.collect());
        for (store, severity) in [(&nobody, of_nobody), (&me, of_me)] {
            let seen = found(store, "rights").await;
            assert_eq!(seen[0].0, severity, "{rights:?}: {seen:?}");
        }
    }
    server.on("rights", ServerFault::Refuses(NO_AUTH));
    assert_eq!(found(&me, "rights").await[0].0, danger);
    server.on("rights", ServerFault::Refuses(THROTTLED));
    let error = me.diagnose().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
