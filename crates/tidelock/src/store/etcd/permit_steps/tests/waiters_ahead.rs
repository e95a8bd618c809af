//! The waiter ahead that a waiter waits for.

use super::*;

/// One that asks for more than there are keeps nobody out. Its end would wake nobody, and the end of the other one would be
/// missed.
#[test]
fn a_waiter_waits_for_the_last_one_ahead_that_does_not_ask_for_too_many() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(4);
    assert!(ticket(1, 4).goes_on(&mut etcd));
    let (mut ahead, mut passed_over, mut last) = (ticket(2, 3), ticket(3, 9), ticket(4, 1));
    for one in [&mut ahead, &mut passed_over, &mut last] {
        assert!(!one.goes_on(&mut etcd));
    }
    let view = last.view.as_ref().unwrap();
    let (turn, before) = view.turn(&last.keys);
    assert_eq!(turn, PermitTurn::Waits);
    let before = before.map(|before| &*before.key);
    assert_eq!(before, Some(ahead.keys.waiting()));
}
