//! The macro that generates one test per promise, and the runtime of such a test.

use tokio::runtime::Builder;

use super::fixture::Fixture;

/// Runs one promise of the suite: on four threads, or on a [simulated](Fixture::simulated) clock.
/// [`conformance!`](crate::conformance) generates a test that calls it.
pub fn keep(fixture: fn() -> Fixture, promise: impl AsyncFnOnce(&Fixture)) {
    let fixture = fixture();
    let runtime = if fixture.is_simulated() {
        Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
    } else {
        Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
    };
    runtime.expect("a runtime").block_on(async {
        promise(&fixture).await;
        fixture.until_nothing_is_left().await;
        drop(fixture); // a server that it keeps may need the runtime to end
    });
}

/// Generates one test per promise, each with its own fixture: `conformance!(Fixture::memory())`.
///
/// - `conformance!(faces: …)` omits the promises about the bare store. Injected faults do not affect it.
/// - `conformance!(blocking: …)` also omits the promises that only futures can keep.
/// - `conformance!(cancel: …)` has only the promises about futures that are dropped.
/// - `conformance!(read_write: …)` adds the promises of a store with read-write locks.
/// - `conformance!(upgrade: …)` adds those of a store whose read-write locks have upgradeable readers.
/// - `conformance!(positions: …)` adds the promise of a store with read-write locks that tells waiters how many are ahead.
/// - `conformance!(fair: …)` adds the promises of a store with fair locks, `shown fair` of one that shows their queues.
/// - `conformance!(spin: …)` adds the promises of a store with spin locks.
/// - `conformance!(once: …)` is for a store that keeps marks, `once with faults` for injected faults, `no once` for others.
/// - `conformance!(election: …)` adds the promises of a store with elections, `ordered election` of one with fair locks;
///   `no election` is for a store that keeps no marks.
/// - `conformance!(permits: …)` adds the promises of a store with semaphores, `permits faces` without the bare store.
/// - `conformance!(counting: …)` adds those of a store with counting semaphores, `counting faces` without the bare store.
/// - `conformance!(latch: …)` adds the promises of a store with latches, `latch faces` without the bare store.
/// - [`conformance_of_barriers!`](crate::conformance_of_barriers) has the promises about barriers.
/// - [`conformance_at_every_await!`](crate::conformance_at_every_await) drops each operation at each of its await points.
/// - `hashed`, `hashed faces` and `hashed blocking` are for a store that keeps a lock as a number, and no longer than
///   the client's lease. They omit names and owners as other clients see them, and extensions beyond the lease.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance!(@tests $fixture; names:
            a_nasty_name_is_nothing_but_a_name every_good_name_works
        );
        $crate::conformance!(@tests $fixture; kinds: kinds_that_a_store_lacks_are_refused_before_any_traffic);
        $crate::conformance!(@tests $fixture; lease: an_extended_lease_lasts_longer);
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
        $crate::conformance!(@tests $fixture; upgrade:
            a_store_without_upgradeable_readers_says_so
        );
        $crate::conformance!(hashed faces: $fixture);
    };
    (hashed faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; cancel:
            dropped_at_random_moments_4000
            an_owner_that_leaves_blocks_nobody
        );
        $crate::conformance!(cancel: $fixture);
        $crate::conformance!(@tests $fixture; reentry:
            the_last_guard_out_releases
            guards_released_together_release
            a_reentry_costs_no_trip
            an_explicit_owner_reenters
            an_owner_in_two_tasks_shares_one_hold
            an_owner_holds_per_client
            an_owner_does_not_reenter_a_non_reentrant_lock
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
    (cancel: $fixture:expr) => {
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
        );
    };
    (read_write: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; read_write:
            readers_share a_writer_excludes_all readers_and_writers_never_meet
            the_first_to_come_is_the_first_to_go a_writer_is_not_starved_by_readers
            readers_behind_a_writer_enter_together
            a_waiter_that_leaves_lets_those_behind_it_pass
            a_wait_for_a_side_dropped_anywhere_leaves_nothing
            a_reader_is_told_of_its_loss_before_a_writer_has_the_lock
            a_reader_that_vanishes_is_followed_by_a_writer
            a_writer_may_read_and_stays_alone a_reader_that_wants_to_write_is_refused
            force_ends_every_reader
        );
        $crate::conformance!(@tests $fixture; side_requests: attempts_of_a_reader_that_meet_wait_for_the_writer);
        $crate::conformance!(@tests $fixture; holds: holds_of_all_kinds_are_renewed_together);
        $crate::conformance!(@tests $fixture; force_sides: a_forced_release_of_seen_readers_spares_a_new_one a_reader_that_has_died_is_not_shown);
        $crate::conformance!(@tests $fixture; downgrade:
            a_writer_becomes_a_reader_without_a_gap
            readers_that_come_next_enter_at_a_downgrade
            a_writer_that_was_lost_is_not_downgraded
            only_the_last_guard_of_a_writer_is_downgraded
            an_owner_reenters_what_it_was_downgraded_to
            a_downgrade_passes_an_acquisition_of_its_owner_that_waits_for_the_writer
            a_downgrade_dropped_anywhere_leaves_nothing
        );
        $crate::conformance!(@tests $fixture; delay:
            a_delay_keeps_back_both_sides
        );
    };
    (upgrade: $fixture:expr) => {
        $crate::conformance_of_upgrades!($fixture);
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
    (spin: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; spin:
            a_spin_lock_excludes_the_other_locks_of_its_name waiters_that_spin_all_have_their_turn
            a_spin_lock_wakes_those_who_wait_for_a_message
            a_wait_for_a_spin_lock_dropped_anywhere_leaves_nothing
            a_spin_holder_that_vanishes_is_followed_by_another
            tokens_grow_across_the_kinds_of_a_name
        );
    };
    (positions: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; positions: a_refused_ticket_is_told_how_many_are_ahead);
    };
    (once: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; processes:
            a_process_tells_what_it_holds_and_waits_for a_process_tells_what_it_leads_and_runs
        );
        $crate::conformance!(@tests $fixture; once:
            a_slot_is_run_once_by_many each_slot_has_its_run
            a_failed_attempt_is_made_again_and_no_more_than_allowed a_crashed_run_is_followed_by_another
            a_run_that_takes_too_long_is_dropped_and_has_failed
            history_begins_with_the_newest a_mark_is_kept_as_long_as_asked an_attempt_that_waits_begins_after_its_wait
            a_run_dropped_at_every_await_is_made_again senseless_jobs_are_refused_before_traffic
            a_close_ends_the_calls_that_wait_for_the_store
        );
        $crate::conformance!(@tests $fixture; once_marks:
            a_run_that_outlives_its_mark_ends_well the_newest_mark_comes_before_one_that_is_kept_longer
            a_mark_that_is_missing_is_not_replaced
        );
        $crate::conformance!(@tests $fixture; once_faults:
            a_run_whose_acquire_had_no_reply_is_run_once a_lost_reply_is_no_second_run
        );
        $crate::conformance!(@tests $fixture; once_reports:
            a_job_longer_than_its_lock_runs_once
            at_least_for_is_the_slot_and_no_window
            a_fast_job_with_shifted_tickers_runs_on_one_instance
        );
    };
    (election: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; election:
            one_candidate_leads_at_a_time
            a_lock_of_the_same_name_excludes_the_leader
            a_work_that_fails_is_followed_by_another_term
            a_closing_leader_ends_its_work_before_it_resigns
            a_sick_candidate_does_not_lead the_tasks_of_a_term_are_told_when_it_ends
            nobody_leads_during_the_delay_after_a_loss
            a_campaign_dropped_anywhere_leaves_nothing
            senseless_elections_are_refused_before_traffic
            a_job_of_the_same_name_keeps_its_marks_apart
        );
        $crate::conformance!(@tests $fixture; election_faults:
            a_candidate_that_never_led_is_not_told_that_it_stopped
            a_leader_that_was_lost_campaigns_again
            a_failed_campaign_leaves_no_candidate
            a_campaign_without_an_answer_ends_when_it_is_cancelled
            an_election_without_a_reply_is_won_once
            a_resignation_without_a_reply_is_not_forgotten
            a_candidate_that_died_is_no_zombie
            observers_are_told_that_nobody_leads
            an_observer_ends_when_its_client_closes
        );
        $crate::conformance!(@tests $fixture; successor:
            a_leadership_is_transferred_to_the_named_candidate
            a_work_names_who_leads_next
            a_transfer_to_nobody_leads_on a_candidate_that_has_left_is_not_named
            a_candidate_with_a_higher_priority_leads_first
            a_named_candidate_that_has_died_keeps_nobody_from_leading
            a_high_priority_that_has_died_keeps_nobody_from_leading
            a_transfer_dropped_anywhere_resigns
        );
    };
    (ordered election: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; election: candidates_in_order_lead_in_order);
        $crate::conformance!(@tests $fixture; successor: a_leadership_in_order_is_transferred_to_the_named_candidate);
    };
    (no election: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; election: a_store_without_marks_refuses_an_election);
    };
    (once with faults: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; once: a_slot_with_faults_is_run_again_only_after_an_error);
    };
    (no once: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; processes:
            a_store_without_marks_lists_no_processes
        );
        $crate::conformance!(@tests $fixture; once:
            a_store_without_marks_refuses_a_job
        );
    };
    (shown fair: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; fair:
            the_queue_is_shown_in_its_order
        );
        $crate::conformance!(fair: $fixture);
    };
    (permits: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; permit_requests:
            no_request_makes_a_permit_too_many
        );
        $crate::conformance!(@tests $fixture; permits:
            permits_of_a_process_that_vanished_come_back_once
            permits_whose_reply_was_lost_are_counted_once
            permits_that_end_are_told_before_others_have_them
            locks_and_semaphores_refuse_each_others_names
        );
        $crate::conformance!(permits faces: $fixture);
    };
    (permits faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; permits:
            holders_together_never_have_too_many
            permits_are_taken_all_or_none
            a_waiter_gets_permits_as_soon_as_enough_come_back
            the_number_of_permits_changes_at_run_time
            a_waiter_waits_for_the_first_permits
            a_semaphore_may_begin_without_permits
            permits_are_renewed_while_their_guard_lives
            a_forced_release_makes_no_permit_too_many
            a_wait_for_permits_dropped_anywhere_leaves_nothing
            a_held_semaphore_is_listed
            senseless_permits_are_refused
        );
    };
    (latch: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; latch:
            no_request_counts_twice
            a_change_whose_reply_was_lost_counts_once
            t52_a_waiter_goes_on_after_an_outage
            locks_and_latches_refuse_each_others_names
            a_latch_with_a_waiter_is_shown
            a_wait_ends_at_its_limit
        );
        $crate::conformance!(latch faces: $fixture);
    };
    (latch faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; latch:
            all_waiters_go_on_at_zero_and_not_before
            calls_at_the_same_time_each_count_once
            the_first_count_stays_until_zero
            a_latch_without_a_count_is_open
            a_deleted_latch_wakes_its_waiters
            a_close_ends_the_waits_of_its_client
            a_latch_of_zero_is_refused
        );
    };
    (counting: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; counting:
            no_counted_request_counts_twice a_counted_change_whose_reply_was_lost_counts_once
            an_acquire_that_ends_in_doubt_takes_nothing t51_an_acquire_goes_on_after_an_outage
            locks_and_counting_semaphores_refuse_each_others_names
            a_semaphore_with_holders_shares_the_number a_wait_for_counted_permits_ends_at_its_limit
        );
        $crate::conformance!(@tests $fixture; counting_faults:
            a_close_gives_back_what_an_acquire_in_doubt_took permits_of_a_dead_holder_come_back_to_a_counting_semaphore
            many_permits_of_dead_holders_come_back_at_once
        );
        $crate::conformance!(counting faces: $fixture);
    };
    (counting faces: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; counting:
            counted_permits_are_taken_all_or_none takers_together_never_have_too_many
            a_waiter_takes_permits_as_soon_as_enough_are_there
            removed_permits_are_missing_until_they_come_back
            a_close_ends_the_acquires_of_its_client zero_counted_permits_are_refused
        );
    };
    (hashed blocking: $fixture:expr) => {
        $crate::conformance!(@tests $fixture; mutex:
            one_holder_at_a_time a_refused_try_changes_nothing
            a_dropped_guard_releases a_release_is_done_when_it_returns
            two_acquisitions_of_one_task_exclude_each_other
            inspect_shows_the_holder
            list_finds_what_is_held
            each_part_of_a_multi_lock_is_held_and_released
        );
        $crate::conformance!(@tests $fixture; wake:
            a_waiter_gets_the_lock_when_it_is_released every_waiter_gets_its_turn
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
            tokens_only_grow a_fenced_lock_excludes_a_plain_one
            inspect_shows_the_token a_forced_release_needs_the_token_that_was_seen
            a_raised_token_is_never_undercut a_raise_leaves_the_holder_alone
            a_raise_without_a_reply_is_repeated
        );
        $crate::conformance!(@tests $fixture; force:
            force_release_wakes_and_is_told forcing_a_free_lock_says_so
            a_forced_release_refuses_the_snapshot_of_another_lock
            a_forced_release_of_what_was_seen_spares_the_next_owner
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
            #[test]
            fn $promise() {
                $crate::testing::keep(|| $fixture, $crate::testing::promises::$file::$promise);
            }
        )*
    };
}
