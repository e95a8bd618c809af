//! Keys of other clients that have the name of a ticket's key.

use super::*;

/// Taken for its own, the key would give it permits that the other client holds.
#[test]
fn a_key_of_another_owner_is_refused_whether_it_holds_or_waits() {
    for total in [1, 0] {
        let mut etcd = ModelEtcd::default();
        etcd.set_number(total);
        assert_eq!(ticket(1, 1).goes_on(&mut etcd), total == 1);
        let TestTicket { keys, .. } = ticket(1, 1);
        let view = PermitView::of(&keys, &etcd.txn(&keys.look())).unwrap();
        let refused = keys.step(&view, "another:1", true, 7).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType, "{total}");
    }
}
