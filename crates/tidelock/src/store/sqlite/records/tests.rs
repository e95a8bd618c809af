//! Rows that another program has changed, or that belong to another clock.

use super::*;
use crate::store::LockKind;
use crate::store::sqlite::errors::is_unreadable;
use crate::store::sqlite::schema;
use crate::types::OwnerMint;

const HOUR: i64 = 3600 * 1_000_000_000;

fn database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    schema::create(&connection).unwrap();
    connection
}

fn view<'a>(
    connection: &'a Connection,
    seen: &'a ForeignRows,
    stamp: i64,
    domain: &'a str,
) -> LockTransaction<'a> {
    let now = Now { stamp, domain };
    LockTransaction {
        connection,
        now,
        seen,
    }
}

#[test]
fn a_row_with_the_largest_revision_is_renewed_and_taken_over() {
    let (connection, seen) = (database(), ForeignRows::default());
    let lease = Duration::from_secs(10);
    let mint = OwnerMint::new();
    let ticket = || Ticket {
        kind: LockKind::Mutex,
        name: Name::new("n").unwrap(),
        owner: mint.fresh(),
    };
    let (first, second) = (ticket(), ticket());
    let largest = || {
        let set = "UPDATE locks SET revision = 9223372036854775807";
        assert_eq!(connection.execute(set, []).unwrap(), 1);
    };
    let now = view(&connection, &seen, 0, "here");
    now.attempt(&first, lease, 0).unwrap();
    largest();
    let renewal = Renewal {
        ticket: first.clone(),
        lease,
        wish: crate::store::ReplicaAck::Off,
    };
    assert!(now.renew(&renewal).unwrap());
    assert_eq!(now.row("n").unwrap().unwrap().revision, 1); // it has changed
    largest();
    let later = view(&connection, &seen, HOUR, "here");
    let taken = later.attempt(&second, lease, 0).unwrap();
    assert!(matches!(taken, Decision::Granted(..)), "{taken:?}");
}

#[test]
fn a_name_that_goes_between_two_pages_hides_no_other() {
    let (connection, seen) = (database(), ForeignRows::default());
    let now = view(&connection, &seen, 0, "here");
    let put = "INSERT INTO locks VALUES (?1, 'a:1', 1, 1, 1, 'here', 1, 0)";
    for name in ["a", "b", "c", "d"] {
        connection.execute(put, [name]).unwrap();
    }
    assert_eq!(now.names(2, "").unwrap(), ["a", "b"]);
    connection
        .execute("DELETE FROM locks WHERE name = 'a'", [])
        .unwrap();
    assert_eq!(now.names(2, "b").unwrap(), ["c", "d"]);
}

#[test]
fn notes_of_a_dead_process_with_a_clock_of_its_own_are_swept() {
    let (connection, seen) = (database(), ForeignRows::default());
    let mint = OwnerMint::new();
    let info = ClientInfo::new("h", 1, "p", SystemTime::now());
    for (domain, client) in [("process:dead", "dead"), ("process:alive", "alive")] {
        let put = "INSERT INTO clients VALUES (?1, 'h', 1, 'p', 0, 5, ?2, NULL)";
        connection.execute(put, [client, domain]).unwrap();
        let put = "INSERT INTO withdrawn VALUES (?1 || ':1', 5, ?2)";
        connection.execute(put, [client, domain]).unwrap();
    }
    let rows = |table: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {table} WHERE domain LIKE 'process:%'");
        connection.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    let ticket = || Ticket {
        kind: LockKind::Mutex,
        name: Name::new("n").unwrap(),
        owner: mint.fresh(),
    };
    for (at, left) in [(0, 2), (HOUR - 1, 2), (HOUR, 1)] {
        // The living process announces itself again from time to time, with another end.
        let again = "UPDATE clients SET ends = ends + 1 WHERE client = 'alive'";
        connection.execute(again, []).unwrap();
        let now = view(&connection, &seen, at, "here");
        now.announce(mint.client(), &info, CLIENT_INFO_TTL).unwrap();
        now.withdraw(&ticket()).unwrap();
        assert_eq!(rows("clients"), left, "{at}");
    }
    assert_eq!(rows("withdrawn"), 0);
}

/// A container may have a boot id of its own, although its processes run beside this one.
#[test]
fn notes_with_another_boot_id_stay_while_they_are_valid() {
    let (connection, seen) = (database(), ForeignRows::default());
    let (mint, other) = (OwnerMint::new(), OwnerMint::new());
    let info = ClientInfo::new("h", 1, "p", SystemTime::now());
    let ticket = |mint: &OwnerMint| Ticket {
        kind: LockKind::Mutex,
        name: Name::new("n").unwrap(),
        owner: mint.fresh(),
    };
    let gone = ticket(&other);
    let there = view(&connection, &seen, 0, "boot-of-a-container+0.0");
    there.withdraw(&gone).unwrap();
    there
        .announce(other.client(), &info, CLIENT_INFO_TTL)
        .unwrap();
    for at in [5, HOUR / 20] {
        let now = view(&connection, &seen, at, "boot-of-the-machine+0.0");
        now.announce(mint.client(), &info, CLIENT_INFO_TTL).unwrap();
        now.withdraw(&ticket(&mint)).unwrap();
        assert!(now.is_withdrawn(gone.owner.text()).unwrap(), "{at}");
        let client = now.client(other.client().as_str()).unwrap();
        assert!(client.is_some(), "{at}");
    }
}

#[test]
fn a_file_of_an_earlier_tidelock_has_no_users() {
    let (connection, seen) = (database(), ForeignRows::default());
    let mint = OwnerMint::new();
    let client = mint.client();
    for (change, user) in [
        ("", Some("deploy")),
        ("ALTER TABLE clients DROP COLUMN os_user", None),
        (
            "ALTER TABLE clients ADD COLUMN os_user TEXT",
            Some("deploy"),
        ),
    ] {
        connection.execute_batch(change).unwrap();
        let now = view(&connection, &seen, 0, "here");
        let info = ClientInfo::new("h", 1, "p", since_epoch(5)).run_by(Some("deploy"));
        now.announce(client, &info, CLIENT_INFO_TTL).unwrap();
        let info = info.run_by(user);
        assert_eq!(now.client(client.as_str()).unwrap(), Some(info), "{change}");
    }
}

/// SQLite lets every program write any type into any column.
#[test]
fn rows_that_cannot_be_read_fail_no_sweep() {
    let (connection, seen) = (database(), ForeignRows::default());
    let mint = OwnerMint::new();
    let info = ClientInfo::new("h", 1, "p", SystemTime::now());
    let there = "INSERT INTO clients VALUES ('broken', 'h', 1, 'p', 0, 'now', 'there', NULL); \
        INSERT INTO clients VALUES ('dead', 'h', 1, 'p', 0, 5, 'there', NULL); \
        INSERT INTO locks VALUES ('broken', 'a:1', 1, 1, 0.5, 'here', 1, 0); \
        INSERT INTO withdrawn VALUES ('broken:1', 'now', 'there'); \
        INSERT INTO withdrawn VALUES ('dead:1', 5, 'there')";
    connection.execute_batch(there).unwrap();
    for at in [0, HOUR] {
        let now = view(&connection, &seen, at, "here");
        now.announce(mint.client(), &info, CLIENT_INFO_TTL).unwrap();
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: Name::new("n").unwrap(),
            owner: mint.fresh(),
        };
        now.withdraw(&ticket).unwrap();
    }
    for of in [
        "SELECT group_concat(client) FROM clients WHERE domain = 'there'",
        "SELECT group_concat(rtrim(owner, ':1')) FROM withdrawn WHERE domain = 'there'",
        "SELECT group_concat(name) FROM locks",
    ] {
        let left: String = connection.query_row(of, [], |row| row.get(0)).unwrap();
        assert_eq!(left, "broken", "{of}");
    }
}

#[test]
fn a_row_that_cannot_be_read_keeps_all_out_until_it_is_released() {
    let (connection, seen) = (database(), ForeignRows::default());
    let mint = OwnerMint::new();
    let (name, lease) = (Name::new("n").unwrap(), Duration::from_secs(10));
    let now = view(&connection, &seen, 0, "here");
    let held = || {
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: name.clone(),
            owner: mint.fresh(),
        };
        let granted = now.attempt(&ticket, lease, 0).unwrap();
        assert!(matches!(granted, Decision::Granted(..)), "{granted:?}");
        let set = "UPDATE locks SET ends = datetime('now')";
        assert_eq!(connection.execute(set, []).unwrap(), 1);
        let other = now.held_by_other("n", "other:1");
        assert!(other.is_err_and(|error| is_unreadable(&error)));
        ticket
    };
    let ticket = held();
    assert_eq!(now.release(&ticket).unwrap(), Released::NotHeld);
    assert_eq!(now.row("n").unwrap(), None);
    held();
    assert!(now.force_release(&name).unwrap());
    assert_eq!(now.row("n").unwrap(), None);
}

#[test]
fn the_counter_is_raised_and_never_lowered() {
    let (connection, seen) = (database(), ForeignRows::default());
    let now = view(&connection, &seen, 0, "here");
    for (asked, newest) in [(5, 5), (3, 5), (5, 5), (8, 8)] {
        assert_eq!(now.raise_counter(asked).unwrap(), Ok(newest));
        assert_eq!(now.counter().unwrap(), Ok(newest));
    }
    assert_eq!(now.next_token(2).unwrap(), Ok((9, 2)));
    assert_eq!(now.counter().unwrap(), Ok(11));
}

#[test]
fn an_error_shows_what_another_program_has_written() {
    for (value, said) in [
        (None, "nothing"),
        (Some(Value::Null), "nothing"),
        (Some(Value::Integer(-1)), "-1"),
        (Some(Value::Real(1.5)), "1.5"),
        (Some(Value::Text("a\u{1b}".to_owned())), "\"a\\u{1b}\""),
        (Some(Value::Blob(vec![7])), "bytes"),
    ] {
        assert_eq!(shown(value), said);
    }
    let long = shown(Some(Value::Text("a".repeat(100))));
    assert_eq!(long, format!("\"{}\"", "a".repeat(64)));
}
