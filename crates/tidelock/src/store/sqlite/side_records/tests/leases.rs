//! Whose lease counts, how long an unconfirmed grant lasts, and how many turns are ahead.

use super::*;
use crate::store::beats::ALIVE;
use crate::types::OwnerMint;

/// Otherwise nobody would find the lock free until its row is read.
#[test]
fn the_row_of_the_lock_goes_with_the_last_holder_whose_lease_has_not_ended() {
    let file = File::new();
    let [ended, last] = [reader(&file), reader(&file)];
    enters(&file.at(0), &ended);
    enters(&file.at(20), &last);
    assert_eq!(file.at(31).release(&last).unwrap(), Released::Freed);
    assert_eq!(file.owner(), None);
}

/// Those may have left, and would keep writers out for nothing.
#[test]
fn an_attempt_lets_other_readers_in_for_a_short_time_only() {
    let file = File::new();
    let (held, first, asks) = (writer(&file), reader(&file), reader(&file));
    enters(&file.at(0), &held);
    waits(&file.at(29), &first);
    waits(&file.at(29), &asks);
    enters(&file.at(30), &asks);
    let queue = file.at(30).side_queue("n").unwrap();
    let holders = queue.holders.iter();
    let left: Vec<_> = holders.map(|row| (row.owner.as_str(), row.left)).collect();
    let (first, asks) = (first.owner.text(), asks.owner.text());
    assert_eq!(left, [(first, ALIVE), (asks, LEASE)]);
}

#[test]
fn a_look_counts_the_turns_ahead_of_the_first_waiter_of_a_process() {
    let (file, mint) = (File::new(), OwnerMint::new());
    enters(&file.at(0), &writer(&file));
    for ahead in [reader(&file), reader(&file), writer(&file)] {
        waits(&file.at(0), &ahead);
    }
    for ticket in [writer(&file), reader(&file)] {
        let owner = mint.fresh();
        waits(&file.at(0), &Ticket { owner, ..ticket });
    }
    let client = mint.client().as_str();
    let (look, due) = file.at(0).look_at_queue("n", client).unwrap();
    // The readers have one turn.
    assert_eq!((look.waiting.len(), look.ahead, due), (2, 2, false));
}
