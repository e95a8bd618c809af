use super::*;
use crate::snapshot::Holder;
use crate::store::LockKind;
use crate::store::mysql::tests::{renewal, ticket};
use crate::types::FencingToken;

/// The parts of a text that are statements of their own.
fn statements(text: &str) -> Vec<&str> {
    text.split("; ").map(str::trim).collect()
}

/// The place of the only statement that begins so.
fn place_of(text: &str, words: &str) -> usize {
    let all = statements(text);
    let mut places = (0..all.len()).filter(|at| all[*at].starts_with(words));
    let place = places.next();
    assert!(places.next().is_none(), "{words} twice: {text}");
    place.unwrap_or_else(|| panic!("no {words}: {text}"))
}

/// The server can read nothing in them as SQL, whatever its modes are.
#[test]
fn a_name_reaches_the_server_as_digits_only() {
    let name = Name::new("x'; DROP TABLE tidelock_locks; -- \\").unwrap();
    let (digits, kind) = (hex(name.as_str()), LockKind::Mutex);
    let one = Renewal {
        ticket: Ticket {
            name,
            ..ticket(kind)
        },
        ..renewal(kind)
    };
    let Renewal { ticket, lease, .. } = &one;
    let name = &ticket.name;
    for text in [
        attempt(ticket, *lease),
        look(ticket),
        release(ticket),
        withdraw(ticket),
        renew(&[&one]),
        rows(&[&one]),
        free_rows(&[&one]),
        newest_token(name),
        raise_tokens(name, 7),
        force_release(name, None),
        inspect(name, true),
        inspect(name, false),
        lock_row(name),
        lock_if_there(name),
    ] {
        assert!(text.contains(&digits), "{text}");
        assert!(!text.contains("DROP"), "{text}");
    }
    assert_eq!(hex("a'\u{e9}"), "x'6127c3a9'");
    assert_eq!(hex(""), "x''");
}

/// A lease that ended in the store before it ends here would be granted to somebody else meanwhile.
#[test]
fn a_lease_in_the_store_is_never_shorter() {
    for (nanos, expected) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2)] {
        assert_eq!(micros(Duration::from_nanos(nanos)), expected, "{nanos}");
    }
    assert_eq!(micros(Duration::from_secs(30)), 30_000_000);
    // An end is added to the current time, and the column has 63 bits.
    let longest = micros(Duration::MAX);
    let century = micros(Duration::from_secs(100 * 365 * 86_400));
    assert!(longest > century && longest < i64::MAX.unsigned_abs() - century);
    assert_eq!(micros(Duration::from_micros(longest + 1)), longest);
}

/// Each of them alone would give a lock to two.
#[test]
fn a_grant_needs_a_free_row_an_open_fence_and_a_ticket_that_was_not_withdrawn() {
    let ticket = ticket(LockKind::Mutex);
    let text = attempt(&ticket, Duration::from_secs(30));
    let grant = statements(&text)[place_of(&text, "UPDATE tidelock_locks AS l")];
    let me = owner(&ticket.owner);
    let (sets, needs) = grant.split_once(" WHERE l.id = ").unwrap();
    assert!(sets.contains("GREATEST(l.token + 1, "), "{grant}");
    let end = format!("l.owner = {me}, l.expires = {NOW} + 30000000");
    assert!(sets.ends_with(&end), "{grant}");
    let mark = hex(&format!(" {} ", ticket.owner));
    for need in [
        " AND @tidelock_open AND ".to_owned(),
        format!(" AND (l.expires <= {NOW} OR l.owner = '') AND "),
        format!(" AND NOT (INSTR(l.withdrawn, {mark}) OR INSTR(l.before_that, {mark}))"),
    ] {
        assert!(needs.contains(&need), "{need}: {grant}");
    }
    let fence = place_of(&text, "SELECT COUNT(*) INTO @tidelock_open");
    assert!(fence < place_of(&text, "UPDATE tidelock_locks AS l"));
    let fence = statements(&text)[fence];
    assert!(fence.ends_with("FOR UPDATE SKIP LOCKED"), "{fence}");
    // A new row continues the tokens of all that were deleted.
    let new = statements(&text)[place_of(&text, "INSERT INTO tidelock_locks")];
    assert!(new.contains("c.token + 1, "), "{new}");
    assert!(new.contains("LOCK IN SHARE MODE"), "{new}");
}

/// The answer of an attempt and of a look has the same columns.
#[test]
fn a_look_changes_nothing_and_is_answered_as_an_attempt() {
    let ticket = ticket(LockKind::Mutex);
    let text = look(&ticket);
    for change in ["INSERT", "UPDATE tidelock", "DELETE"] {
        assert!(!text.contains(change), "{text}");
    }
    let of_attempt = attempt(&ticket, Duration::ZERO);
    let answer = statements(&of_attempt).pop().unwrap().to_owned();
    let answer = answer.replace("@tidelock_open FROM", "1 FROM");
    assert_eq!(text, format!("{answer} FOR UPDATE"));
    let rest = format!("IF(l.owner = '', 0, GREATEST(l.expires - {NOW}, 0))");
    assert!(answer.contains(&rest), "{answer}");
}

#[test]
fn a_release_ends_the_hold_of_its_owner_only() {
    let ticket = ticket(LockKind::Mutex);
    let text = release(&ticket);
    let owner = format!("AND owner = {}; SELECT ROW_COUNT()", owner(&ticket.owner));
    assert!(text.contains("SET owner = ''"), "{text}");
    assert!(text.ends_with(&owner), "{text}");
}

/// An attempt between the two would take effect, and nobody would release it.
#[test]
fn a_withdrawal_marks_its_ticket_before_it_releases_the_lock() {
    let ticket = ticket(LockKind::Mutex);
    let text = withdraw(&ticket);
    let mark = place_of(&text, "INSERT INTO tidelock_locks");
    assert!(mark < place_of(&text, "UPDATE tidelock_locks"));
    let mark = statements(&text)[mark];
    let own = hex(&format!(" {} ", ticket.owner));
    let appended = format!("CONCAT(tidelock_locks.withdrawn, {own})");
    assert!(mark.contains(&appended), "{mark}");
    assert!(text.ends_with("FROM tidelock_counter WHERE one = 1)"));
}

#[test]
fn each_lock_of_a_batch_is_renewed_for_its_own_lease() {
    let short = renewal(LockKind::Fenced);
    let long = Renewal {
        lease: short.lease * 3,
        ..renewal(LockKind::Fenced)
    };
    let owners = [&short, &long].map(|one| owner(&one.ticket.owner));
    let text = renew(&[&short, &long]);
    let leases = format!(
        "CASE owner WHEN {} THEN 7000000 WHEN {} THEN 21000000 ELSE 0 END",
        owners[0], owners[1]
    );
    assert!(text.contains(&leases), "{text}");
    let held = format!("owner IN ({}) AND expires > {NOW}", owners.join(", "));
    for part in statements(&text) {
        assert!(part.ends_with(&held), "a renewal revives nothing: {part}");
    }
    let both = rows(&[&short, &long]);
    let ids = [&short, &long].map(|one| id(&one.ticket.name)).join(", ");
    assert!(both.ends_with(&format!("WHERE id IN ({ids})")), "{both}");
    let free = free_rows(&[&short, &long]);
    assert_eq!(free, format!("{both} FOR UPDATE SKIP LOCKED"));
}

/// An operator has seen another holder.
#[test]
fn a_lock_is_taken_only_from_those_that_were_seen() {
    let name = ticket(LockKind::Mutex).name;
    let anybody = force_release(&name, None);
    assert!(anybody.contains("AND owner <> ''; "), "{anybody}");
    let mut seen = Snapshot::free(name.as_str());
    seen.holders = ["c:1", "c:2"].map(|owner| Holder::new(owner, 1)).into();
    let owners = format!(" AND owner IN ({}, {})", hex("c:1"), hex("c:2"));
    let text = force_release(&name, Some(&seen));
    assert!(text.contains(&format!("{owners}; ")), "{text}");
    seen.token = Some(FencingToken::new(7));
    let text = force_release(&name, Some(&seen));
    assert!(
        text.contains(&format!("{owners} AND token = 7; ")),
        "{text}"
    );
}

/// A fence compares the token of a row with that of its holder.
#[test]
fn raised_tokens_leave_the_rows_as_they_are() {
    let name = ticket(LockKind::Fenced).name;
    let text = raise_tokens(&name, 7);
    assert!(!text.contains("UPDATE tidelock_locks"), "{text}");
    assert!(text.contains("token = GREATEST(token, 7)"), "{text}");
    assert!(text.ends_with(&newest_token(&name)), "{text}");
}

#[test]
fn a_fence_names_its_database_and_has_two_parameters() {
    let text = fence("my`locks");
    assert!(text.contains("`my``locks`.tidelock_locks"), "{text}");
    assert_eq!(text.matches('?').count(), 2);
    assert!(text.contains(MYSQL_REFUSAL), "{text}");
}

/// A user without rights to the table of the waiters may still look at other locks.
#[test]
fn an_inspection_without_a_queue_needs_no_table_of_the_waiters() {
    let name = ticket(LockKind::Mutex).name;
    for queue in [true, false] {
        let text = inspect(&name, queue);
        assert_eq!(text.contains("tidelock_waiters"), queue, "{text}");
        assert_eq!(text.contains("ORDER BY w.place"), queue, "{text}");
    }
}

#[test]
fn a_page_begins_at_its_key_and_goes_on_in_the_order_of_the_keys() {
    let text = list(0xff00);
    let key = format!("x'000000000000ff00{}'", "0".repeat(48));
    assert!(text.contains(&format!("id >= {key} ORDER BY id")), "{text}");
    assert!(text.ends_with(&format!("LIMIT {PAGE_SIZE}")), "{text}");
}

#[test]
fn a_client_publishes_its_user_only_where_there_is_a_column_for_it() {
    let client = ClientId::random();
    let info = ClientInfo::new("web-1", 42, "shop", std::time::UNIX_EPOCH);
    let named = info.clone().run_by(Some("deploy"));
    let minute = Duration::from_secs(60);
    for (info, has_user, is_told) in [
        (&named, true, true),
        (&named, false, false),
        (&info, true, false),
    ] {
        let text = announce(&client, info, minute, has_user);
        assert_eq!(text.contains("os_user"), is_told, "{text}");
        assert_eq!(text.contains(&hex("deploy")), is_told, "{text}");
        for part in [hex(client.as_str()), hex("web-1"), hex("shop")] {
            assert!(text.contains(&part), "{text}");
        }
        assert!(text.contains(&format!("{NOW} + 60000000")), "{text}");
    }
    let text = retract(&client);
    assert!(text.contains(&hex(client.as_str())), "{text}");
}

/// A client that inserts a row reads the counter, and its token would be one that a deleted row has had.
#[test]
fn a_sweep_counts_the_tokens_of_the_rows_that_it_deletes() {
    let text = sweep();
    let order = [
        "SET @tidelock_past",
        "SET @tidelock_old",
        "SELECT token FROM tidelock_counter",
        "SELECT @tidelock_swept",
        "UPDATE tidelock_counter SET token = GREATEST(token, @tidelock_swept)",
        "DELETE FROM tidelock_locks",
        "SELECT ROW_COUNT()",
    ];
    let places = order.map(|words| place_of(&text, words));
    assert!(places.is_sorted(), "{text}");
    let swept = statements(&text);
    let (_, counted) = swept[places[3]].split_once(" WHERE ").unwrap();
    let (_, deleted) = swept[places[5]].split_once(" WHERE ").unwrap();
    let rows = "expires <= @tidelock_old AND turned <= @tidelock_past";
    assert!(counted.starts_with(rows) && deleted.starts_with(rows));
}
