//! The macro that generates one test per promise about barriers.

/// Generates one test per promise about barriers, each with its own fixture.
///
/// - `conformance_of_barriers!(Fixture::memory())` is for a store with marks and read-write locks.
/// - `conformance_of_barriers!(faces: …)` is for one with injected faults.
/// - `conformance_of_barriers!(none: …)` is for a store that has no barriers.
#[macro_export]
macro_rules! conformance_of_barriers {
    (faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; barrier:
            members_enter_together_and_leave_together
            uses_of_a_barrier_do_not_mix
            a_further_member_waits_for_the_next_use
            members_that_name_another_number_are_refused
        );
        $crate::conformance!(@tests $fixture; barrier_faults:
            a_cancelled_member_leaves_nothing_behind
            a_dropped_member_has_left
            a_close_ends_the_members_of_its_client
        );
    };
    (none: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; barrier:
            a_store_without_barriers_refuses_them
        );
    };
    ($fixture:expr) => {
        $crate::conformance!(@tests $fixture; barrier:
            the_last_member_wakes_the_others
            a_member_whose_time_is_over_leaves_nothing
            a_time_limit_meets_the_last_member
        );
        $crate::conformance!(@tests $fixture; barrier_faults:
            a_member_that_dies_before_is_not_counted
            a_member_that_dies_inside_does_not_hold_up_the_others
            a_waiting_member_is_told_of_its_loss
            a_member_that_leaves_is_told_of_its_loss
            a_member_whose_replies_are_lost_enters_once
        );
        $crate::conformance_of_barriers!(faces: $fixture);
    };
}
