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
    for good in [":1", ":42:write", ":7:0123", ":-1"] {
        assert_eq!(owner_client(&format!("{uuid}{good}")), Some(uuid));
    }
    for bad in [
        "mode",
        "price",
        uuid,
        "0123abcd-0123-4123-8123-0123456789ab:",
        "0123abcd-0123-4123-8123-0123456789ab:x",
        "0123abcd-0123-4123-8123-0123456789abx1",
        "xxxxabcd-0123-4123-8123-0123456789ab:1",
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

/// `ls` finds a semaphore by this key, and shows the name that the user gave.
#[test]
fn a_semaphore_is_found_by_its_permits_whatever_its_name() {
    for (key, name) in [
        ("{a{b}:timeout", Some("{a{b}")),
        ("{a}b:timeout", Some("{a}b")),
        ("{}:timeout", Some("{}")),
        ("plain:timeout", Some("plain")),
        ("{a}:timeout:x", None),
    ] {
        assert_eq!(of_permits_out(key), name, "{key}");
    }
}

/// Redisson and other processes use the same texts.
#[test]
fn every_key_and_channel_has_its_own_beginning() {
    let id = "u:7";
    for (key, text) in [
        (fair_queue(&name("x")), "redisson_lock_queue:{x}"),
        (fair_times(&name("x")), "redisson_lock_timeout:{x}"),
        (alive(&name("x")), "tidelock:alive:{x}"),
        (unconfirmed(&name("x")), "tidelock:granted:{x}"),
        (read_write_channel(&name("x")), "redisson_rwlock:{x}"),
        (
            latch_channel(&name("x")),
            "redisson_countdownlatch__channel__{x}",
        ),
        (read_write_queue(&name("x")), "tidelock:rw_queue:{x}"),
        (
            read_write_deadlines(&name("x")),
            "tidelock:rw_deadlines:{x}",
        ),
        (marks(&name("x")), "tidelock:marks:{x}"),
        (mark_ends(&name("x")), "tidelock:mark_ends:{x}"),
        (plain_token(&name("x")), "tidelock:token:{x}:x"),
        (plain_token(&name("{a}x")), "tidelock:token:{a}:{a}x"),
        (
            count_answer(CountKind::Latch, &name("x"), id),
            "tidelock:latch:{x}:u:7",
        ),
        (
            count_answer(CountKind::Semaphore, &name("{a}x"), id),
            "tidelock:semaphore:{a}:u:7",
        ),
        (client_of("u"), "tidelock:client:u"),
        (
            fair_channel(&name("x"), id),
            "redisson_lock__channel:{x}:u:7",
        ),
    ] {
        assert_eq!(key, text);
    }
    let own = ClientId::random();
    assert_eq!(client(&own), client_of(own.as_str()));
}

fn ticket(kind: LockKind) -> Ticket {
    Ticket {
        kind,
        name: name("x"),
        owner: crate::types::OwnerMint::new().fresh(),
    }
}

/// With sides, permits and counts, only the store knows which of the waiters is next.
#[test]
fn a_message_wakes_all_waiters_unless_the_lock_has_one_holder() {
    for (kind, channel, is_for_all) in [
        (LockKind::Mutex, "redisson_lock__channel:{x}", false),
        (LockKind::Fair, "redisson_lock__channel:{x}", false),
        (LockKind::Read, "redisson_rwlock:{x}", true),
        (LockKind::WriteFenced, "redisson_rwlock:{x}", true),
        (LockKind::Permits(2), "redisson_sc:{x}", true),
    ] {
        let woken = wake_channel(&ticket(kind));
        assert_eq!((&*woken, wakes_all(&woken)), (channel, is_for_all));
        assert_eq!(is_of_sides(&woken), kind.is_read_write());
    }
    assert!(wakes_all(&latch_channel(&name("x"))));
    assert!(!wakes_all(&events(0, &name("x"))));
}

#[test]
fn only_a_reader_has_a_key_of_its_own_for_its_hold() {
    let (reader, writer) = (ticket(LockKind::ReadFenced), ticket(LockKind::WriteFenced));
    let owner = &reader.owner;
    let hold = format!("{{x}}:{owner}:rwlock_timeout:1");
    assert_eq!(read_hold(&reader), hold);
    assert_eq!(read_hold(&writer), "x");
}

#[test]
fn scripts_know_permits_by_what_their_ids_have_in_common() {
    let (permits, lock) = (ticket(LockKind::Permits(3)), ticket(LockKind::Mutex));
    let base = permits.owner.permit_base();
    assert_eq!(owner_of(&permits), format!("{base}:3"));
    assert_eq!(owner_of(&lock), lock.owner.text());
}

#[test]
fn brackets_of_a_pattern_mean_themselves() {
    assert_eq!(glob("a[1]*?\\"), "a\\[1\\]*?\\\\");
}
