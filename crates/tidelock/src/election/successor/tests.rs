use std::time::SystemTime;

use super::*;
use crate::engine::runtime::clock::Clock;

/// The mark of a candidate. `led`: the term that it has.
fn candidate(identity: &str, priority: i32, led: Option<u64>) -> String {
    let mark = CandidateMark {
        identity: identity.to_owned(),
        since: SystemTime::UNIX_EPOCH,
        led: led.map(|term| ("owner".to_owned(), term)),
        priority,
    };
    mark.to_text()
}

/// The name of a successor, which the leader of that term has written.
fn named(identity: &str, term: u64) -> String {
    let identity = identity.to_owned();
    NamedSuccessor { identity, term }.to_text()
}

fn marks(all: &[(&str, String)]) -> ElectionMarks {
    let all = all.iter();
    ElectionMarks(
        all.map(|(slot, text)| ((*slot).to_owned(), text.clone()))
            .collect(),
    )
}

/// A candidate loses its patience at the moment at which another one is elected. When that one names a successor
/// within a lease, the candidate must stand aside again.
#[test]
fn the_patience_is_whole_after_a_leadership() {
    let (now, lease) = (Clock::Boot.now(), Duration::from_secs(3));
    let mut patience = Patience::default();
    patience.begin(now, lease, 5);
    let later = now + lease / 2;
    let left_after = |slot: &str, text: &str| {
        let marks = ElectionMarks(vec![(slot.to_owned(), text.to_owned())]);
        patience.seen(&marks).left(later, lease)
    };
    for (term, left) in [(5, Duration::ZERO), (6, lease / PARTS)] {
        assert_eq!(left_after(SLOT, &named("x", term)), left, "named in {term}");
        let mark = candidate("y", 0, Some(term));
        assert_eq!(left_after("client", &mark), left, "led in {term}");
    }
}

#[test]
fn the_candidate_that_was_named_leads_next_if_it_waits() {
    let (one, two) = (candidate("1", 0, None), candidate("2", 0, None));
    let both = |named: String| marks(&[("a", one.clone()), ("b", two.clone()), (SLOT, named)]);
    let first = |marks: &ElectionMarks| marks.first_before("a", "1", 0);
    assert_eq!(first(&both(named("2", 5))).as_deref(), Some("b"));
    assert_eq!(first(&both(named("1", 5))), None, "it is this one");
    assert_eq!(
        first(&both(named("3", 5))),
        None,
        "nobody of that name waits"
    );
    let leads = marks(&[("b", candidate("2", 0, Some(6))), (SLOT, named("2", 5))]);
    assert_eq!(first(&leads), None, "it leads already");
    let own = marks(&[("a", two.clone()), (SLOT, named("2", 5))]);
    assert_eq!(first(&own), None, "the mark of this client is an old one");
}

#[test]
fn the_highest_priority_leads_next_unless_another_one_was_named() {
    let waiting = [
        ("a", candidate("1", 3, None)),
        ("b", candidate("2", 4, None)),
        ("c", candidate("3", 9, None)),
        ("d", candidate("4", 5, None)),
        ("e", candidate("5", 10, Some(7))),
    ];
    let before = |priority| marks(&waiting).first_before("a", "1", priority);
    assert_eq!(before(3).as_deref(), Some("c"));
    assert_eq!(before(8).as_deref(), Some("c"));
    assert_eq!(before(9), None, "an equal one has no advantage");
    let with_name = |identity| {
        let mut all = waiting.to_vec();
        all.push((SLOT, named(identity, 5)));
        marks(&all).first_before("a", "1", 3)
    };
    assert_eq!(with_name("1"), None);
    assert_eq!(with_name("4").as_deref(), Some("d"));
    assert_eq!(with_name("gone").as_deref(), Some("c"));
}

#[test]
fn a_candidate_stands_aside_until_the_other_one_has_led_or_has_left() {
    let waits = ("b", candidate("2", 0, None));
    assert!(marks(std::slice::from_ref(&waits)).still_await("b", 5));
    assert!(!marks(std::slice::from_ref(&waits)).still_await("c", 5));
    for (term, goes_on) in [(4, true), (5, true), (6, false)] {
        let led = ("c", candidate("3", 0, Some(term)));
        let marks = marks(&[waits.clone(), led]);
        assert_eq!(marks.still_await("b", 5), goes_on, "{term}");
    }
    let leads = marks(&[("b", candidate("2", 0, Some(5)))]);
    assert!(!leads.still_await("b", 5));
}

#[test]
fn a_candidate_stands_aside_for_a_third_of_a_lease_in_each_lease() {
    let (begun, lease) = (Clock::Boot.now(), Duration::from_secs(30));
    let third = lease / PARTS;
    let mut patience = Patience::default();
    assert_eq!(patience.left(begun, lease), third);
    patience.begin(begun, lease, 5);
    for (used, left) in [(0, 10), (4, 6), (10, 0), (29, 0), (30, 10), (31, 10)] {
        let now = begun + Duration::from_secs(used);
        let left = Duration::from_secs(left);
        assert_eq!(patience.left(now, lease), left, "after {used} s");
    }
    // It stands aside once more within the lease: the time goes on.
    let later = begun + lease / 2;
    patience.begin(later, lease, 6);
    assert_eq!((patience.since, patience.given_back), (Some(begun), 6));
    let next = begun + lease;
    patience.begin(next, lease, 7);
    assert_eq!((patience.since, patience.given_back), (Some(next), 7));
}

#[test]
fn a_name_is_read_as_it_was_written_and_an_erased_one_names_nobody() {
    for identity in ["web-1", "a b=c%", "ü"] {
        let text = named(identity, 7);
        let read = NamedSuccessor::from_text(&text).unwrap();
        assert_eq!((&*read.identity, read.term), (identity, 7));
    }
    let later = format!("{} colour=red", named("web-1", 7));
    assert_eq!(NamedSuccessor::from_text(&later).unwrap().identity, "web-1");
    for other in [
        "",
        "successor1 term=7",
        "successor1 identity=a",
        "successor2 term=7 identity=a",
    ] {
        assert_eq!(NamedSuccessor::from_text(other), None, "{other}");
    }
}

#[test]
fn a_transfer_that_failed_says_why() {
    let error = || Error::new(ErrorKind::Unavailable);
    let failed = NotTransferred::<u8>::from(error());
    let said = format!("the leadership was not transferred: {}", error());
    assert_eq!(failed.to_string(), said);
    let source = failed.source().map(ToString::to_string);
    assert_eq!(source, Some(error().to_string()));
    assert!(failed.leadership.is_none());
    assert!(NotTransferred::leads_on(7, error()).leadership.is_some());
}
