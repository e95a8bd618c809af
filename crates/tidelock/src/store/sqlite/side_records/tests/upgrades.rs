//! Upgradeable readers in the rows: who waits for whom, and what is upgraded.

use super::*;

fn upgrading(file: &File, reader: &Ticket) -> Ticket {
    let mut ticket = writer(file);
    ticket.owner = ticket.owner.upgrading(&reader.owner);
    ticket
}

fn upgrade(
    now: &LockTransaction<'_>,
    ticket: &Ticket,
    reader: &Ticket,
    position: FairPosition,
) -> Decision {
    let follows = Follows::Upgradeable(&reader.owner);
    now.attempt_side(ticket, LEASE, position, follows).unwrap()
}

#[test]
fn an_upgrade_waits_for_the_readers_inside_ahead_of_all_others() {
    let file = File::new();
    let upgradeable = || file.ticket(LockKind::UpgradeableRead);
    let (held, inside, second) = (upgradeable(), reader(&file), upgradeable());
    let (waiting, late) = (writer(&file), reader(&file));
    enters(&file.at(0), &held);
    enters(&file.at(0), &inside);
    waits(&file.at(0), &second);
    waits(&file.at(0), &waiting);
    let promoted = upgrading(&file, &held);
    for position in [FairPosition::None, FairPosition::Last, FairPosition::Last] {
        let refused = upgrade(&file.at(1), &promoted, &held, position);
        assert!(matches!(refused, Decision::Held(_)), "{refused:?}");
        let first = match position {
            FairPosition::None => &second,
            _ => &promoted,
        };
        assert_eq!(waiters(&file.at(1))[..1], owners([first]));
    }
    waits(&file.at(1), &late);
    file.at(2).release(&inside).unwrap();
    assert_eq!(file.at(2).serve("n").unwrap(), owners([&promoted]));
    for _ in 0..2 {
        let entered = upgrade(&file.at(2), &promoted, &held, FairPosition::Last);
        assert!(
            matches!(entered, Decision::Granted(Some(3), 0)),
            "{entered:?}"
        );
    }
    assert!(renews(&file.at(2), &held) && renews(&file.at(2), &promoted));
    file.at(3).release(&promoted).unwrap();
    assert!(
        file.at(3).serve("n").unwrap().is_empty(),
        "a second one and a writer wait"
    );
    assert_eq!(holders(&file.at(3)), owners([&held]));
    file.at(3).release(&held).unwrap();
    assert_eq!(file.at(3).serve("n").unwrap(), owners([&second]));
}

#[test]
fn only_a_live_upgradeable_reader_is_upgraded() {
    let file = File::new();
    let (held, plain) = (file.ticket(LockKind::UpgradeableRead), reader(&file));
    enters(&file.at(0), &held);
    enters(&file.at(0), &plain);
    let wrong = upgrading(&file, &plain);
    let refused = upgrade(&file.at(0), &wrong, &plain, FairPosition::Last);
    assert!(matches!(refused, Decision::NotFollowed), "{refused:?}");
    let late = upgrading(&file, &held);
    let refused = upgrade(&file.at(30), &late, &held, FairPosition::Last);
    assert!(matches!(refused, Decision::NotFollowed), "{refused:?}");
    assert!(waiters(&file.at(30)).is_empty());
}

/// It is never granted, so it must not stand in the way of others.
#[test]
fn an_upgrade_whose_reader_was_lost_keeps_nobody_out() {
    let file = File::new();
    let (held, inside) = (file.ticket(LockKind::UpgradeableRead), reader(&file));
    let (promoted, behind) = (upgrading(&file, &held), writer(&file));
    enters(&file.at(0), &held);
    enters(&file.at(20), &inside);
    let waiting = upgrade(&file.at(29), &promoted, &held, FairPosition::Last);
    assert!(matches!(waiting, Decision::Held(_)), "{waiting:?}");
    waits(&file.at(29), &behind);
    assert_eq!(waiters(&file.at(29)), owners([&promoted, &behind]));
    // The lease of its reader has ended.
    let queue = file.at(30).side_queue("n").unwrap();
    assert!(queue.dead.contains(&promoted.owner.to_string()));
    assert_eq!(waiters(&file.at(30)), owners([&behind]));
    file.at(30).release(&inside).unwrap();
    assert_eq!(file.at(30).serve("n").unwrap(), owners([&behind]));
}
