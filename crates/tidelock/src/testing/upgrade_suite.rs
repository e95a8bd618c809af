//! The macro that generates one test per promise about upgradeable readers.

/// Generates one test per promise about upgradeable readers, each with its own fixture. The same as
/// `conformance!(upgrade: …)`.
#[macro_export]
macro_rules! conformance_of_upgrades {
    ($fixture:expr) => {
        $crate::conformance!(@tests $fixture; upgrade:
            only_plain_readers_join_an_upgradeable_reader
            plain_readers_pass_a_waiting_upgradeable_reader
            an_upgrade_waits_for_the_readers_inside_ahead_of_all_others
            what_an_upgradeable_reader_has_read_still_holds_when_it_writes
            an_upgrade_that_times_out_leaves_its_reader_as_it_was
            an_upgrade_dropped_anywhere_leaves_its_reader_as_it_was
            only_a_guard_of_the_upgradeable_read_is_upgraded
            an_owner_writes_by_an_upgrade_and_reads_on
            an_upgraded_writer_is_downgraded_and_outlives_its_reader
        );
        $crate::conformance!(@tests $fixture; upgrade_losses:
            an_upgradeable_reader_that_was_lost_is_not_upgraded
            an_upgrade_without_a_connection_ends_with_its_reader
            an_upgrade_whose_reader_is_removed_while_it_waits_is_lost
        );
        $crate::conformance!(@tests $fixture; upgrade_owners:
            an_owner_downgrades_to_a_new_reader_beside_its_upgradeable_one
            one_upgrade_of_a_guard_at_a_time
            an_upgrade_passes_an_acquisition_of_its_owner_that_waits_for_the_reader
            a_guard_that_writes_but_was_lost_is_not_upgraded
        );
        $crate::conformance!(@tests $fixture; upgrade_requests:
            a_reader_that_came_first_does_not_enter_beside_an_upgraded_writer
            nobody_gets_ahead_of_a_waiting_upgrade
            an_upgrade_whose_reader_was_removed_is_never_granted
        );
        $crate::conformance!(@tests $fixture; side_model:
            requests_at_random_are_served_as_in_the_model
        );
    };
}
