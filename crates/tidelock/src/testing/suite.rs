//! The macro that generates one test per promise.

/// Generates one test per promise, each with its own fixture: `conformance!(Fixture::memory())`.
///
/// - `conformance!(faces: …)` omits the promises about the bare store. Injected faults do not affect it.
/// - `conformance!(blocking: …)` also omits the promises that only futures can keep.
/// - `conformance!(read_write: …)` adds the promises of a store with read-write locks.
/// - `conformance!(fair: …)` adds the promises of a store with fair locks, `shown fair` of one that shows their queues.
/// - `hashed`, `hashed faces` and `hashed blocking` are for a store that keeps a lock as a number, and no longer than
///   the client's lease. They omit names and owners as other clients see them, and extensions beyond the lease.
///
/// The test crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance!(@tests $fixture; names:
            a_nasty_name_is_nothing_but_a_name
            every_good_name_works
        );
        $crate::conformance!(@tests $fixture; lease:
            an_extended_lease_lasts_longer
        );
        $crate::conformance!(hashed: $fixture);
    };
    (faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; names:
            every_good_name_works
        );
        $crate::conformance!(@tests $fixture; lease:
            an_extended_lease_lasts_longer
        );
        $crate::conformance!(hashed faces: $fixture);
    };
    (blocking: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; names:
            every_good_name_works
        );
        $crate::conformance!(hashed blocking: $fixture);
    };
    (hashed: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; contract:
            an_acquire_after_its_withdrawal_takes_no_effect
            a_withdrawal_frees_what_was_held
            a_repeated_attempt_neither_counts_nor_shortens
            attempts_of_one_ticket_that_meet_are_one
            a_withdrawal_that_meets_its_attempt_touches_nobody_else
            a_renewal_never_shortens
            a_batch_answers_each_name_apart
            a_strangers_release_changes_nothing
            a_refusal_says_when_to_ask_again
        );
        $crate::conformance!(@tests $fixture; force:
            a_loss_is_told_also_after_a_lost_reply
        );
        $crate::conformance!(hashed faces: $fixture);
    };
    (hashed faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; cancel:
            an_acquire_dropped_anywhere_leaves_nothing
            a_wait_dropped_anywhere_leaves_nothing
            a_release_dropped_anywhere_still_releases
            an_extension_dropped_anywhere_harms_nothing
            an_acquire_left_without_a_reply_is_withdrawn
            a_cancelled_wait_passes_its_wake_on
            a_panic_releases
            a_guard_dropped_outside_a_runtime_releases
            the_end_of_a_runtime_leaves_nothing
            dropped_at_random_moments_4000
            an_owner_that_leaves_blocks_nobody
        );
        $crate::conformance!(@tests $fixture; reentry:
            the_last_guard_out_releases
            guards_released_together_release
            a_reentry_costs_no_trip
            an_explicit_owner_reenters
            an_owner_in_two_tasks_shares_one_hold
            an_owner_holds_per_client
            a_lost_hold_is_not_reentered
        );
        $crate::conformance!(@tests $fixture; close:
            closing_meets_an_acquire_anywhere
        );
        $crate::conformance!(@tests $fixture; fenced:
            a_reentry_keeps_the_token
            an_owner_without_a_token_is_refused_one
            a_raise_ends_hand_offs_with_reserved_tokens
        );
        $crate::conformance!(hashed blocking: $fixture);
    };
    (read_write: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; read_write:
            readers_share
            a_writer_excludes_all
            readers_and_writers_never_meet
            the_first_to_come_is_the_first_to_go
            a_writer_is_not_starved_by_readers
            readers_behind_a_writer_enter_together
            a_waiter_that_leaves_lets_those_behind_it_pass
            a_wait_for_a_side_dropped_anywhere_leaves_nothing
            a_reader_is_told_of_its_loss_before_a_writer_has_the_lock
            a_reader_that_vanishes_is_followed_by_a_writer
            a_writer_may_read_and_stays_alone
            a_reader_that_wants_to_write_is_refused
            force_ends_every_reader
        );
        $crate::conformance!(@tests $fixture; delay:
            a_delay_keeps_back_both_sides
        );
    };
    (fair: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; fair:
            fair_waiters_are_served_in_order_of_arrival
            a_try_does_not_overtake_the_queue
            a_fair_waiter_that_leaves_lets_those_behind_it_pass
            a_wait_for_a_fair_lock_dropped_anywhere_leaves_nothing
            a_fair_holder_that_vanishes_is_followed_by_the_next
            a_forced_release_hands_over_to_the_next
            fair_tokens_grow_in_the_order_of_the_queue
        );
    };
    (shown fair: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; fair:
            the_queue_is_shown_in_its_order
        );
        $crate::conformance!(fair: $fixture);
    };
    (hashed blocking: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; mutex:
            one_holder_at_a_time
            a_refused_try_changes_nothing
            a_dropped_guard_releases
            a_release_is_done_when_it_returns
            two_acquisitions_of_one_task_exclude_each_other
            inspect_shows_the_holder
            list_finds_what_is_held
        );
        $crate::conformance!(@tests $fixture; wake:
            a_waiter_gets_the_lock_when_it_is_released
            every_waiter_gets_its_turn
            wakes_reach_someone_who_is_still_waiting
            a_dropped_waiter_leaves_nothing
            names_do_not_wait_for_each_other
        );
        $crate::conformance!(@tests $fixture; lease:
            a_kept_lease_is_renewed
            a_lease_of_ones_own_is_renewed
            expires_after_ends_and_is_told_before_another_gets_it
            max_hold_is_told
            a_crashed_holder_is_followed_within_its_lease
            release_after_loss_never_touches_the_next_holder
            a_lost_renewal_reply_loses_nothing
        );
        $crate::conformance!(@tests $fixture; delay:
            a_hold_that_ended_by_itself_leaves_a_delay
            a_release_leaves_no_delay
            force_overrules_a_delay
            a_delay_ends_also_for_those_who_only_try
        );
        $crate::conformance!(@tests $fixture; sequencer:
            a_sequencer_is_good_while_its_hold_has_the_lock
            a_sequencer_of_a_lost_hold_is_refused
        );
        $crate::conformance!(@tests $fixture; state:
            a_holder_is_unsure_before_it_has_lost
        );
        $crate::conformance!(@tests $fixture; cancel:
            a_lost_reply_is_cleaned_up
            a_lost_release_reply_is_no_error
        );
        $crate::conformance!(@tests $fixture; fenced:
            tokens_only_grow
            a_fenced_lock_excludes_a_plain_one
            inspect_shows_the_token
            a_raised_token_is_never_undercut
            a_raise_leaves_the_holder_alone
            a_raise_without_a_reply_is_repeated
        );
        $crate::conformance!(@tests $fixture; force:
            force_release_wakes_and_is_told
            forcing_a_free_lock_says_so
        );
        $crate::conformance!(@tests $fixture; close:
            a_closed_client_refuses
            closing_tells_and_gives_a_grace
            the_end_of_the_grace_is_told_as_a_loss
            closing_releases_the_rest
            closing_waits_for_releases_under_way
            closing_ends_waits
            closing_stops_renewals
        );
        $crate::conformance!(@tests $fixture; names:
            bad_names_are_refused_before_traffic
            a_prefix_makes_no_name
        );
        $crate::conformance!(@tests $fixture; options:
            senseless_durations_are_refused
            a_wait_ends_in_time
            a_wait_of_zero_asks_once
            a_cancelled_wait_ends
            a_cancel_that_was_fired_before_stops_it_at_once
        );
    };
    (@tests $fixture:expr; $file:ident: $($promise:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $promise() {
                $crate::testing::promises::$file::$promise(&$fixture).await;
            }
        )*
    };
}
