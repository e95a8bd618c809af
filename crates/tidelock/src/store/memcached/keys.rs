//! The keys and values of all items, one function for each kind.

use crate::store::{ClientId, Name};

/// Prefix of our own keys, except for plain names of locks.
pub(crate) const OURS: &str = "tidelock:";

/// Prefix of the key of a lock whose name is not a valid key.
pub(crate) const HASHED: &str = "tidelock:name:";

/// The key of the id of the server run. No name of a lock is this key, because a name with our prefix is hashed.
pub(crate) const SERVER_RUN: &str = "tidelock:server-run";

/// Bounds the bytes of a key: memcached's limit.
const MAX_KEY_BYTES: usize = 250;

/// The key of a lock: its name, or a hash of the name if the name is not a valid key. The value always contains the
/// name.
pub(crate) fn lock(name: &Name) -> String {
    let text = name.as_str();
    // A name with our prefix is hashed too. Otherwise a lock could use the key of a tombstone or of a client's details.
    let fits = text.len() <= MAX_KEY_BYTES
        && !text.starts_with(OURS)
        && !text.bytes().any(|byte| byte <= b' ' || byte == 0x7f);
    if fits {
        text.to_owned()
    } else {
        format!("{HASHED}{}", sha1_smol::Sha1::from(text).digest())
    }
}

/// The key of an owner's tombstone. While it exists, every item of this owner is void.
pub(crate) fn tombstone(owner: &str) -> String {
    format!("{OURS}withdrawn:{owner}")
}

/// The key of a client's details.
pub(crate) fn client(client: &ClientId) -> String {
    client_of(client.as_str())
}

/// The key of a client's details, for a client of which only the UUID is known.
pub(crate) fn client_of(uuid: &str) -> String {
    format!("{OURS}client:{uuid}")
}

/// The value of a lock's item: the owner, and the unhashed name.
pub(crate) fn value(owner: &str, name: &Name) -> Vec<u8> {
    format!("{owner}\n{}", name.as_str()).into_bytes()
}

/// The owner and the name in a lock's value. `None`: tidelock did not write this value.
pub(crate) fn read(value: &[u8]) -> Option<(&str, &str)> {
    let (owner, name) = std::str::from_utf8(value).ok()?.split_once('\n')?;
    owner_client(owner).map(|_| (owner, name))
}

/// The client part of an owner. `None`: this is not an owner in tidelock's form.
pub(crate) fn owner_client(owner: &str) -> Option<&str> {
    let (uuid, number) = owner.split_once(':')?;
    let looks_right = uuid::Uuid::try_parse(uuid).is_ok() && number.parse::<u64>().is_ok();
    looks_right.then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_make_no_key_are_hashed_and_told_in_the_value() {
        let owner = crate::types::OwnerMint::new().fresh();
        for (given, raw) in [
            ("stock:42", true),
            ("äöü漢", true),
            (&*"x".repeat(250), true),
            (&*"x".repeat(251), false),
            ("a b", false),
            ("a\nb", false),
            ("a\x7f", false),
            ("tidelock:client:1", false),
        ] {
            let name = Name::new(given).unwrap();
            let key = lock(&name);
            assert_eq!(key == given, raw, "{given:?}");
            assert!(key.len() <= MAX_KEY_BYTES);
            assert_eq!(
                read(&value(owner.text(), &name)),
                Some((owner.text(), given))
            );
        }
    }

    #[test]
    fn a_value_that_others_wrote_is_no_owner_of_ours() {
        for bad in [&b"1"[..], b"\xff\n", b"a:1\nname", b""] {
            assert_eq!(read(bad), None);
        }
    }
}
