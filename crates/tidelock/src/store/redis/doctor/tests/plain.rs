//! The rights that plain locks need, and the events that wake their waiters.

use super::{REFUSED, finding, healthy};
use crate::snapshot::{Finding, Severity};
use crate::store::redis::layouts::scripts;
use crate::store::redis::wire::tests::ScriptedServer;

use Severity::{Advice, Danger, Good};

/// The finding about this subject at a server with these replies besides.
async fn found(subject: &str, replies: &[(&str, &str)]) -> Finding {
    let server = healthy().await;
    allows_locks(&server);
    for (request, reply) in replies {
        server.on(request, reply);
    }
    let plain = server.store().await.plain.unwrap();
    finding(&plain, subject).await
}

fn allows_locks(server: &ScriptedServer) {
    server.on_script(&scripts::PLAIN_ACQUIRE, "[ 1 '7 0 ]");
    server.on_script(&scripts::PLAIN_RENEW, "[ 1 ]");
    server.on_script(&scripts::PLAIN_RELEASE, "1");
}

#[tokio::test]
async fn the_events_of_the_server_are_found_as_far_as_waiters_hear_them() {
    let setting = "CONFIG GET notify-keyspace-events";
    let enough = (setting, "[ notify-keyspace-events Kgx ]");
    for (replies, severity, said) in [
        (&[enough][..], Good, "Kgx"),
        (
            &[(setting, "[ notify-keyspace-events ' ]")][..],
            Advice,
            "off",
        ),
        (
            &[(setting, "[ notify-keyspace-events Kg ]")][..],
            Advice,
            "Kg: not all that is needed",
        ),
        (
            &[(setting, REFUSED)][..],
            Advice,
            "cannot see: CONFIG is not allowed",
        ),
        (
            &[enough, ("SUBSCRIBE __keyspace", REFUSED)][..],
            Advice,
            "told, and not to be heard",
        ),
    ] {
        let seen = found("keyspace events", replies).await;
        assert_eq!((seen.severity, &*seen.found), (severity, said));
    }
}

#[tokio::test]
async fn each_right_that_plain_locks_lack_is_found() {
    let [acquire, renew, release] = [
        &scripts::PLAIN_ACQUIRE,
        &scripts::PLAIN_RENEW,
        &scripts::PLAIN_RELEASE,
    ]
    .map(|script| format!("EVALSHA {}", script.sha()));
    for (request, subject, severity) in [
        ("NOTHING", "rights: locks", Good),
        ("NOTHING", "rights: fencing", Good),
        (&*acquire, "rights: locks", Danger),
        (&*acquire, "rights: fencing", Advice),
        (&*renew, "rights: locks", Danger),
        (&*renew, "rights: fencing", Good),
        (&*release, "rights: locks", Danger),
        ("DEL tidelock:token:", "rights: fencing", Advice),
    ] {
        let seen = found(subject, &[(request, REFUSED)]).await;
        assert_eq!(seen.severity, severity, "{request} {subject}");
        assert_eq!(seen.found == "refused", severity != Good, "{request}");
    }
}

#[tokio::test]
async fn a_user_without_scripts_can_use_plain_locks_by_transactions() {
    let server = healthy().await;
    server.on(
        "EVALSHA",
        "-NOPERM this user has no permissions to run the 'evalsha' command",
    );
    for (request, reply) in [("GET", "nil"), ("PTTL", "-2"), ("EXISTS", "0")] {
        server.on(request, reply);
    }
    // Each transaction begins with an empty one. A lock is taken, kept and withdrawn, then one with a token taken and freed.
    let each = ["[ OK ]", "[ 1 ]", "[ OK ]", "[ 8 OK ]", "[ 1 ]"];
    let each: Vec<&str> = each.iter().flat_map(|reply| ["[ ]", *reply]).collect();
    server.in_turn("EXEC", &each);
    let plain = server.store().await.plain.unwrap();
    let seen = finding(&plain, "rights: locks").await;
    let said = "a lock was taken, kept and freed by transactions";
    assert_eq!((seen.severity, &*seen.found), (Advice, said));
}
