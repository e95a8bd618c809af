//! Promises that the SQL keeps whatever its server does.

use super::*;
use crate::snapshot::Holder;
use crate::store::fair_waiters::FairPosition;
use crate::store::postgres::literal::literal;
use crate::store::postgres::permit_sql::PermitSql;
use crate::store::side_order::Follows;
use crate::store::{OwnerId, PermitChange};

/// The statements of one store.
pub(super) struct Texts {
    pub(super) sql: Sql,
    pub(super) queue: Arc<QueueSql>,
    pub(super) permits: PermitSql,
}

/// The patience of the queues.
const PATIENCE: Duration = Duration::from_secs(5);

impl Texts {
    pub(super) fn new() -> Self {
        let sql = sql();
        let queue = Arc::new(QueueSql::new(&sql.table, &sql.channel, PATIENCE));
        let permits = PermitSql::new(Arc::clone(&queue));
        Self {
            sql,
            queue,
            permits,
        }
    }

    /// The attempts of a ticket with a place in a queue.
    fn attempts(&self, ticket: &Ticket, place: FairPosition, serves: bool) -> Vec<String> {
        let other = OwnerId::of_text("d:9");
        let mut attempts = vec![self.queue.attempt_fair(ticket, LEASE, place, serves)];
        for follows in [
            Follows::Nobody,
            Follows::Upgradeable(&other),
            Follows::Writer(&other),
        ] {
            let text = self
                .queue
                .attempt_side(ticket, LEASE, place, follows, serves);
            attempts.push(text);
        }
        attempts
    }

    /// The requests that free what a ticket or anybody has.
    fn ends(&self, ticket: &Ticket, serves: bool) -> Vec<String> {
        let owners = [ticket.owner.text().to_owned()];
        let mut seen = Snapshot::free("stock");
        seen.holders = vec![Holder::new(ticket.owner.text(), 1)];
        let mut ends = vec![
            self.queue.force(&ticket.name, None, serves),
            self.queue.force(&ticket.name, Some(&seen), serves),
            self.permits.force_permits(&ticket.name, None, serves),
            self.permits
                .force_permits(&ticket.name, Some(&owners[..]), serves),
        ];
        for withdraws in [true, false] {
            ends.push(self.queue.end(ticket, withdraws, serves));
            ends.push(self.permits.end_permits(ticket, withdraws, serves));
        }
        ends
    }

    /// The requests that wait for the row of a name for a while only.
    fn patient(&self, ticket: &Ticket) -> Vec<String> {
        let mut patient = Vec::new();
        for place in [FairPosition::None, FairPosition::First, FairPosition::Last] {
            for serves in [true, false] {
                patient.extend(self.attempts(ticket, place, serves));
            }
            patient.push(self.permits.attempt_permits(ticket, 3, LEASE, place));
        }
        for beat in [true, false] {
            let client = ticket.owner.client();
            patient.push(self.queue.look(&ticket.name, client, beat, true));
            patient.push(self.queue.look(&ticket.name, client, beat, false));
            patient.push(self.permits.look_at_permits(&ticket.name, client, beat));
        }
        patient
    }

    /// All requests of one name that begin with a lock of its row.
    fn of_one_name(&self, ticket: &Ticket) -> Vec<String> {
        let mut all = self.patient(ticket);
        for serves in [true, false] {
            all.extend(self.ends(ticket, serves));
        }
        for change in [
            PermitChange::SetIfNew(3),
            PermitChange::Set(3),
            PermitChange::Add(3),
        ] {
            all.push(self.permits.change_permits(&ticket.name, change));
        }
        all
    }

    /// The renewals, and the looks at what is held.
    pub(super) fn renewals(&self, ticket: &Ticket, patience: Option<Duration>) -> Vec<String> {
        let renewal = Renewal {
            ticket: ticket.clone(),
            lease: LEASE,
            wish: ReplicaAck::Off,
        };
        let batch = [(7, &renewal)];
        vec![
            self.queue.renew_sides(&batch, patience),
            self.permits.renew_permits(&batch, patience),
            self.queue.held_sides(&batch),
            self.permits.held_permits(&batch),
        ]
    }
}

/// A ticket whose name and owner would end a text in quotes.
pub(super) fn sharp() -> Ticket {
    Ticket {
        kind: LockKind::Fair,
        name: Name::new("it's; --").unwrap(),
        owner: OwnerId::of_text("c'--:7"),
    }
}

#[test]
fn no_name_and_no_owner_stands_in_a_text_as_it_is() {
    let (texts, ticket) = (Texts::new(), sharp());
    let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
    let mut all = texts.of_one_name(&ticket);
    all.extend(texts.renewals(&ticket, None));
    for text in all {
        assert!(!text.contains(name) && !text.contains(owner), "{text}");
        assert!(text.contains(&literal(name)), "{text}");
    }
}

/// Otherwise two of them could see the lock free.
#[test]
fn each_request_of_a_name_locks_its_row_before_it_looks_at_anything() {
    let (texts, ticket) = (Texts::new(), sharp());
    let lock = format!(
        "SELECT 1 FROM tidelock_locks WHERE name = {} FOR NO KEY UPDATE; ",
        literal(ticket.name.as_str())
    );
    for text in texts.of_one_name(&ticket) {
        let (before, _) = text.split_once(&lock).expect(&text);
        for table in [
            "_waiters",
            "_sides",
            "_permits",
            "_semaphores",
            "_withdrawn",
        ] {
            assert!(!before.contains(table), "{before}");
        }
        assert!(before.contains("INSERT INTO tidelock_locks (name, expires, token)"));
    }
}

/// All that is sent behind it on the connection would wait too.
#[test]
fn no_attempt_and_no_look_waits_for_a_row_without_end() {
    let (texts, ticket) = (Texts::new(), sharp());
    let patience = "SELECT set_config('lock_timeout', '5000ms', true); ";
    for text in texts.patient(&ticket) {
        assert!(text.starts_with(patience), "{text}");
    }
    for text in texts.of_one_name(&ticket) {
        // Before the server commits a notification, it waits for other transactions.
        let last = text.rsplit_once("'lock_timeout', ");
        assert!(
            last.is_none_or(|(_, rest)| rest.starts_with("'0'")),
            "{text}"
        );
    }
    let (attempt, wait) = (texts.sql.attempt.text, "'lock_timeout', '40ms'");
    let insert = attempt.find("INSERT INTO");
    assert!(attempt.find(wait).is_some_and(|at| Some(at) < insert));
}

/// A grant waits for a fence in a user's transaction.
#[test]
fn only_a_request_that_serves_grants_and_it_gives_up_soon() {
    let (texts, ticket) = (Texts::new(), sharp());
    let grants = "'lock_timeout', '40ms'";
    let draws = "nextval('tidelock_locks_tokens')";
    for serves in [true, false] {
        let mut requests = vec![
            texts.queue.look(&ticket.name, "c", true, serves),
            texts.queue.force(&ticket.name, None, serves),
            texts.queue.end(&ticket, false, serves),
            texts.queue.end(&ticket, true, serves),
        ];
        // A reader that follows its writer enters without the others.
        let attempts = texts.attempts(&ticket, FairPosition::Last, serves);
        requests.extend(attempts.into_iter().take(3));
        for text in requests {
            assert_eq!(text.contains(draws), serves, "{text}");
            let soon = |at| Some(at) < text.find(draws);
            assert!(!serves || text.find(grants).is_some_and(soon), "{text}");
            // A token of a row that came without the sequence is smaller.
            let (all, larger) = (text.matches(draws), text.matches("greatest(nextval("));
            assert_eq!(all.count(), larger.count(), "{text}");
        }
        for text in [
            texts.permits.end_permits(&ticket, true, serves),
            texts.permits.force_permits(&ticket.name, None, serves),
        ] {
            assert_eq!(text.contains("SET held = true"), serves, "{text}");
        }
    }
    let attempt = &texts.sql.attempt.text;
    assert!(attempt.contains("greatest(nextval('tidelock_locks_tokens'), l.token + 1)"));
}

#[test]
fn each_attempt_looks_whether_its_owner_was_withdrawn() {
    let (texts, ticket) = (Texts::new(), sharp());
    let owner = literal(ticket.owner.text());
    let marked = format!("SELECT 1 FROM tidelock_locks_withdrawn AS w WHERE w.owner = {owner}");
    let noted = format!("{owner} = ANY (l.withdrawn)");
    for place in [FairPosition::None, FairPosition::First, FairPosition::Last] {
        let mut attempts = texts.attempts(&ticket, place, true);
        attempts.push(texts.permits.attempt_permits(&ticket, 3, LEASE, place));
        for text in attempts {
            // Where it takes its place, and in the answer.
            assert!(text.matches(&marked).count() >= 2, "{text}");
            assert!(text.matches(&noted).count() >= 2, "{text}");
        }
    }
}

#[test]
fn only_a_withdrawal_leaves_a_mark_and_gives_up_the_place() {
    let texts = Texts::new();
    for kind in [LockKind::Fair, LockKind::Write, LockKind::Mutex] {
        let ticket = Ticket { kind, ..sharp() };
        let owner = literal(ticket.owner.text());
        let mark = format!("INSERT INTO tidelock_locks_withdrawn (owner, at) VALUES ({owner}, ");
        let place = format!("DELETE FROM tidelock_locks_waiters WHERE owner = {owner}; ");
        let note = format!("UPDATE tidelock_locks SET withdrawn = (ARRAY[{owner}] ");
        for withdraws in [true, false] {
            let text = texts.queue.end(&ticket, withdraws, true);
            assert_eq!(text.contains(&mark), withdraws, "{text}");
            assert_eq!(text.contains(&place), withdraws, "{text}");
            // An attempt at a lock without a queue may have begun before.
            let notes = withdraws && kind == LockKind::Mutex;
            assert_eq!(text.contains(&note), notes, "{text}");
            let text = texts.permits.end_permits(&ticket, withdraws, true);
            assert_eq!(text.contains(&mark), withdraws, "{text}");
        }
    }
    let withdraw = texts.sql.withdraw;
    assert!(withdraw.contains("INSERT INTO tidelock_locks_withdrawn (owner, at) VALUES ($2, "));
    assert!(withdraw.contains("withdrawn = (ARRAY[$2] || l.withdrawn)"));
}

#[test]
fn a_release_frees_what_its_owner_holds_and_nothing_else() {
    let texts = Texts::new();
    for (kind, table, condition) in [
        (
            LockKind::Fair,
            "UPDATE tidelock_locks SET owner = NULL",
            "owner = ",
        ),
        (
            LockKind::Mutex,
            "UPDATE tidelock_locks SET owner = NULL",
            "owner = ",
        ),
        (
            LockKind::Read,
            "DELETE FROM tidelock_locks_sides",
            "WHERE owner = ",
        ),
    ] {
        let ticket = Ticket { kind, ..sharp() };
        let text = texts.queue.end(&ticket, false, false);
        let (_, freed) = text.split_once(table).expect(&text);
        let owner = format!("{condition}{}", literal(ticket.owner.text()));
        let at = freed.find(&owner).expect(&text);
        assert!(at < freed.find("RETURNING").expect(&text), "{text}");
        assert!(text.contains("expires > clock_timestamp()"), "{text}");
        assert!(text.contains("pg_notify("), "{text}");
    }
    let ticket = sharp();
    let text = texts.permits.end_permits(&ticket, false, false);
    let owner = literal(ticket.owner.text());
    let mine = format!("DELETE FROM tidelock_locks_permits WHERE owner = {owner} RETURNING");
    assert!(text.contains(&mine), "{text}");
    let (release, unless) = (texts.sql.release.text, texts.sql.release_unless_waited.text);
    for text in [&release, &unless] {
        assert!(text.contains("WHERE name = $1 AND owner = $2 AND expires > clock_timestamp()"));
    }
    for table in ["_waiters WHERE name = $1", "_sides WHERE name = $1"] {
        let looks = format!("NOT EXISTS (SELECT 1 FROM tidelock_locks{table}");
        assert!(unless.contains(&looks) && !release.contains(&looks));
    }
}
