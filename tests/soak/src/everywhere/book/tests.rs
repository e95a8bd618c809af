//! Each rule finds what breaks it, and nothing else.

use super::*;

const LEASE: u64 = 1_000;

/// An entry of a process at a moment, sure for a lease.
fn entry(kind: Kind, mode: Mode, who: u16, from: u64) -> Record {
    let mut record = Record::new(What::Enters, kind);
    (record.mode, record.slot) = (mode, who);
    (record.from, record.until) = (from, from + LEASE);
    record.amount = 1;
    record
}

fn next(record: &Record, what: What, at: u64) -> Record {
    Record {
        what,
        from: at,
        ..*record
    }
}

/// The rules that these records break, in the order of the records.
fn broken(records: &[Record]) -> Vec<String> {
    let mut book = Book::default();
    let found = records.iter().flat_map(|record| book.take(record, false));
    let texts = found.filter_map(|finding| match finding {
        Finding::Broken(text) => Some(text),
        Finding::Note(_) => None,
    });
    texts.collect()
}

#[test]
fn two_writers_at_once_are_found() {
    let one = entry(Kind::Lock, Mode::Alone, 1, 10);
    let two = entry(Kind::Fenced, Mode::Alone, 2, 20);
    assert_eq!(broken(&[one, two]).len(), 1);
    let leaves = next(&one, What::Leaves, 15);
    assert!(broken(&[one, leaves, two]).is_empty());
}

#[test]
fn a_claim_that_has_run_out_excludes_nobody() {
    let one = entry(Kind::Lock, Mode::Alone, 1, 10);
    let two = entry(Kind::Lock, Mode::Alone, 2, 10 + LEASE);
    assert!(broken(&[one, two]).is_empty());
    // It was renewed meanwhile.
    let kept = Record {
        until: 500 + LEASE,
        ..next(&one, What::Keeps, 500)
    };
    assert_eq!(broken(&[one, kept, two]).len(), 1);
}

#[test]
fn readers_share_and_writers_do_not() {
    let reads = |who, from| entry(Kind::Read, Mode::Reads, who, from);
    let upgradeable = entry(Kind::Upgradeable, Mode::ReadsUpgradeably, 3, 30);
    assert!(broken(&[reads(1, 10), reads(2, 20), upgradeable]).is_empty());
    let writer = entry(Kind::Write, Mode::Alone, 4, 40);
    assert_eq!(broken(&[reads(1, 10), writer]).len(), 1);
    let second = Record {
        slot: 4,
        ..upgradeable
    };
    assert_eq!(broken(&[upgradeable, second]).len(), 1);
}

#[test]
fn an_upgrade_beside_a_reader_is_found() {
    let reader = entry(Kind::Read, Mode::Reads, 1, 10);
    let upgradeable = entry(Kind::Upgradeable, Mode::ReadsUpgradeably, 2, 20);
    let upgrade = Record {
        until: 30 + LEASE,
        ..next(&upgradeable, What::Upgrades, 30)
    };
    assert_eq!(broken(&[reader, upgradeable, upgrade]).len(), 1);
    let leaves = next(&reader, What::Leaves, 25);
    assert!(broken(&[reader, upgradeable, leaves, upgrade]).is_empty());
    let reads = next(&upgradeable, What::Downgrades, 40);
    let later = entry(Kind::Read, Mode::Reads, 3, 50);
    let records = [reader, upgradeable, leaves, upgrade, reads, later];
    assert!(broken(&records).is_empty());
}

#[test]
fn a_downgraded_writer_lets_readers_in_and_no_writer() {
    let writer = entry(Kind::Write, Mode::Alone, 1, 10);
    let reads = next(&writer, What::Downgrades, 20);
    let reader = entry(Kind::Read, Mode::Reads, 2, 30);
    let second = entry(Kind::Write, Mode::Alone, 3, 40);
    assert!(broken(&[writer, reads, reader]).is_empty());
    assert_eq!(broken(&[writer, reads, second]).len(), 1);
}

#[test]
fn permits_that_are_too_many_are_found() {
    let takes = |who, amount| Record {
        amount,
        ..entry(Kind::Permits, Mode::Permits, who, 10)
    };
    assert!(broken(&[takes(1, 3), takes(2, 2)]).is_empty());
    assert_eq!(broken(&[takes(1, 3), takes(2, 3)]).len(), 1);
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    let holds = |who, from, token| Record {
        token,
        until: from + 5,
        ..entry(Kind::Fenced, Mode::Alone, who, from)
    };
    assert!(broken(&[holds(1, 10, 7), holds(2, 20, 8)]).is_empty());
    assert_eq!(broken(&[holds(1, 10, 7), holds(2, 20, 7)]).len(), 1);
    // Its guard knows that it is late.
    let late = Record {
        until: 20,
        ..holds(2, 20, 6)
    };
    assert!(broken(&[holds(1, 10, 7), late]).is_empty());
}

#[test]
fn a_latch_that_opens_too_early_is_found() {
    let set = Record::new(What::Sets, Kind::Latch);
    let count = Record {
        amount: 1,
        ..Record::new(What::Counts, Kind::Latch)
    };
    assert!(broken(&[set, count, count, count, set]).is_empty());
    assert_eq!(broken(&[set, count, count, set]).len(), 1);
}

#[test]
fn a_surplus_of_count_downs_hides_nothing_in_the_next_turn() {
    let tells = |what, mark| Record {
        amount: 1,
        mark,
        ..Record::new(what, Kind::Latch)
    };
    let (set, count) = (tells(What::Sets, 2), tells(What::Counts, 2));
    let late = tells(What::Counts, 1);
    let after_a_surplus = |more: &[Record]| {
        let mut records = vec![tells(What::Sets, 1)];
        records.extend([late; 9]);
        records.extend_from_slice(more);
        broken(&records)
    };
    assert_eq!(after_a_surplus(&[set, count, count, set]).len(), 1);
    // A process that stood still counts the latch of this turn down, and tells the turn in which it began.
    assert!(after_a_surplus(&[set, count, count, late, set]).is_empty());
}

#[test]
fn a_member_that_enters_alone_is_found() {
    let enters = |who| entry(Kind::Barrier, Mode::Permits, who, 20);
    let comes = |who| next(&enters(who), What::Comes, 10);
    let goes = |who| next(&enters(who), What::Goes, 30);
    let together = [comes(1), comes(2), enters(1), enters(2)];
    assert!(broken(&together).is_empty());
    // The other one may have left and gone before this one tells that it is inside.
    let leaves = next(&enters(1), What::Leaves, 25);
    let apart = [comes(1), comes(2), enters(1), leaves, goes(1), enters(2)];
    assert!(broken(&apart).is_empty());
    assert_eq!(broken(&[comes(1), enters(1)]).len(), 1);
    assert_eq!(broken(&[comes(1), goes(1), comes(2), enters(2)]).len(), 1);
}

#[test]
fn a_slot_that_is_run_twice_is_found() {
    let runs = |who, from| Record {
        mark: 99,
        ..entry(Kind::Once, Mode::Alone, who, from)
    };
    let ends = |record: &Record, what| next(record, what, record.from + 1);
    let (one, two) = (runs(1, 10), runs(2, 20));
    let left = ends(&one, What::Leaves);
    let after = [one, left, ends(&one, What::Succeeds), two];
    assert_eq!(broken(&after).len(), 1);
    // The second one came before the first could tell that it had succeeded.
    let before = [one, left, two, ends(&one, What::Succeeds)];
    assert_eq!(broken(&before).len(), 1);
    // The mark of the first has ended.
    let late = runs(2, 10 + MARKS_STAY * 1_000_000);
    assert!(broken(&[one, left, ends(&one, What::Succeeds), late]).is_empty());
    let failed = [one, ends(&one, What::Fails), two];
    assert!(broken(&failed).is_empty());
}

#[test]
fn a_dead_process_claims_nothing() {
    let mut book = Book::default();
    let one = entry(Kind::Lock, Mode::Alone, 1, 10);
    assert!(book.take(&one, false).is_empty());
    assert_eq!(book.void((1, 0)).len(), 1);
    let two = entry(Kind::Lock, Mode::Alone, 2, 20);
    assert!(book.take(&two, false).is_empty());
}
