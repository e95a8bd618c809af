//! Tests of what operators see of locks, of the list of locks, and of the details of clients.

mod lists;
mod looks;

use super::*;
use crate::store::redis::wire::errors::ServerError;
use crate::store::redis::wire::tests::values::texts;

#[test]
fn a_list_passes_over_a_forbidden_key_but_over_no_lost_login() {
    for (reply, passes) in [
        ("NOPERM No permissions to access a key", true),
        (
            "NOPERM User app has no permissions to run the 'strlen' command",
            false,
        ),
        ("NOAUTH Authentication required.", false),
    ] {
        let error = ServerError::parse(reply).error();
        assert_eq!(is_passed_over(&error, "STRLEN"), passes, "{reply}");
    }
}

#[test]
fn details_of_a_newer_version_are_read_as_far_as_they_are_known() {
    let info = client(&texts(&["host", "a", "pid", "7", "colour", "blue"])).unwrap();
    assert_eq!(
        (info.host.as_str(), info.pid, info.program.as_str()),
        ("a", 7, "")
    );
    assert_eq!(info.user, None); // an earlier version wrote none
    let info = client(&texts(&["host", "a", "pid", "7", "user", "deploy"])).unwrap();
    assert_eq!(info.user.as_deref(), Some("deploy"));
    for unreadable in [
        &["host", "a"][..],
        &["pid", "7"],
        &[],
        &["host", "a", "pid", "-7"],
        &["host", "a", "pid", "4294967296"],
    ] {
        assert!(client(&texts(unreadable)).is_none(), "{unreadable:?}");
    }
}

#[test]
fn a_client_is_as_old_as_it_says_unless_it_says_nonsense() {
    for (since, millis) in [("5000", 5000), ("-5000", 0), ("noon", 0)] {
        let info = client(&texts(&["host", "a", "pid", "7", "since", since])).unwrap();
        assert_eq!(info.since, since_epoch(millis), "{since}");
    }
}

fn seen(args: &[&str]) -> Vec<(String, Mode, u64)> {
    let holders = holders(&texts(args)).into_iter();
    holders
        .map(|one| (one.owner, one.mode, one.holds))
        .collect()
}

#[test]
fn each_holder_of_a_read_write_lock_is_shown_with_its_mode() {
    let of = |owner: &str, mode, holds| (owner.to_owned(), mode, holds);
    assert_eq!(
        seen(&["mode", "read", "u:7", "3", "u:8", "1"]),
        [of("u:7", Mode::Read, 3), of("u:8", Mode::Read, 1)]
    );
    assert_eq!(
        seen(&["mode", "write", "u:7:write", "1", "u:7", "2"]),
        [of("u:7", Mode::Write, 1), of("u:7", Mode::Read, 2)]
    );
    assert_eq!(seen(&["mode", "read"]), []);
    // An exclusive holder and a writer under the same name.
    assert_eq!(
        seen(&["u:9", "1", "mode", "write", "u:7:write", "1"]),
        [of("u:9", Mode::Exclusive, 1), of("u:7", Mode::Write, 1)]
    );
    assert_eq!(
        seen(&["u:7:write", "1"]),
        [of("u:7:write", Mode::Exclusive, 1)]
    );
}

#[test]
fn a_holder_whose_count_is_no_count_is_shown_all_the_same() {
    for (count, holds) in [
        ("9223372036854775807", 9_223_372_036_854_775_807),
        ("9223372036854775808", 0),
        ("-3", 0),
        ("three", 0),
        ("", 0),
    ] {
        assert_eq!(
            seen(&["u:7", count]),
            [("u:7".to_owned(), Mode::Exclusive, holds)]
        );
    }
    let bytes = Reply::List(vec![Reply::Text(vec![0xff, b'x']), Reply::Int(1)]);
    assert_eq!(holders(&bytes).len(), 1);
}
