//! Each reply of the server to the requests of an acquisition, and what it means for the lock.

mod endings;

use super::*;
use crate::store::memcached::tests::{HANG_UP, LEASE, ScriptedServer, held_by, item, ticket};
use crate::store::{ReplicaAck, Store};

/// The reply of a key that has no item.
const NO_ITEM: &str = "EN\r\n";

/// The reply to a command that was done.
const DONE: &str = "HD\r\n";

/// The reply to a command whose item is another one now.
const CHANGED: &str = "EX\r\n";

const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object\r\n";

/// A store and its server, and one acquisition that asks it.
struct Scene {
    server: ScriptedServer,
    store: Store,
    own: Ticket,
    other: Ticket,
}

impl Scene {
    /// The item of the lock `stock` is as these replies say.
    async fn new(items: &[Holds]) -> Self {
        let server = ScriptedServer::start().await;
        let store = server.store().await;
        let (own, other) = (ticket(), ticket());
        let scene = Self {
            server,
            store,
            own,
            other,
        };
        let replies: Vec<String> = items.iter().map(|holds| scene.reply(*holds)).collect();
        let replies: Vec<&str> = replies.iter().map(String::as_str).collect();
        scene.server.answers("mg stock", &replies);
        scene
    }

    fn reply(&self, holds: Holds) -> String {
        match holds {
            Holds::Nobody => NO_ITEM.to_owned(),
            Holds::Own(left) => held_by(&self.own, left),
            Holds::Other(left) => held_by(&self.other, left),
            Holds::OwnOther => item(&format!("{}\nshop", self.own.owner), 12),
            Holds::Foreign => item("hello", 20),
            Holds::Cut => format!("{}{HANG_UP}", held_by(&self.own, 12)),
        }
    }

    /// The owner of this ticket has been withdrawn.
    fn withdraws(&self, ticket: &Ticket) {
        let tombstone = format!("mg {}", keys::tombstone(ticket.owner.text()));
        self.server.answers(&tombstone, &[&item("1", 90)]);
    }

    fn ask(&self, lease: Duration) -> AttemptRequest {
        AttemptRequest::once(self.own.clone(), lease, ReplicaAck::Off)
    }

    async fn attempts(&self) -> Result<Attempt> {
        let ask = self.ask(LEASE);
        self.store.front.attempt(&ask).await.outcome
    }

    async fn renews(&self) -> Renewed {
        let renewal = Renewal {
            ticket: self.own.clone(),
            lease: LEASE,
            wish: ReplicaAck::Off,
        };
        let renewed = self.store.back.renew(&[renewal]).await;
        renewed.unwrap().pop().unwrap()
    }

    /// How often the item of the lock was asked to be stored, and to be deleted.
    fn changes(&self) -> (usize, usize) {
        let count = |command| self.server.heard(command).len();
        (count("ms stock"), count("md stock"))
    }
}

/// The owner of the item that the server shows. A number: the seconds that are left.
#[derive(Debug, Clone, Copy)]
enum Holds {
    Nobody,
    Own(u64),
    Other(u64),
    /// Of the same owner, for another name.
    OwnOther,
    /// Not written by tidelock.
    Foreign,
    /// The own item, and then the connection ends.
    Cut,
}

use Holds::{Cut, Foreign, Nobody, Other, Own, OwnOther};

/// The kind of a failure, or whether it is a grant.
fn granted(outcome: Result<Attempt>) -> Result<bool, ErrorKind> {
    match outcome {
        Ok(Attempt::Acquired(_)) => Ok(true),
        Ok(Attempt::Held(_)) => Ok(false),
        Err(error) => Err(error.kind()),
    }
}

/// A withdrawal before the `add` is seen by the read behind it, and a later one finds the item.
#[tokio::test]
async fn an_attempt_looks_for_its_withdrawal_only_after_its_add() {
    let scene = Scene::new(&[Nobody]).await;
    assert_eq!(granted(scene.attempts().await), Ok(true));
    let tombstone = format!("mg {}", keys::tombstone(scene.own.owner.text()));
    let expected = ["mg stock", "ms stock", &*tombstone];
    assert_eq!(scene.server.commands(), expected);
    let added = scene.server.heard("ms stock");
    let text = format!("{}\nstock", scene.own.owner);
    assert_eq!(
        added,
        [format!("ms stock {} ME T32 c {text}", text.len())],
        "the lease, and two seconds that the server's clock may be behind"
    );
}

#[tokio::test]
async fn an_add_is_a_grant_only_if_both_its_replies_say_so() {
    for (added, withdrawn, outcome) in [
        ("HD c5\r\n", NO_ITEM, Ok(true)),
        (NO_MEMORY, NO_ITEM, Err(ErrorKind::Unavailable)),
        ("ERROR\r\n", NO_ITEM, Err(ErrorKind::Unsupported)),
        // It may hold the lock.
        (DONE, NO_ITEM, Err(ErrorKind::OutcomeUnknown)),
        (CHANGED, NO_ITEM, Err(ErrorKind::OutcomeUnknown)),
        ("HD c5\r\n", NO_MEMORY, Err(ErrorKind::OutcomeUnknown)),
        ("HD c5\r\n", HANG_UP, Err(ErrorKind::OutcomeUnknown)),
        (HANG_UP, NO_ITEM, Err(ErrorKind::OutcomeUnknown)),
    ] {
        let scene = Scene::new(&[Nobody]).await;
        scene.server.answers("ms stock", &[added]);
        scene.server.answers("mg tidelock:withdrawn:", &[withdrawn]);
        let decided = granted(scene.attempts().await);
        assert_eq!(decided, outcome, "{added}, {withdrawn}");
    }
}

#[tokio::test]
async fn an_attempt_that_was_withdrawn_takes_its_own_item_back() {
    for (deleted, kind) in [
        (DONE, ErrorKind::Cancelled),
        (CHANGED, ErrorKind::Cancelled),
        // The item may still be there.
        (HANG_UP, ErrorKind::OutcomeUnknown),
    ] {
        let scene = Scene::new(&[Nobody]).await;
        scene.withdraws(&scene.own);
        scene.server.answers("ms stock", &["HD c5\r\n"]);
        scene.server.answers("md stock", &[deleted]);
        assert_eq!(granted(scene.attempts().await), Err(kind), "{deleted}");
        assert_eq!(scene.server.heard("md"), ["md stock C5"], "and no other");
    }
}

#[tokio::test]
async fn a_withdrawn_attempt_whose_connection_ends_deletes_nothing_on_the_next_one() {
    let scene = Scene::new(&[Nobody]).await;
    let tombstone = format!("{}{HANG_UP}", item("1", 90));
    scene
        .server
        .answers("mg tidelock:withdrawn:", &[&tombstone]);
    let outcome = granted(scene.attempts().await);
    assert_eq!(outcome, Err(ErrorKind::OutcomeUnknown));
    assert_eq!(scene.changes(), (1, 0));
}

/// The reply to an earlier request of this attempt was lost.
#[tokio::test]
async fn a_repeated_attempt_finds_its_own_item_and_never_shortens_it() {
    for (left, stored) in [(12, 1), (31, 1), (32, 0), (90, 0)] {
        let scene = Scene::new(&[Own(left)]).await;
        assert_eq!(granted(scene.attempts().await), Ok(true), "{left}");
        assert_eq!(scene.changes(), (stored, 0), "{left}");
    }
    // An operator has written an item that does not expire.
    let scene = Scene::new(&[]).await;
    let text = format!("{}\nstock", scene.own.owner);
    let endless = format!("VA {} c7 t-1\r\n{text}\r\n", text.len());
    scene.server.answers("mg stock", &[&endless]);
    assert_eq!(granted(scene.attempts().await), Ok(true));
    assert_eq!(scene.changes(), (0, 0));
}

#[tokio::test]
async fn a_repeated_attempt_extends_only_the_item_that_it_has_read() {
    let scene = Scene::new(&[Own(12), Other(20)]).await;
    scene.server.answers("ms stock", &[CHANGED]);
    assert_eq!(granted(scene.attempts().await), Ok(false));
    let stored = scene.server.heard("ms stock");
    assert!(stored[0].contains(" C7 T32 c "), "{stored:?}");
}

#[tokio::test]
async fn a_repeated_attempt_that_was_withdrawn_is_no_grant() {
    let scene = Scene::new(&[Own(90)]).await;
    scene.withdraws(&scene.own);
    let outcome = granted(scene.attempts().await);
    assert_eq!(outcome, Err(ErrorKind::Cancelled));
    assert_eq!(scene.server.heard("md"), ["md stock C7"]);
    assert_eq!(scene.changes(), (0, 1));
}

#[tokio::test]
async fn the_item_of_a_withdrawn_owner_keeps_nobody_out() {
    let scene = Scene::new(&[Other(20), Nobody]).await;
    scene.withdraws(&scene.other);
    assert_eq!(granted(scene.attempts().await), Ok(true));
    assert_eq!(scene.server.heard("md"), ["md stock C7"]);
}

#[tokio::test]
async fn an_item_of_others_keeps_its_lock_and_tells_when_to_look_again() {
    for (holds, recheck) in [
        (Other(20), Some(18)),
        (Other(3), Some(1)),
        (Other(2), Some(1)),
        (Foreign, Some(18)),
    ] {
        let scene = Scene::new(&[holds]).await;
        let Ok(Attempt::Held(wait)) = scene.attempts().await else {
            panic!("{holds:?}");
        };
        assert_eq!(wait.recheck, recheck.map(Duration::from_secs), "{holds:?}");
        assert!(wait.wake.is_none());
        assert_eq!(scene.changes(), (0, 0), "{holds:?}");
    }
    // An item that does not expire.
    let Attempt::Held(wait) = refused(None) else {
        panic!("it is no grant");
    };
    assert_eq!(wait.recheck, None);
}

#[tokio::test]
async fn an_attempt_that_is_overtaken_looks_again_and_ends_after_some_rounds() {
    let scene = Scene::new(&[Nobody, Other(20)]).await;
    scene.server.answers("ms stock", &["NS\r\n"]);
    assert_eq!(granted(scene.attempts().await), Ok(false));
    assert_eq!(scene.changes(), (1, 0));
    let scene = Scene::new(&[Nobody]).await;
    scene.server.answers("ms stock", &["NS\r\n"]);
    assert_eq!(granted(scene.attempts().await), Ok(false));
    assert_eq!(scene.changes(), (MAX_CAS_ROUNDS, 0));
}

/// A number of seconds that is too large counts as a date, and one of 1970 would let the item expire at once.
#[tokio::test]
async fn a_lease_of_more_than_a_month_ends_at_a_date_of_the_servers_clock() {
    for (days, ttl) in [(29, 2_505_602), (31, 1_802_678_402)] {
        let scene = Scene::new(&[Nobody]).await;
        let time = "STAT time 1800000000\r\nEND\r\n";
        scene.server.answers("stats", &[time]);
        let ask = scene.ask(Duration::from_secs(days * 24 * 3600));
        let outcome = scene.store.front.attempt(&ask).await.outcome;
        assert_eq!(granted(outcome), Ok(true));
        let stored = scene.server.heard("ms stock");
        assert!(stored[0].contains(&format!(" T{ttl} ")), "{stored:?}");
    }
}

#[tokio::test]
async fn a_lease_of_more_than_a_month_needs_a_server_that_tells_its_time() {
    for stats in [
        "END\r\n",
        "STAT time soon\r\nEND\r\n",
        "SERVER_ERROR no\r\n",
    ] {
        let scene = Scene::new(&[Nobody]).await;
        scene.server.answers("stats", &[stats]);
        let ask = scene.ask(Duration::from_secs(31 * 24 * 3600));
        let outcome = scene.store.front.attempt(&ask).await.outcome;
        assert_eq!(granted(outcome), Err(ErrorKind::Unavailable), "{stats}");
        assert_eq!(scene.changes(), (0, 0), "{stats}");
    }
}

#[tokio::test]
async fn a_renewal_is_kept_only_by_an_item_of_its_owner_that_lasts_for_the_lease() {
    for (items, stored, shown, changes) in [
        (&[Own(12)][..], DONE, "Kept", 1),
        (&[Own(31)], DONE, "Kept", 1),
        (&[Own(32)], DONE, "Kept", 0),
        (&[Own(12), Own(12)], CHANGED, "Failed(Unavailable", 5),
        (&[Own(12), Own(90)], CHANGED, "Kept", 1),
        (&[Own(12), Other(12)], CHANGED, "Gone", 1),
        (&[Own(12), Nobody], "NF\r\n", "Gone", 1),
        (&[Nobody], DONE, "Gone", 0),
        (&[Other(12)], DONE, "Gone", 0),
        (&[OwnOther], DONE, "Gone", 0),
        (&[Foreign], DONE, "Gone", 0),
        // Without free memory the server may have deleted the item that it could not store.
        (&[Own(12), Nobody], NO_MEMORY, "Gone", 1),
        (&[Own(12)], NO_MEMORY, "Failed(Unavailable", 5),
        (&[Own(12)], HANG_UP, "Failed(OutcomeUnknown", 1),
        (&[Own(12)], "END\r\n", "Failed(OutcomeUnknown", 1),
    ] {
        let scene = Scene::new(items).await;
        scene.server.answers("ms stock", &[stored]);
        let renewed = format!("{:?}", scene.renews().await);
        assert!(
            renewed.starts_with(shown),
            "{renewed}: {items:?}, {stored:?}"
        );
        assert_eq!(scene.changes(), (changes, 0), "{items:?}, {stored:?}");
    }
}

#[tokio::test]
async fn each_renewal_of_a_batch_has_a_result_of_its_own() {
    let scene = Scene::new(&[Own(90)]).await;
    let renewals = ["stock", "shop", "stock"].map(|name| Renewal {
        ticket: Ticket {
            name: Name::new(name).unwrap(),
            ..scene.own.clone()
        },
        lease: LEASE,
        wish: ReplicaAck::Off,
    });
    let renewed = scene.store.back.renew(&renewals).await.unwrap();
    assert!(matches!(
        renewed[..],
        [Renewed::Kept, Renewed::Gone, Renewed::Kept]
    ));
}
