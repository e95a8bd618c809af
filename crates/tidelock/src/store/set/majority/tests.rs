//! The rounds of a set that needs more than half of its servers.

use super::*;
use crate::store::set::tests::scripted::{
    LIMIT, Scripted, majority_of, patient, quorum, refusal, ticket,
};

const LONG: Duration = Duration::from_secs(9);

fn later() -> Wait {
    Wait {
        recheck: Some(LONG),
        ..Wait::default()
    }
}

fn quorum_of(set: &Shared) -> &Quorum {
    match &set.rule {
        crate::store::set::shared::Rule::Majority(quorum) => quorum,
        crate::store::set::shared::Rule::All => panic!("it needs all"),
    }
}

async fn asks(set: &Shared, ask: &AttemptRequest) -> Result<Attempt> {
    attempt(set, quorum_of(set), ask).await
}

fn try_once() -> AttemptRequest {
    AttemptRequest {
        patience: Duration::ZERO,
        ..patient(&ticket())
    }
}

fn servers(count: usize) -> Vec<Scripted> {
    (0..count).map(|_| Scripted::default()).collect()
}

fn of(servers: &[Scripted]) -> Arc<Shared> {
    majority_of(quorum(), &servers.iter().collect::<Vec<_>>())
}

fn is_granted(answer: &Result<Attempt>) -> bool {
    matches!(answer, Ok(Attempt::Acquired(_)))
}

/// The server of the holder may die before it sends a message, so the caller asks again after a tenth of a lease.
#[tokio::test(start_paused = true)]
async fn a_caller_that_has_no_vote_asks_again_within_a_tenth_of_a_lease() {
    let servers: Vec<Scripted> = servers(3)
        .into_iter()
        .map(|server| server.refuses(later()))
        .collect();
    let wait = refusal(asks(&of(&servers), &patient(&ticket())).await);
    assert_eq!(wait.recheck, Some(LIMIT / 10));
    for server in servers {
        assert_eq!((server.asked().len(), server.run_asked()), (1, 0));
    }
}

/// One vote is for the caller and two are against it, in each round.
fn split() -> Vec<Scripted> {
    let mut servers = servers(3);
    for _ in 0..1000 {
        servers[1] = servers[1].clone().refuses(later());
        servers[2] = servers[2].clone().refuses(later());
    }
    servers
}

#[tokio::test(start_paused = true)]
async fn a_try_makes_three_rounds_or_takes_half_of_the_response_timeout() {
    let servers = split();
    let wait = refusal(asks(&of(&servers), &try_once()).await);
    assert_eq!(servers[1].asked().len(), 3);
    assert_eq!(servers[0].ended(), [false; 3]);
    assert!(wait.recheck.is_some_and(|pause| pause <= LIMIT / 4));

    // The second round ends after half of the response timeout.
    let servers = split();
    let slow = servers[2].clone().taking(LIMIT * 3 / 10);
    let set = majority_of(
        Quorum::new(LIMIT, false, LIMIT),
        &[&servers[0], &servers[1], &slow],
    );
    refusal(asks(&set, &try_once()).await);
    assert_eq!(servers[1].asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_makes_rounds_for_an_eighth_of_the_response_timeout() {
    let servers = split();
    let set = of(&servers);
    let begun = set.timers.now();
    let wait = refusal(asks(&set, &patient(&ticket())).await);
    assert!(servers[1].asked().len() > 2);
    assert!(set.timers.now().since(begun) <= LIMIT / 8);
    assert!(wait.recheck.is_some_and(|pause| pause <= LIMIT / 4));
}

/// The caller has a wake of the second server. Another one is not armed, and only that server gets the number back.
#[tokio::test(start_paused = true)]
async fn the_number_of_a_wake_goes_to_the_server_that_armed_it() {
    let servers: Vec<Scripted> = servers(3)
        .into_iter()
        .map(|server| server.refuses(later()))
        .collect();
    let ask = AttemptRequest {
        armed_by: Some((5 + 1) * 3 + 1),
        ..patient(&ticket())
    };
    refusal(asks(&of(&servers), &ask).await);
    for (server, armed) in servers.iter().zip([None, Some(5), None]) {
        let asked = server.asked();
        assert_eq!(asked[0].armed_by, armed);
        assert!(asked[0].patience.is_zero());
        // The request itself needs the rest.
        assert_eq!(asked[0].arms_within, Some(quorum().node_timeout / 2));
    }
}

/// Two of five refuse. They are no majority against the caller, so the three that fail are the reason.
#[tokio::test(start_paused = true)]
async fn servers_that_fail_are_the_reason_if_those_that_refuse_are_too_few() {
    for (kind, told) in [
        (ErrorKind::Unavailable, ErrorKind::Unavailable),
        // A third server would be needed, and no retry helps one of them.
        (ErrorKind::Refused, ErrorKind::Refused),
    ] {
        let mut servers = servers(5);
        for server in &mut servers[..2] {
            *server = server.clone().refuses(later());
        }
        for server in &mut servers[2..] {
            *server = server.clone().fails(kind);
        }
        let error = asks(&of(&servers), &try_once()).await.unwrap_err();
        assert_eq!(error.kind(), told, "{error}");
    }
    // Two that no retry helps leave a majority of three, once the third one answers.
    let mut servers = servers(5);
    for (server, kind) in servers.iter_mut().zip([
        ErrorKind::Refused,
        ErrorKind::Refused,
        ErrorKind::Unavailable,
    ]) {
        *server = server.clone().fails(kind);
    }
    let error = asks(&of(&servers), &try_once()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

fn run(id: &str, up: Duration) -> Incarnation {
    let id = id.into();
    Incarnation { id, up }
}

fn guarded() -> Quorum {
    Quorum::new(Duration::from_secs(1), true, LIMIT)
}

/// A server votes as soon as it has been up for the longest lease, and not before.
#[tokio::test(start_paused = true)]
async fn a_server_votes_from_the_longest_lease_on() {
    for (up, votes) in [(LIMIT, true), (LIMIT.mul_f64(0.999), false)] {
        let servers =
            ["a", "b", "c"].map(|id| Scripted::default().tells_run(Ok(Some(run(id, up)))));
        let set = majority_of(guarded(), &servers.each_ref());
        let answer = asks(&set, &try_once()).await;
        assert_eq!(is_granted(&answer), votes, "{answer:?}");
    }
    // Too few old ones: the young ones are named, although another server has failed.
    let servers = [
        Scripted::default().tells_run(Ok(Some(run("a", Duration::ZERO)))),
        Scripted::default().tells_run(Ok(Some(run("b", LIMIT)))),
        Scripted::default().fails(ErrorKind::Unavailable),
    ];
    let set = majority_of(guarded(), &servers.each_ref());
    let error = asks(&set, &try_once()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("server 0 may have been up for only"),
        "{text}"
    );
}

/// A server that does not tell its run votes. One that has not answered the question may have restarted.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_to_tell_its_run_votes() {
    for (kind, votes) in [(ErrorKind::Refused, true), (ErrorKind::Unavailable, false)] {
        for quorum in [quorum(), guarded()] {
            let answer = || Err(Error::new(kind));
            let servers = [(); 3].map(|()| Scripted::default().tells_run(answer()));
            let set = majority_of(quorum, &servers.each_ref());
            let answer = asks(&set, &try_once()).await;
            assert_eq!(is_granted(&answer), votes, "{answer:?}");
        }
    }
}

/// Otherwise the hold would stand at no more servers than it needs for a third of a lease.
#[tokio::test(start_paused = true)]
async fn a_grant_that_some_servers_refused_is_renewed_soon() {
    for (refuses, fails, soon) in [
        (false, false, false),
        (true, false, true),
        (false, true, false),
    ] {
        let mut servers = servers(3);
        if refuses {
            servers[1] = servers[1].clone().refuses(later());
        }
        if fails {
            servers[2] = servers[2].clone().fails(ErrorKind::Unavailable);
        }
        match asks(&of(&servers), &try_once()).await {
            Ok(Attempt::Acquired(grant)) => assert_eq!(grant.renew_soon, soon),
            other => panic!("{other:?}"),
        }
    }
}
