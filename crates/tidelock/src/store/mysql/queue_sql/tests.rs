use std::time::Duration;

use super::*;
use crate::snapshot::{Holder, Snapshot};
use crate::store::LockKind;
use crate::store::mysql::errors::MysqlError;
use crate::store::mysql::sql::owner;
use crate::store::mysql::tests::{renewal, ticket};
use crate::store::mysql::{fair_sql, side_sql};
use crate::store::side_order::Follows;
use crate::types::FencingToken;

const LEASE: Duration = Duration::from_secs(30);

/// An attempt at a fair lock, and one at a side.
fn attempts(fair: &Ticket, side: &Ticket, position: FairPosition) -> [String; 2] {
    [
        fair_sql::attempt(fair, LEASE, position),
        side_sql::attempt(side, LEASE, position, Follows::Nobody),
    ]
}

/// The only statement that begins so.
fn part<'a>(text: &'a str, words: &str) -> &'a str {
    let mut found = text.split("; ").filter(|part| part.starts_with(words));
    match (found.next(), found.next()) {
        (Some(part), None) => part,
        _ => panic!("not one {words}: {text}"),
    }
}

/// Otherwise a user who may not create a table that is missing could not end what it has in the others.
#[test]
fn an_end_that_grants_nothing_needs_no_table_of_a_grant() {
    let (side, fair) = (ticket(LockKind::Read), ticket(LockKind::Fair));
    for (text, changed) in [
        (side_sql::end(&side, false, false), SIDES),
        (fair_sql::withdraw(&fair, false, false), WAITERS),
    ] {
        for table in ["tidelock_counter", WAITERS, SIDES] {
            assert_eq!(text.contains(table), table == changed, "{table}: {text}");
        }
    }
}

#[test]
fn a_queue_without_one_of_its_tables_is_told_from_other_errors() {
    let refused = |text: &str| {
        let (code, text, undone) = (1142, text.to_owned(), true);
        RequestError::Server(MysqlError { code, text, undone })
    };
    assert!(lacks_queue(&refused("for table 'tidelock_waiters'")));
    assert!(lacks_queue(&refused("for table 'tidelock_sides'")));
    assert!(!lacks_queue(&refused("for table 'tidelock_locks'")));
}

/// The server can read nothing in them as SQL, whatever its modes are.
#[test]
fn a_name_with_a_queue_reaches_the_server_as_digits_only() {
    let name = Name::new("x'; DROP TABLE tidelock_locks; -- \\").unwrap();
    let of = |kind| Ticket {
        name: name.clone(),
        ..ticket(kind)
    };
    let (fair, side) = (of(LockKind::Fair), of(LockKind::Write));
    let seen = Snapshot::free(name.as_str());
    let mut texts = vec![
        fair_sql::release_and_hand_over(&fair),
        fair_sql::withdraw(&fair, true, true),
        side_sql::end(&side, true, true),
        side_sql::holders(&name),
        side_sql::waiters(&name),
        side_sql::force_if(&name, &seen),
        serve_and_look(&name, "c", true),
        look(&name, "c"),
    ];
    for position in [FairPosition::None, FairPosition::First, FairPosition::Last] {
        texts.extend(attempts(&fair, &side, position));
    }
    for text in texts {
        assert!(text.contains(&hex(name.as_str())), "{text}");
        assert!(!text.contains("DROP"), "{text}");
    }
}

#[test]
fn a_waiter_is_last_unless_it_had_a_place_before() {
    let (fair, side) = (ticket(LockKind::Fair), ticket(LockKind::Write));
    let (last, first) = ("(MAX(p.place), 0) + 1", "(MIN(p.place), 0) - 1");
    for (position, place) in [(FairPosition::Last, last), (FairPosition::First, first)] {
        for text in attempts(&fair, &side, position) {
            assert!(text.contains(place), "{place}: {text}");
        }
    }
    // The writer that an upgradeable reader becomes is ahead of all.
    let reader = ticket(LockKind::UpgradeableRead).owner;
    let upgrades = Follows::Upgradeable(&reader);
    let text = side_sql::attempt(&side, LEASE, FairPosition::Last, upgrades);
    assert!(text.contains(first) && !text.contains(last), "{text}");
}

/// An attempt may arrive after the withdrawal of its ticket.
#[test]
fn a_ticket_that_was_withdrawn_gets_no_place_and_no_lock() {
    let (fair, side) = (ticket(LockKind::Fair), ticket(LockKind::Read));
    let condition = |ticket: &Ticket| {
        let mark = hex(&format!(" {} ", ticket.owner));
        format!("NOT (INSTR(l.withdrawn, {mark}) OR INSTR(l.before_that, {mark}))")
    };
    let [of_fair, of_side] = attempts(&fair, &side, FairPosition::Last);
    let placed = part(&of_fair, "INSERT INTO tidelock_waiters");
    assert!(placed.contains(&condition(&fair)), "{placed}");
    let placed = part(&of_side, "INSERT INTO tidelock_sides");
    assert!(placed.contains(&condition(&side)), "{placed}");
    let writer = ticket(LockKind::Write).owner;
    let follows = Follows::Writer(&writer);
    let text = side_sql::attempt(&side, LEASE, FairPosition::Last, follows);
    assert!(text.contains(&condition(&side)), "{text}");
    let at_once = fair_sql::attempt(&fair, LEASE, FairPosition::None);
    assert!(at_once.contains(&condition(&fair)), "{at_once}");
}

/// It would keep its place until its process counts as dead, and nobody behind it would get the lock.
#[test]
fn a_ticket_without_patience_has_no_place_afterwards() {
    let (fair, side) = (ticket(LockKind::Fair), ticket(LockKind::Write));
    let leaves = "DELETE s FROM tidelock_sides AS s FORCE INDEX (mine)";
    for (position, waits) in [
        (FairPosition::None, false),
        (FairPosition::First, true),
        (FairPosition::Last, true),
    ] {
        let [of_fair, of_side] = attempts(&fair, &side, position);
        let has_place = of_fair.contains("INSERT INTO tidelock_waiters");
        assert_eq!(has_place, waits, "{of_fair}");
        assert_eq!(!of_side.contains(leaves), waits, "{of_side}");
    }
    // It passes nobody who waits.
    let text = fair_sql::attempt(&fair, LEASE, FairPosition::None);
    for table in [WAITERS, SIDES] {
        let nobody = format!("NOT EXISTS (SELECT 1 FROM {table} ");
        assert!(text.contains(&nobody), "{text}");
    }
}

#[test]
fn an_upgrade_needs_its_reader_and_a_downgrade_joins_its_writer() {
    let (side, other) = (ticket(LockKind::Write), ticket(LockKind::Write).owner);
    let text = |follows| side_sql::attempt(&side, LEASE, FairPosition::Last, follows);
    let upgrade = text(Follows::Upgradeable(&other));
    let reader = format!("u.owner = {} AND {}", owner(&other), is_upgradeable("u"));
    assert!(upgrade.contains(&reader), "{upgrade}");
    let downgrade = text(Follows::Writer(&other));
    let writer = format!("s.owner = {} AND s.shares = 0", owner(&other));
    assert!(downgrade.contains(&writer), "{downgrade}");
    assert!(
        downgrade.contains("SET @tidelock_next = NULL"),
        "{downgrade}"
    );
    let alone = text(Follows::Nobody);
    assert!(!alone.contains(&owner(&other)), "{alone}");
    for text in [upgrade, alone] {
        assert!(
            text.contains("l.owner = @tidelock_as"),
            "it is served: {text}"
        );
    }
}

/// The other way round, an attempt between the two would take effect, and nobody would release it.
#[test]
fn only_a_withdrawal_of_a_ticket_that_may_arrive_leaves_a_mark_and_that_first() {
    let (fair, side) = (ticket(LockKind::Fair), ticket(LockKind::Write));
    for may_arrive in [true, false] {
        for (text, ticket) in [
            (fair_sql::withdraw(&fair, may_arrive, true), &fair),
            (side_sql::end(&side, may_arrive, true), &side),
        ] {
            let mark = hex(&format!(" {} ", ticket.owner));
            let first = text.split("; ").next().unwrap();
            assert_eq!(first.contains(&mark), may_arrive, "{first}");
            assert_eq!(text.contains(&mark), may_arrive, "{text}");
            let is_marked = "(SELECT COUNT(*) FROM tidelock_counter WHERE one = 1)";
            assert_eq!(text.ends_with(is_marked), may_arrive, "{text}");
            let ends = format!("owner = {}", owner(&ticket.owner));
            assert!(text.contains(&ends), "{text}");
        }
    }
}

#[test]
fn a_release_hands_the_lock_over() {
    let (fair, side) = (ticket(LockKind::Fair), ticket(LockKind::Write));
    for text in [
        fair_sql::release_and_hand_over(&fair),
        side_sql::end(&side, false, true),
        serve_and_look(&fair.name, "c", false),
    ] {
        let grant = part(
            &text,
            "UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.token",
        );
        assert!(grant.contains("l.owner = @tidelock_as"), "{grant}");
    }
    let text = fair_sql::release_and_hand_over(&fair);
    let freed = "SELECT ROW_COUNT() INTO @tidelock_freed";
    assert_eq!(part(&text, "SELECT ROW_COUNT()"), freed);
}

#[test]
fn only_a_beat_shows_that_the_waiters_of_a_process_are_alive() {
    let name = ticket(LockKind::Fair).name;
    let shows = [
        "UPDATE tidelock_waiters AS w FORCE INDEX (mine) SET w.alive",
        "UPDATE tidelock_sides AS s FORCE INDEX (mine) SET s.ends",
    ];
    let text = serve_and_look(&name, "c", false);
    assert!(shows.iter().all(|show| !text.contains(show)), "{text}");
    let text = serve_and_look(&name, "c", true);
    for show in shows {
        let own = format!(".client = {}", hex("c"));
        assert!(part(&text, show).contains(&own), "{text}");
    }
}

/// One more than it counts, so that a queue of that many is not taken for a shorter one.
#[test]
fn a_look_locks_nothing_and_reads_no_more_of_a_queue_than_counts() {
    let text = look(&ticket(LockKind::Fair).name, "c");
    assert!(!text.contains("FOR UPDATE"), "{text}");
    let most = format!("LIMIT {})", COUNTED + 1);
    assert_eq!(text.matches(&most).count(), 2, "{text}");
    assert!(text.contains(&format!("client = {}", hex("c"))), "{text}");
}

#[test]
fn only_rows_that_are_dead_for_an_hour_are_swept() {
    for (text, dead) in sweeps().iter().zip(["alive", "ends"]) {
        let condition = format!("WHERE w.{dead} <= {NOW} - 3600000000");
        assert!(text.ends_with(&condition), "{text}");
    }
    let [waiters, sides] = sweeps();
    assert!(waiters.contains(WAITERS) && sides.contains(SIDES));
}

#[test]
fn an_upgradeable_reader_is_known_by_the_end_of_its_owner() {
    let reader = ticket(LockKind::UpgradeableRead).owner.upgradeable();
    let end = &reader.text()[reader.text().len() - 12..];
    assert_eq!(
        is_upgradeable("u"),
        format!("(RIGHT(u.owner, 12) = '{end}')")
    );
}

/// An operator has seen other holders.
#[test]
fn sides_are_taken_only_from_those_that_were_seen() {
    let name = ticket(LockKind::Read).name;
    let mut seen = Snapshot::free(name.as_str());
    seen.holders = ["c:1", "c:2"].map(|owner| Holder::new(owner, 1)).into();
    let owners = format!("s.owner NOT IN ({}, {})); ", hex("c:1"), hex("c:2"));
    let text = side_sql::force_if(&name, &seen);
    assert!(text.contains(&owners), "{text}");
    seen.token = Some(FencingToken::new(7));
    let text = side_sql::force_if(&name, &seen);
    assert!(text.contains("AND l.token = 7; "), "{text}");
}

/// Two renewals could wait for each other.
#[test]
fn sides_are_renewed_for_their_own_leases_in_one_order_of_the_locks() {
    let batch = [renewal(LockKind::Read), renewal(LockKind::Write)];
    let text = side_sql::renew(&batch.each_ref());
    let first = text.split("; ").next().unwrap();
    assert!(first.ends_with("ORDER BY id FOR UPDATE"), "{first}");
    for one in &batch {
        let asked = format!("{} AS owner, 7000000 AS lease", owner(&one.ticket.owner));
        assert!(text.contains(&asked), "{text}");
    }
    let last = text.rsplit("; ").next().unwrap();
    let held = format!("WHERE s.ends > {NOW} AND l.expires > {NOW}");
    assert!(
        last.starts_with("SELECT s.owner") && last.ends_with(&held),
        "{last}"
    );
}

/// Nobody renews or ends what they have, so all those behind them would wait for them.
#[test]
fn the_dead_are_removed_before_anybody_is_let_in() {
    let name = ticket(LockKind::Write).name;
    let text = serve(&name);
    let (before, _) = text.split_once("SET @tidelock_inside").unwrap();
    let [waiters, sides] = [(WAITERS, "w"), (SIDES, "s")].map(|(table, row)| {
        let id = id(&name);
        format!("DELETE {row} FROM {table} AS {row} FORCE INDEX (PRIMARY) WHERE {row}.id = {id}")
    });
    for statement in [
        format!("{waiters} AND w.alive <= {NOW}; "),
        format!("{sides} AND (s.ends <= {NOW} OR s.held_as <> @tidelock_row); "),
    ] {
        assert!(before.contains(&statement), "{statement}: {text}");
    }
}

/// Its reader is inside, so until it has entered nobody else can. Without that reader it could never enter.
#[test]
fn the_writer_that_the_reader_inside_becomes_enters_first_and_any_other_such_writer_leaves() {
    let text = serve(&ticket(LockKind::Write).name);
    let client = "SUBSTRING_INDEX(s.owner, ':', 1)";
    let number = "SUBSTRING_INDEX(s.owner, ':', -1)";
    let becomes = format!("s.owner LIKE '%{UPGRADES}%'");
    let reader = format!("CONCAT({client}, ':', {number}, '{UPGRADEABLE}') = @tidelock_reader");
    let upgrades = format!("({becomes} AND {reader})");
    let leaves = format!("AND s.held_as IS NULL AND {becomes} AND NOT {upgrades}; ");
    assert!(text.contains(&leaves), "{text}");
    let enters = format!("AND s.held_as IS NULL AND {upgrades}), ");
    let (_, first) = text.split_once("@tidelock_upgrade = (").unwrap();
    let (first, _) = first.split_once("@tidelock_free = (").unwrap();
    assert!(first.contains(&enters), "{text}");
}
