//! The parts of the SQL, as far as their text shows what they do.

use super::texts::{Texts, sharp};
use super::*;
use crate::snapshot::Holder;
use crate::store::fair_waiters::FairPosition;
use crate::store::postgres::literal::literal;
use crate::store::postgres::queue_sql::renewing;
use crate::store::postgres::schema::{NO_STANDBY, SEMAPHORE, raise, timeout};
use crate::store::side_order::Follows;
use crate::store::{OwnerId, PermitChange};

/// Asserts that a text has the first parts, and none of the others.
fn assert_parts(text: &str, has: &[&str], lacks: &[&str]) {
    for part in has {
        assert!(text.contains(part), "no {part} in {text}");
    }
    for part in lacks {
        assert!(!text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_ticket_takes_the_place_that_it_asks_for() {
    let (texts, ticket) = (Texts::new(), sharp());
    let owner = literal(ticket.owner.text());
    let enters = "INSERT INTO tidelock_locks_waiters (name, place, owner";
    let nobody_waits = "NOT EXISTS (SELECT 1 FROM tidelock_locks_waiters WHERE name = ";
    let no_side_waits = "NOT EXISTS (SELECT 1 FROM tidelock_locks_sides WHERE name = ";
    let (first, last) = ("min(place), 0) - 1", "max(place), 0) + 1");
    let (sides, permits) = ("tidelock_locks_sides", "tidelock_locks_permits");
    let leaves_side = format!("DELETE FROM {sides} WHERE owner = {owner} AND held_as IS NULL; ");
    let leaves_permits = format!("DELETE FROM {permits} WHERE owner = {owner} AND NOT held; ");
    let (leaves_side, leaves_permits) = (leaves_side.as_str(), leaves_permits.as_str());
    for (place, has, lacks) in [
        (FairPosition::None, nobody_waits, enters),
        (FairPosition::None, no_side_waits, first),
        (FairPosition::First, enters, last),
        (FairPosition::First, first, nobody_waits),
        (FairPosition::Last, enters, first),
        (FairPosition::Last, last, nobody_waits),
    ] {
        let text = texts.queue.attempt_fair(&ticket, LEASE, place, false);
        assert_parts(&text, &[has], &[lacks]);
    }
    for (place, number, other) in [
        (FairPosition::None, last, first),
        (FairPosition::First, first, last),
        (FairPosition::Last, last, first),
    ] {
        // Without patience it takes a place only for the decision.
        let leaves = place == FairPosition::None;
        let nobody = Follows::Nobody;
        let side = texts
            .queue
            .attempt_side(&ticket, LEASE, place, nobody, false);
        assert_parts(&side, &[number], &[other]);
        assert_eq!(side.contains(leaves_side), leaves, "{side}");
        let permits = texts.permits.attempt_permits(&ticket, 3, LEASE, place);
        assert_parts(&permits, &[number], &[other]);
        assert_eq!(permits.contains(leaves_permits), leaves, "{permits}");
    }
}

#[test]
fn an_attempt_that_follows_a_holder_depends_on_that_holder() {
    let (texts, ticket) = (Texts::new(), sharp());
    let followed = OwnerId::of_text("d:9:upgradeable");
    let named = literal(followed.text());
    let attempt = |follows, place| {
        let sql = &texts.queue;
        sql.attempt_side(&ticket, LEASE, place, follows, true)
    };
    let upgrade = attempt(Follows::Upgradeable(&followed), FairPosition::Last);
    let reads =
        format!("u.owner = {named} AND u.owner LIKE '%:upgradeable' AND u.held_as = l.owner");
    // Where it takes its place, and in the answer. It is ahead of everybody.
    assert_eq!(upgrade.matches(&reads).count(), 2, "{upgrade}");
    assert_parts(&upgrade, &["min(place), 0) - 1"], &["max(place)"]);
    let downgrade = attempt(Follows::Writer(&followed), FairPosition::None);
    let writes = format!("w.owner = {named} AND ");
    assert_parts(
        &downgrade,
        &[&writes, "NOT w.reads", "SET token = joined.token"],
        &["pg_notify("],
    );
    let alone = attempt(Follows::Nobody, FairPosition::Last);
    assert_parts(&alone, &["(true)::int", "AND true "], &[&named]);
}

#[test]
fn the_dead_are_removed_before_anybody_enters() {
    let (texts, ticket) = (Texts::new(), sharp());
    let name = literal(ticket.name.as_str());
    let waiters = format!("DELETE FROM tidelock_locks_waiters WHERE name = {name} AND alive <= ");
    let sides =
        format!("DELETE FROM tidelock_locks_sides AS s WHERE s.name = {name} AND (s.ends <= ");
    let upgrades =
        "split_part(s.owner, ':', 1) || ':' || split_part(s.owner, ':', 4) || ':upgradeable'";
    let text = texts.queue.force(&ticket.name, None, true);
    assert_parts(&text, &[&waiters, &sides, upgrades], &[]);
    let enters = text.find("entering AS").unwrap();
    assert!(text.rfind("DELETE FROM tidelock_locks_sides AS s").unwrap() < enters);
    // An attempt for a side asks which of the holders are left.
    let place = FairPosition::Last;
    let text = texts
        .queue
        .attempt_side(&ticket, LEASE, place, Follows::Nobody, false);
    assert_parts(&text, &[&waiters, &sides, upgrades], &[]);
    let text = texts.permits.force_permits(&ticket.name, None, true);
    let permits = format!("DELETE FROM tidelock_locks_permits WHERE name = {name} AND ends <= ");
    assert_parts(&text, &[&permits, "least(p.lease, 6000000)"], &[]);
}

#[test]
fn a_force_release_of_what_was_seen_frees_nothing_else() {
    let (texts, name) = (Texts::new(), stock());
    let mut seen = Snapshot::free("stock");
    seen.holders = vec![Holder::new("c:1", 1), Holder::new("c:2", 1)];
    let owners = format!("{}, {}", literal("c:1"), literal("c:2"));
    let (held, inside) = (format!("owner IN ({owners})"), format!("NOT IN ({owners})"));
    let text = texts.queue.force(&name, Some(&seen), false);
    assert_parts(
        &text,
        &[&held, &inside, "s.ends >"],
        &[" AND token = ", SEMAPHORE],
    );
    seen.token = Some(FencingToken::new(7));
    let text = texts.queue.force(&name, Some(&seen), false);
    assert_parts(&text, &[" AND token = 7"], &[]);
    let text = texts.queue.force(&name, None, false);
    assert_parts(&text, &["owner <> ':semaphore'"], &[" IN ("]);
    let others = format!("<> ALL (ARRAY[{owners}]::text[])");
    let seen = ["c:1".to_owned(), "c:2".to_owned()];
    let text = texts.permits.force_permits(&name, Some(&seen[..]), false);
    assert_parts(&text, &[&others, "AND held AND NOT EXISTS"], &[]);
    let text = texts.permits.force_permits(&name, None, false);
    assert_parts(&text, &["AND held RETURNING"], &["ALL ("]);
    assert_parts(&texts.sql.force_if, &["owner = ANY ($2", "token = $3"], &[]);
    assert_parts(&texts.sql.force, &["owner <> ':semaphore'"], &["$2"]);
}

#[test]
fn a_look_shows_life_only_with_a_beat() {
    let (texts, name) = (Texts::new(), stock());
    let alive = "= clock_timestamp() + 6000000 * interval '1 microsecond'";
    for beat in [true, false] {
        let shows = [format!("SET alive {alive}"), format!("SET ends {alive}")];
        let fair = texts.queue.look(&name, "c", beat, false);
        let permits = texts.permits.look_at_permits(&name, "c", beat);
        assert!(
            shows.iter().all(|part| fair.contains(part) == beat),
            "{fair}"
        );
        assert_eq!(permits.contains(&shows[1]), beat, "{permits}");
        for text in [fair, permits] {
            assert_eq!(text.contains("interval '1 hour'"), beat, "{text}");
        }
    }
    let old =
        |until: &str| format!("WHERE {until} < clock_timestamp() - interval '1 hour' LIMIT 100");
    let (alive, ends) = (old("alive"), old("ends"));
    assert_parts(
        &texts.queue.tidy,
        &[&alive, &ends, "_waiters", "_sides"],
        &[],
    );
    assert_parts(&texts.permits.tidy, &[&ends, "_permits"], &[]);
}

#[test]
fn a_look_sees_all_that_wait_and_the_rest_of_the_lease() {
    let (texts, name) = (Texts::new(), stock());
    let named = literal(name.as_str());
    let arrivals = format!(
        "SELECT owner, place, client, lease, reads FROM tidelock_locks_sides WHERE name = {named} AND held_as IS NULL \
         UNION ALL SELECT owner, place, client, lease, NULL FROM tidelock_locks_waiters WHERE name = {named}"
    );
    let seen = format!("WITH arrivals AS ({arrivals}) ");
    let entering = format!("FROM ({arrivals}) AS a, ");
    let left = "greatest(0, (extract(epoch FROM l.expires - clock_timestamp()) * 1000000)::bigint)";
    let look = texts.queue.look(&name, "c", false, true);
    assert_parts(&look, &[&seen, &entering, left], &[]);
    let (ticket, place) = (sharp(), FairPosition::Last);
    let attempt = texts.queue.attempt_fair(&ticket, LEASE, place, false);
    assert_parts(&attempt, &[left], &[]);
}

#[test]
fn a_renewal_passes_over_rows_unless_it_waits_for_one() {
    let (texts, ticket) = (Texts::new(), sharp());
    let patience = Duration::from_secs(5);
    assert_eq!(renewing(None), (String::new(), " SKIP LOCKED"));
    let (waits, skips) = renewing(Some(patience));
    assert_parts(&waits, &["'lock_timeout', '5000ms'"], &[]);
    assert_eq!(skips, "");
    let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
    let asked = format!("VALUES (7, {name}, {owner}, 40000000::bigint)");
    let numbers = "string_agg(number::text, ' ')";
    for patience in [None, Some(patience)] {
        let all = texts.renewals(&ticket, patience);
        for renews in &all[..2] {
            assert_parts(renews, &[&asked, numbers, "greatest(", "ends > "], &[]);
            assert_eq!(renews.contains("SKIP LOCKED"), patience.is_none());
            assert_eq!(renews.contains("lock_timeout"), patience.is_some());
        }
        // A row that a standby does not have yet would be taken for a loss.
        for looks in &all[2..] {
            let has = [&*asked, numbers, NO_STANDBY, "ends > "];
            assert_parts(looks, &has, &["UPDATE"]);
        }
    }
    let Sql {
        renew,
        renew_patiently,
        held,
        ..
    } = texts.sql;
    let ours = "l.name = a.name AND l.owner = a.owner WHERE l.expires > clock_timestamp()";
    assert_parts(
        &renew,
        &[ours, "greatest(l.expires", "SKIP LOCKED"],
        &["$5"],
    );
    assert_parts(
        &renew_patiently,
        &[ours, "'lock_timeout', $5"],
        &["SKIP LOCKED"],
    );
    assert_parts(&held, &[ours, NO_STANDBY], &["UPDATE"]);
}

#[test]
fn a_wait_for_a_row_is_never_without_end() {
    for (patience, shown) in [
        (Duration::ZERO, "1ms"),
        (Duration::from_micros(1), "1ms"),
        (Duration::from_secs(5), "5000ms"),
        (Duration::MAX, "3600000ms"),
    ] {
        assert_eq!(timeout(patience), shown);
    }
}

#[test]
fn a_change_of_the_number_keeps_sets_or_adds() {
    let (texts, name) = (Texts::new(), stock());
    for (change, number, then) in [
        (PermitChange::SetIfNew(3), 3, "DO NOTHING"),
        (PermitChange::Set(4), 4, "SET total = EXCLUDED.total"),
        (
            PermitChange::Add(-5),
            -5,
            "_semaphores.total + EXCLUDED.total",
        ),
    ] {
        let text = texts.permits.change_permits(&name, change);
        let inserts = format!("SELECT {}, {number} FROM", literal(name.as_str()));
        // A lock of this name stays as it is.
        let is_lock = "(l.owner <> ':semaphore' AND l.expires > clock_timestamp()) IS NOT TRUE";
        let serves = "SET held = true";
        assert_parts(&text, &[&inserts, then, is_lock, serves], &[]);
        let keeps = matches!(change, PermitChange::SetIfNew(_));
        assert_eq!(!text.contains("DO UPDATE SET total"), keeps, "{text}");
    }
    let attempt = texts
        .permits
        .attempt_permits(&sharp(), 3, LEASE, FairPosition::Last);
    assert_parts(
        &attempt,
        &["THEN 2 ELSE 0", "IS NOT TRUE", "SET held = true"],
        &[],
    );
}

#[test]
fn all_that_the_statements_name_is_made() {
    let texts = Texts::new();
    let creates = |end: &str| format!("CREATE TABLE IF NOT EXISTS tidelock_locks{end} (");
    for (make, ends) in [
        (&texts.sql.make, &["", "_withdrawn", "_clients"][..]),
        (&texts.queue.make, &["_waiters", "_sides"]),
        (&texts.permits.make, &["_semaphores", "_permits"]),
        (&texts.sql.marks.make, &["_marks"]),
    ] {
        // Several processes may come first at the same time.
        let alone = "SELECT pg_advisory_xact_lock(hashtext('tidelock_locks'));\n";
        assert!(make.starts_with(alone), "{make}");
        for end in ends {
            assert_parts(make, &[&creates(end)], &[]);
        }
    }
    let sequence = "CREATE SEQUENCE IF NOT EXISTS tidelock_locks_tokens";
    let function = "FUNCTION tidelock_locks_fence(text, bigint)";
    let catches_up = "setval('tidelock_locks_tokens', newest)";
    assert_parts(&texts.sql.make, &[sequence, function, catches_up], &[]);
    let regclass = |end: &str| format!("to_regclass('tidelock_locks{end}') IS NULL");
    for end in ["", "_clients", "_withdrawn", "_tokens"] {
        assert_parts(&texts.sql.missing, &[&regclass(end)], &[]);
    }
    let fence = "to_regprocedure('tidelock_locks_fence(text,bigint)') IS NULL";
    assert_parts(&texts.sql.missing, &[fence], &[]);
}

#[test]
fn a_table_in_a_schema_has_a_channel_without_a_dot() {
    let sql = Sql::new("shop.locks");
    assert_eq!(sql.channel, "shop_locks");
    for text in [&sql.tell, &sql.release.text, &sql.withdraw, &sql.force] {
        assert_parts(text, &["pg_notify('shop_locks', "], &[]);
    }
}

/// Without its row, a name would be granted a smaller token than before.
#[test]
fn no_row_that_the_sequence_is_behind_is_swept() {
    let Texts { sql, .. } = Texts::new();
    let last = "has_sequence_privilege(to_regclass('tidelock_locks_tokens'), 'SELECT, USAGE')";
    assert_parts(
        &sql.sweep,
        &["token <= (SELECT CASE WHEN", last, "LIMIT 1000"],
        &[],
    );
    assert_parts(&sql.largest, &["max(token)", last], &[]);
    let lock = "LOCK TABLE tidelock_locks IN SHARE ROW EXCLUSIVE MODE;\n";
    let raised = raise("tidelock_locks", 8);
    let (_, then) = raised.split_once(lock).unwrap();
    assert_parts(then, &["setval('tidelock_locks_tokens', 8)", "< 8"], &[]);
    assert_parts(&sql.announce, &[", os_user)", ", $7)"], &[]);
    assert_parts(
        &sql.announce_without_user,
        &["expires)"],
        &["os_user", "$7"],
    );
}

/// A user who may not serve the queue releases without it.
#[test]
fn a_release_tells_whether_its_user_may_serve_the_queue() {
    let Texts { sql, .. } = Texts::new();
    let rights = [
        "to_regclass('tidelock_locks_waiters'), 'SELECT'",
        "to_regclass('tidelock_locks_waiters'), 'DELETE'",
        "to_regclass('tidelock_locks_sides'), 'UPDATE'",
    ];
    for text in [&sql.release.text, &sql.withdraw] {
        assert_parts(text, &rights, &[]);
    }
}
