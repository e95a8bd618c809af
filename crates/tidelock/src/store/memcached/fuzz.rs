//! Fuzz targets: properties that must hold for any answer of memcached and for any URL.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::Duration;

use crate::error::Result;
use crate::snapshot::ClientInfo;
use crate::store::Name;
use crate::store::fuzz::FuzzLogin;
use crate::store::memcached::address::Address;
use crate::store::memcached::wire::{Inbox, Reply, Shape};
use crate::store::memcached::{errors, handshake, inspect, keys, ttl};

pub(crate) fn url(text: &str) -> Result<FuzzLogin> {
    let address = Address::parse(text)?;
    let shown = address.to_string();
    Ok(FuzzLogin {
        user: address.user,
        password: address.password,
        shown,
    })
}

/// Parses the bytes in one piece and in small pieces: the answers must be the same. The first byte selects answer shape
/// and piece size.
pub(crate) fn reply(bytes: &[u8]) {
    let Some((&torn, said)) = bytes.split_first() else {
        return;
    };
    let shape = if torn & 1 == 0 {
        Shape::One
    } else {
        Shape::Lines(inspect::may_be_a_lock)
    };
    let step = usize::from(torn >> 1).max(1);
    let whole = answers(&[said], shape);
    let pieces: Vec<&[u8]> = said.chunks(step).collect();
    let torn = answers(&pieces, shape);
    // A foreign protocol may be detected earlier or later, so we only compare if both parse.
    if let (Ok(whole), Ok(torn)) = (&whole, &torn) {
        assert_eq!(whole, torn);
    }
    for reply in whole.unwrap_or_default() {
        errors::unexpected(&reply);
        read(&reply);
    }
}

fn answers(pieces: &[&[u8]], shape: Shape) -> std::result::Result<Vec<Reply>, String> {
    let (mut inbox, mut heard) = (Inbox::default(), Vec::new());
    for piece in pieces {
        inbox.push(piece);
        while let Some(reply) = inbox.next(shape)? {
            heard.push(reply);
        }
    }
    Ok(heard)
}

fn read(reply: &Reply) {
    match reply {
        Reply::Value(item) => {
            if let Some((owner, _)) = keys::read(&item.value) {
                assert!(keys::owner_client(owner).is_some());
            }
            inspect::client(&item.value);
            inspect::foreign(&item.value);
        }
        Reply::Lines(lines) => {
            for line in lines {
                assert!(inspect::may_be_a_lock(line));
                inspect::key(line);
            }
        }
        Reply::Text(text) => {
            handshake::is_new_enough(text);
        }
        _ => {}
    }
}

/// The details of a client with this start time, as they are read back.
pub(crate) fn client(since: u64) -> Option<ClientInfo> {
    inspect::client(format!("{since}\n7\nhost\nshop").as_bytes())
}

pub(crate) fn name(name: &Name) {
    let key = keys::lock(name);
    assert!(key.len() <= 250 && !key.bytes().any(|byte| byte <= b' ' || byte == 0x7f));
    assert!(key == name.as_str() || key.starts_with(keys::HASHED));
    let owner = crate::types::OwnerMint::new().fresh();
    let value = keys::value(owner.text(), name);
    assert_eq!(keys::read(&value), Some((owner.text(), name.as_str())));
    // The form in which the server's item list shows a key.
    let line = format!("key={} exp=1 size=65", crate::store::fuzz::escaped(&key));
    assert_eq!(inspect::key(&line), Some(key));
}

/// The least time that an item for this lease lasts, at any phase of the server's clock.
pub(crate) fn kept(lease: Duration) -> Duration {
    let seconds = ttl::seconds(lease);
    // The server must never take a number of seconds for a date.
    assert!(ttl::needs_a_date(seconds) || seconds <= 30 * 24 * 3600);
    ttl::sure(seconds)
}
