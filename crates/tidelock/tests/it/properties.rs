//! The properties that the fuzz targets check at length, here on some thousand inputs each, and time arithmetic.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidelock::fuzz;

/// Characters with a special meaning in some format, mixed with ordinary ones.
const TEXT: &str =
    r#"([a-z0-9]{0,4}|[:/@?#%,\[\]{}*!'"\\;.&=+-]{1,3}|%[0-9a-fA-F]{2}|\PC|\n|:|@|//|=){0,16}"#;

/// Any duration, with extra weight near the limits of what is accepted.
fn time() -> impl Strategy<Value = Duration> {
    let year = 366 * 24 * 3600;
    prop_oneof![
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns)),
        (0..year * 1_000_000_000_u64).prop_map(Duration::from_nanos),
        (0..5_000_000_000_u64).prop_map(Duration::from_nanos),
        Just(Duration::ZERO),
        Just(Duration::MAX),
        Just(Duration::from_secs(year)),
        Just(Duration::from_secs(30 * 24 * 3600)),
    ]
}

fn share() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..0.5_f64, any::<f64>(), Just(0.0), Just(f64::NAN)]
}

/// An instant, sometimes near the largest value.
fn instant() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..u64::from(u32::MAX), Just(u64::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn deadlines_are_never_later_than_the_lease(
        (lease, share, fixed, sent, later) in (time(), share(), time(), instant(), time())
    ) {
        fuzz::times(lease, share, fixed, sent, later);
        fuzz::times(lease, 0.01, Duration::from_millis(2), sent, later);
        fuzz::times(lease, 0.0, Duration::ZERO, sent, later);
    }

    #[test]
    fn any_start_of_a_client_is_a_date(
        millis in prop_oneof![any::<u64>(), 0..500_000_000_000_000_u64, Just(u64::MAX), Just(253_402_300_800_000_u64)]
    ) {
        fuzz::since(millis);
    }

    #[test]
    fn timers_ring_when_they_are_due(steps in vec(any::<(u8, u16)>(), 0..200)) {
        fuzz::timers(&steps);
    }

    #[test]
    fn a_name_makes_one_key_and_the_key_that_name(text in TEXT) {
        fuzz::name(&text);
    }

    #[test]
    fn a_url_is_read_as_it_is_written_and_shows_no_password(text in TEXT) {
        fuzz::other_url(&text);
        #[cfg(feature = "redis")]
        fuzz::redis_url(&text);
    }

    #[test]
    fn a_sequencer_is_read_as_it_is_written(
        (text, number, name) in (TEXT, any::<u64>(), "([a-z%A-F0-9~]|%2F|:){0,8}")
    ) {
        fuzz::sequencer(&text);
        fuzz::sequencer(&format!("tidelock1:exclusive:{number}:{name}"));
        fuzz::sequencer(&format!("tidelock1:exclusive:{name}:{number}"));
    }

    #[test]
    fn patterns_match_by_their_definition(text in "[ab*?\\[\\]\\\\]{0,8}\n[ab\\[\\]\\\\]{0,8}") {
        fuzz::glob(&text);
    }

    #[test]
    fn text_of_servers_and_kernels_is_read_without_harm(
        (text, bytes) in (TEXT, vec(any::<u8>(), 0..64))
    ) {
        #[cfg(feature = "redis")]
        {
            fuzz::redis_text(&text);
            fuzz::redis_reply(&bytes);
        }
        #[cfg(feature = "sqlite")]
        fuzz::sqlite_surroundings(&text);
        #[cfg(feature = "zookeeper")]
        fuzz::zookeeper_node(&text);
        #[cfg(feature = "memcached")]
        fuzz::memcached_reply(&bytes);
        #[cfg(feature = "etcd")]
        fuzz::etcd_answer(&bytes);
    }
}
