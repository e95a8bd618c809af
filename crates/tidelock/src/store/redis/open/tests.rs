//! The settings of a store, and the form of the messages of a cluster.

use std::time::Instant;

use futures_util::stream::{iter, pending};

use super::*;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::tests::{LIMIT, ScriptedServer, simulated};
use crate::store::{Background, Clock, TlsFiles};

fn mute() -> Result<bool> {
    Err(unsent("no answer"))
}

fn stranger() -> Result<bool> {
    Err(Error::new(ErrorKind::Refused))
}

#[tokio::test]
async fn one_node_with_sharded_channels_outweighs_those_without() {
    let (background, _stop) = Background::start(Clock::Boot).unwrap();
    let timers = Timers::new(Clock::Boot);
    background.spawn(timers.clone().drive());
    for (answers, expected) in [
        (vec![Ok(false), Ok(true)], Ok(true)),
        (vec![mute(), stranger(), Ok(true)], Ok(true)),
        (vec![mute(), Ok(false), stranger()], Ok(false)),
        (vec![mute(), mute()], Err(ErrorKind::Unavailable)),
        (vec![stranger(), mute()], Err(ErrorKind::Refused)),
        (vec![], Err(ErrorKind::Unavailable)),
    ] {
        let answer = any_knows(&timers, iter(answers)).await;
        assert_eq!(answer.map_err(|error| error.kind()), expected);
    }
    // A node that does not answer delays the answer of the others, but does not replace it.
    for known in [true, false] {
        let answers = iter([Ok(known)]).chain(pending());
        assert_eq!(any_knows(&timers, answers).await.unwrap(), known);
    }
}

#[tokio::test]
async fn the_limits_of_a_store_follow_from_the_response_timeout_and_the_lease() {
    let ((background, timers), second) = (simulated(), Duration::from_secs(1));
    let mut env = Env::of_limits(timers, background, second * 3);
    assert!(patience(&env) > env.response_timeout);
    assert_eq!(gone_after(&env), second * 30, "its lease is shorter");
    env.lease = second * 60;
    assert_eq!(gone_after(&env), second * 60);
    assert_eq!(acknowledged_within(&env), second);
    env.acknowledge_within = second / 2;
    assert_eq!(acknowledged_within(&env), second / 2);
    assert_eq!(asks_again_for(second * 3), RETRY_LIMIT);
    assert_eq!(asks_again_for(second), second / 3);
}

/// Everything would go in plain text.
#[tokio::test]
async fn certificates_without_tls_are_refused() {
    let (background, timers) = simulated();
    let mut env = Env::of_limits(timers, background, LIMIT);
    let files = TlsFiles {
        ca: Some("ca.pem".into()),
        ..TlsFiles::default()
    };
    for (url, files, is_refused) in [
        ("redis://h", &files, true),
        ("redis://h", &TlsFiles::default(), false),
        ("rediss://h", &files, false),
        ("redis+sentinel://h/s", &files, true),
        ("rediss+sentinel://h/s", &files, false),
        ("redis+cluster://h", &files, true),
        ("rediss+cluster://h", &files, false),
        ("redis+unix:///s", &files, true),
    ] {
        env.tls = files.clone();
        let refusal = target(url, &env).err().map(|error| error.kind());
        let expected = is_refused.then_some(ErrorKind::InvalidOptions);
        assert_eq!(refusal, expected, "{url}");
    }
    let servers = Topology::one("h");
    env.tls = files;
    assert!(target_of(&servers, &env).is_err());
    assert!(target_of(&servers.tls(true), &env).is_ok());
}

/// The form of messages in a cluster of one node, which answers so when it is asked for sharded channels, and how often it was.
async fn asked(replies: &[&str], mode: PubSubMode) -> (Result<PublishModes, ErrorKind>, usize) {
    let server = ScriptedServer::start().await;
    server.answers("PUBSUB SHARDNUMSUB", replies);
    let (background, timers) = simulated();
    let (seeds, entry) = (vec![server.address()], EndpointLogin::default());
    let cluster = Cluster::new(seeds, entry, background, timers, LIMIT, LIMIT);
    cluster.give_all_slots(&server.address());
    let modes = in_time(ways(mode, &Arc::new(cluster))).await;
    let count = server.heard("PUBSUB SHARDNUMSUB").len();
    (modes.map_err(|error| error.kind()), count)
}

#[tokio::test]
async fn messages_have_the_form_that_was_chosen_and_that_the_servers_know() {
    let (new, old) = ("*0\r\n", "-ERR Unknown subcommand 'SHARDNUMSUB'\r\n");
    for (reply, mode, expected, count) in [
        (new, PubSubMode::Auto, PublishModes::Auto, 1),
        (old, PubSubMode::Auto, PublishModes::Plain, 1),
        (new, PubSubMode::Both, PublishModes::Both, 1),
        (old, PubSubMode::Both, PublishModes::Plain, 1),
        // Nobody is asked.
        (new, PubSubMode::Off, PublishModes::Plain, 0),
        (old, PubSubMode::On, PublishModes::Sharded, 0),
    ] {
        let told = asked(&[reply], mode).await;
        assert_eq!(told, (Ok(expected), count), "{reply} {mode:?}");
    }
}

/// With a wrong guess some waiters would not be woken.
#[tokio::test]
async fn only_a_refusal_of_the_question_is_an_answer() {
    let new = "*0\r\n";
    let loading = "-LOADING loading\r\n";
    let refused = "-NOPERM no permissions\r\n";
    let stranger = "-NOAUTH Authentication required.\r\n";
    let sent_on = "-MOVED 1 127.0.0.1:1\r\n";
    for (replies, expected, count) in [
        (&[refused][..], Ok(PublishModes::Plain), 1),
        (&[loading, loading, new][..], Ok(PublishModes::Auto), 3),
        (&[stranger, new][..], Err(ErrorKind::Refused), 1),
        (&[sent_on, new][..], Err(ErrorKind::InvalidOptions), 1),
    ] {
        loop {
            let begun = Instant::now();
            let told = asked(replies, PubSubMode::Auto).await;
            if told == (expected, count) {
                break;
            }
            // The client asks for half a second only, and the machine may stand still for that long.
            assert!(begun.elapsed() >= RETRY_LIMIT, "{replies:?}: {told:?}");
        }
    }
    let (never, count) = asked(&[loading], PubSubMode::Auto).await;
    assert_eq!(never, Err(ErrorKind::Unavailable));
    // For half a second, after pauses that grow.
    assert!(count <= 12, "{count}");
}
