//! Places in the queue: who takes one, and whose rows a forced release removes.

use super::*;

#[test]
fn only_a_ticket_that_is_kept_out_takes_a_place() {
    let file = File::new();
    let now = file.at(0);
    enters(&now, &reader(&file));
    let takes_place = |ticket: &Ticket| {
        let left = now.wait_behind_holders(ticket, LEASE, FairPosition::Last);
        left.unwrap()
    };
    assert_eq!(takes_place(&reader(&file)), None, "it may enter");
    assert!(waiters(&now).is_empty());
    let waiter = writer(&file);
    assert_eq!(takes_place(&waiter), Some(LEASE));
    assert_eq!(waiters(&now), owners([&waiter]));
}

/// Otherwise the rows of the holders would stay in the file, although they count no longer.
#[test]
fn a_forced_release_removes_the_rows_of_all_holders_and_of_no_waiter() {
    let file = File::new();
    let now = file.at(0);
    for _ in 0..2 {
        enters(&now, &reader(&file));
    }
    let waiter = writer(&file);
    waits(&now, &waiter);
    assert!(now.force_release(&waiter.name).unwrap());
    let all = "SELECT group_concat(owner) FROM sides";
    let left = file.connection.query_row(all, [], |row| row.get(0));
    let left: String = left.unwrap();
    assert_eq!(left, waiter.owner.text());
}
