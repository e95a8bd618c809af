//! Keys of all kinds, and the ranges that contain them.

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn the_folder_is_that_of_etcdctl() {
    let folder = Keys::new("").folder(&name("stock"));
    assert_eq!(
        (&*folder.first, &*folder.end),
        (&b"stock/"[..], &b"stock0"[..])
    );
    let folder = Keys::new("shop/locks/").folder(&name("stock"));
    assert_eq!(folder.first, b"shop/locks/stock/");
    assert_eq!(Keys::new("/shop").folder(&name("a")).first, b"/shop/a/");
}

#[test]
fn names_come_back_and_do_not_lie_in_each_other() {
    let keys = Keys::new("shop");
    for text in ["a", "a/b", "50%", "%2F", "a%2Fb/", "/", "ä b\n"] {
        let mut key = keys.folder(&name(text)).first;
        assert_eq!(key.split(|b| *b == b'/').count(), 3, "{text}");
        key.extend(b"1f");
        assert_eq!(keys.name_of(&key).as_deref(), Some(text));
    }
    for foreign in [
        "shop/a",
        "shop/a/b/1f",
        "shop/a/xyz",
        "other/a/1f",
        "shop/a%/1f",
        "shop//1f",
        "shop/a/01",
        "shop/a/read/1f.downgrade",
        "shop/a/read/write/1f",
    ] {
        assert_eq!(keys.name_of(foreign.as_bytes()), None, "{foreign}");
    }
}

#[test]
fn clients_are_no_locks() {
    let keys = Keys::new("");
    let key = keys.client_of("abc");
    assert_eq!(keys.name_of(key.as_bytes()), None);
    assert_eq!(keys.name_of(keys.tokens(&name("1f")).as_bytes()), None);
}

/// The token of a downgrade must not raise those of other locks.
#[test]
fn the_newest_token_of_a_lock_has_a_key_of_its_own() {
    let keys = Keys::new("shop");
    assert_eq!(keys.tokens(&name("a/b")), "shop/%tokens/a%2Fb");
}

#[test]
fn marks_are_no_locks_and_their_slots_come_back() {
    let keys = Keys::new("shop");
    for slot in ["1f", "2026-11-20T03:00:00Z", "a/b", "50%"] {
        let key = keys.mark(&name("a/b"), slot);
        assert_eq!(keys.name_of(key.as_bytes()), None, "{key}");
        let marks = keys.marks(&name("a/b"));
        assert!(*marks.first <= *key.as_bytes() && *key.as_bytes() < *marks.end);
        assert_eq!(Keys::slot_of(&marks, key.as_bytes()).as_deref(), Some(slot));
    }
}

#[test]
fn holders_of_permits_are_listed_and_their_waiters_are_not() {
    let keys = Keys::new("shop");
    let name = name("a/b");
    let folder = keys.permits(&name);
    let held = keys.own(&name, LockKind::Permits(2), 0x1f);
    let waiting = keys.waits_for_permits(&name, 3, 0x1f);
    assert_eq!(held, "shop/%permits/a%2Fb/held/1f.2");
    assert_eq!(waiting, "shop/%permits/a%2Fb/waiting/1f.3");
    for (key, permits, listed) in [
        (&*held, Some((2, true)), Some("a/b")),
        (&*waiting, Some((3, false)), None),
        ("shop/%permits/a%2Fb/held/1f", None, None),
        ("shop/%permits/a%2Fb/held/1f.x", None, None),
        ("shop/%permits/a%2Fb/held/01.2", None, None),
    ] {
        assert_eq!(folder.permits(key.as_bytes()), permits, "{key}");
        assert_eq!(keys.name_of(key.as_bytes()).as_deref(), listed, "{key}");
        let holders = folder.holders();
        let inside = *holders.first <= *key.as_bytes() && *key.as_bytes() < *holders.end;
        assert_eq!(inside, key != waiting, "{key}");
        assert!(*folder.first <= *key.as_bytes() && *key.as_bytes() < *folder.end);
    }
    let number = keys.number(&name);
    assert_eq!(number, "shop/a%2Fb/permits");
    assert_eq!(keys.name_of(number.as_bytes()), None);
    let [before_readers, _] = keys.folder(&name).without_readers();
    let blocks = |key: &[u8]| *before_readers.first <= *key && *key < *before_readers.end;
    assert!(blocks(number.as_bytes()), "readers wait for it too");
}

#[test]
fn markers_stand_in_the_queue_and_are_no_holders() {
    let keys = Keys::new("shop");
    let (name, folder) = (name("a"), keys.folder(&name("a")));
    let key = keys.own(&name, LockKind::Mutex, 0x1f);
    let beside = marker(&key);
    assert_eq!(beside, "shop/a/1f.delay");
    assert!(*folder.first <= *beside.as_bytes() && *beside.as_bytes() < *folder.end);
    assert_eq!(keys.name_of(beside.as_bytes()), None);
    assert_eq!(marked(beside.as_bytes()), Some(key.as_bytes()));
    assert_eq!(marked(key.as_bytes()), None);
}

#[test]
fn sides_are_in_the_queue_and_only_readers_are_left_out_for_readers() {
    let keys = Keys::new("shop");
    let name = name("a/b");
    let folder = keys.folder(&name);
    let inside = |range: &Folder, key: &[u8]| *range.first <= *key && *key < *range.end;
    for (kind, key, mode) in [
        (LockKind::Read, "shop/a%2Fb/read/1f", Mode::Read),
        (LockKind::Write, "shop/a%2Fb/write/1f", Mode::Write),
        (LockKind::Mutex, "shop/a%2Fb/1f", Mode::Exclusive),
        (LockKind::Fair, "shop/a%2Fb/ff", Mode::Exclusive),
    ] {
        let id = if kind == LockKind::Fair { 0xff } else { 0x1f };
        let own = keys.own(&name, kind, id);
        assert_eq!(own, key);
        assert_eq!(folder.mode(own.as_bytes()), mode);
        assert_eq!(keys.name_of(own.as_bytes()).as_deref(), Some("a/b"));
        for key in [own.clone(), marker(&own)] {
            assert!(inside(&folder, key.as_bytes()));
            let [before, behind] = folder.without_readers();
            let blocks = [before, behind]
                .iter()
                .any(|range| inside(range, key.as_bytes()));
            assert_eq!(blocks, mode != Mode::Read, "{key}");
            assert_eq!(inside(&folder.readers(), key.as_bytes()), !blocks, "{key}");
        }
        let place = folder.place(own.as_bytes());
        let sides = mode != Mode::Exclusive;
        assert_eq!(place, sides.then(|| keys.place(&name, id).into_bytes()));
    }
    let place = keys.place(&name, 0x1f);
    assert_eq!(place, "shop/a%2Fb/read/1f.downgrade");
    assert!(inside(&folder.readers(), place.as_bytes()));
    assert_eq!(placed(place.as_bytes()), Some(&b"shop/a%2Fb/read/1f"[..]));
}

#[test]
fn all_keys_are_those_under_the_prefix() {
    let all = Keys::new("/shop/").all();
    assert_eq!((&*all.first, &*all.end), (&b"/shop/"[..], &b"/shop0"[..]));
    // etcd reads this as all keys.
    let all = Keys::new("").all();
    assert_eq!((&*all.first, &*all.end), (&[0][..], &[0][..]));
}

#[test]
fn an_id_is_that_of_a_lease() {
    for (id, is_good) in [
        ("1", true),
        ("f", true),
        ("7fffffffffffffff", true),
        ("17fffffffffffffff", false),
        ("", false),
        ("0", false),
        ("1F", false),
        ("1g", false),
    ] {
        assert_eq!(is_id(id), is_good, "{id}");
    }
}
