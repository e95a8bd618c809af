//! Tests of the names of keys and channels.

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The page about the wire protocol says what is shared, and what follows.
#[test]
fn a_name_and_the_same_in_braces_share_what_has_braces() {
    for keys_of in [
        permits_out,
        fair_queue,
        fair_times,
        alive,
        unconfirmed,
        read_write_queue,
        read_write_deadlines,
        marks,
        mark_ends,
        token,
        channel,
        read_write_channel,
        permit_channel,
    ] {
        assert_eq!(keys_of(&name("order")), keys_of(&name("{order}")));
    }
    for keys_of in [plain_token, latch_channel] {
        assert_ne!(keys_of(&name("order")), keys_of(&name("{order}")));
    }
}

#[test]
fn braces_are_added_only_to_names_without_one() {
    for (given, channel_name, token_key) in [
        (
            "abc",
            "redisson_lock__channel:{abc}",
            "redisson_lock_token:{abc}",
        ),
        (
            "{a}:b",
            "redisson_lock__channel:{a}:b",
            "redisson_lock_token:{a}:b",
        ),
        (
            "a{b",
            "redisson_lock__channel:a{b",
            "redisson_lock_token:a{b",
        ),
        (
            "a}b",
            "redisson_lock__channel:{a}b}",
            "redisson_lock_token:{a}b}",
        ),
        (
            "ä 漢",
            "redisson_lock__channel:{ä 漢}",
            "redisson_lock_token:{ä 漢}",
        ),
    ] {
        assert_eq!(channel(&name(given)), channel_name);
        assert_eq!(token(&name(given)), token_key);
    }
}

#[test]
fn waiters_are_counted_in_the_slot_of_their_channel() {
    for given in ["abc", "{a}:b", "x{y}z", "ä 漢"] {
        let channel = channel(&name(given));
        let own = own_channel(&channel).unwrap();
        assert_eq!(hashed(&own), hashed(given));
        assert_eq!(channel_of_own(&own).as_ref(), Some(&channel));
        assert_eq!(channel_of_own(&channel), None);
    }
    assert_eq!(own_channel(&events(0, &name("abc"))), None);
}

#[test]
fn a_tombstone_lies_in_the_slot_of_its_lock() {
    let owner = crate::types::OwnerMint::new().fresh();
    for (given, tag) in [("abc", "{abc}"), ("{a}:b", "{a}"), ("x{y}z", "{y}")] {
        assert_eq!(
            tombstone(&name(given), owner.text()),
            format!("tidelock:withdrawn:{tag}:{owner}")
        );
    }
}

#[test]
fn braces_that_make_no_tag_part_the_keys_of_a_lock() {
    for good in ["abc", "{a}:b", "x{y}z", "{a{b}c", "x}{y}", "ä 漢"] {
        let owner = crate::types::OwnerMint::new().fresh();
        let tombstone = tombstone(&name(good), owner.text());
        assert_eq!(hashed(&tombstone), hashed(good));
        assert!(share_a_slot(&name(good)), "{good}");
    }
    for bad in ["a{b", "a{}b", "a}b", "{}x", "}x", "{"] {
        assert!(!share_a_slot(&name(bad)), "{bad}");
    }
}

#[test]
fn owners_are_told_from_other_fields() {
    let uuid = "0123abcd-0123-4123-8123-0123456789ab";
    for good in [":1", ":42:write", ":7:0123"] {
        assert_eq!(owner_client(&format!("{uuid}{good}")), Some(uuid));
    }
    for bad in [
        "mode",
        "price",
        uuid,
        "0123abcd-0123-4123-8123-0123456789ab:",
        "ä",
    ] {
        assert_eq!(owner_client(bad), None, "{bad}");
    }
}

#[test]
fn a_channel_of_events_is_about_its_key() {
    for given in ["stock", "{a}:b", "__keyspace@0__:x", "a__:b"] {
        let channel = events(3, &name(given));
        assert_eq!(channel, format!("__keyspace@3__:{given}"));
        assert_eq!(of_events(&channel), Some(given));
        assert_eq!(of_events(&super::channel(&name(given))), None);
    }
}

#[test]
fn a_message_to_the_head_of_a_fair_queue_concerns_the_lock() {
    let head = "0123abcd-0123-4123-8123-0123456789ab:7";
    for given in ["stock", "{a}:b", "a:b", "ä 漢", "half{brace"] {
        let (name, own) = (name(given), channel(&name(given)));
        assert_eq!(of_fair_channel(&fair_channel(&name, head)), Some(&*own));
        assert_eq!(of_fair_channel(&own), None);
        assert_eq!(
            fair_queue(&name),
            own.replace("lock__channel", "lock_queue")
        );
    }
    assert_eq!(of_fair_channel(&format!("other:{head}")), None);
}

#[test]
fn the_permits_of_a_semaphore_are_beside_it() {
    for (given, out, channel) in [
        ("render", "{render}:timeout", "redisson_sc:{render}"),
        ("{a}:b", "{a}:b:timeout", "redisson_sc:{a}:b"),
        ("x{y}z", "x{y}z:timeout", "redisson_sc:x{y}z"),
        ("ä 漢", "{ä 漢}:timeout", "redisson_sc:{ä 漢}"),
    ] {
        let name = name(given);
        assert_eq!(permits_out(&name), out);
        assert_eq!(permit_channel(&name), channel);
        assert_eq!(of_permits_out(out), Some(given));
        assert_eq!(hashed(out), hashed(given));
    }
    assert_eq!(of_permits_out("{render}"), None);
}

#[test]
fn brackets_of_a_pattern_mean_themselves() {
    assert_eq!(glob("a[1]*?\\"), "a\\[1\\]*?\\\\");
}
