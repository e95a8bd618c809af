//! Removals of a place in the queue that arrive late, or twice.

use super::*;

/// An attempt without patience gives its place up. A copy of its request arrives when another attempt of the same ticket has taken
/// a place again, or has got its permits.
#[test]
fn a_late_removal_leaves_the_place_that_was_taken_again() {
    for gets in [false, true] {
        let mut etcd = ModelEtcd::default();
        etcd.set_number(2);
        let (mut holder, mut waits) = (ticket(1, 2), ticket(2, 1));
        assert!(holder.goes_on(&mut etcd) && !waits.goes_on(&mut etcd));
        let view = waits.view.as_ref().unwrap();
        let revision = view.place(&waits.keys).unwrap().revision;
        let removal = waits.keys.removal(&waits.owner, false, Some(revision));
        assert!(etcd.txn(&removal).succeeded);
        if gets {
            holder.leaves(&mut etcd);
        }
        assert_eq!(waits.asks_again(&mut etcd), gets);
        assert!(!etcd.txn(&removal).succeeded, "gets: {gets}");
        let view = PermitView::of(&waits.keys, &etcd.txn(&waits.keys.look())).unwrap();
        assert!(view.has_key_of(&waits.keys), "gets: {gets}");
    }
}

/// The keys of a ticket may have the name of those of an earlier one, with another owner.
#[test]
fn a_late_removal_leaves_the_place_of_another_ticket() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(1);
    assert!(ticket(1, 1).goes_on(&mut etcd));
    let earlier = ticket(2, 1);
    let removals = [false, true].map(|held| earlier.keys.removal(&earlier.owner, held, None));
    let mut later = TestTicket {
        owner: "later:1".to_owned(),
        ..ticket(2, 1)
    };
    assert!(!later.goes_on(&mut etcd));
    for removal in removals {
        assert!(!etcd.txn(&removal).succeeded);
    }
    let view = PermitView::of(&later.keys, &etcd.txn(&later.keys.look())).unwrap();
    assert!(view.place(&later.keys).is_some());
}
