//! What must hold of whatever memcached says, or stands in its URL.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what must hold is asserted"
)]

use std::time::Duration;

use super::place::Place;
use super::wire::{Inbox, Reply, Shape};
use super::{errors, greeting, keys, look, ttl};
use crate::backend::Name;
use crate::backend::fuzz::Login;
use crate::error::Result;
use crate::snapshot::ClientInfo;

pub(crate) fn url(text: &str) -> Result<Login> {
    let place = Place::parse(text)?;
    let shown = place.to_string();
    let (user, password) = place.login.unzip();
    Ok(Login {
        user,
        password,
        shown,
    })
}

/// The first byte says how it is torn: however it is, the answers are the same.
pub(crate) fn reply(bytes: &[u8]) {
    let Some((&torn, said)) = bytes.split_first() else {
        return;
    };
    let shape = if torn & 1 == 0 {
        Shape::One
    } else {
        Shape::Lines(look::may_be_a_lock)
    };
    let step = usize::from(torn >> 1).max(1);
    let whole = answers(&[said], shape);
    let pieces: Vec<&[u8]> = said.chunks(step).collect();
    let torn = answers(&pieces, shape);
    // Where a stranger speaks it may be noticed earlier or later.
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
            look::client(&item.value);
            look::foreign(&item.value);
        }
        Reply::Lines(lines) => {
            for line in lines {
                assert!(look::may_be_a_lock(line));
                look::key(line);
            }
        }
        Reply::Text(text) => {
            greeting::is_new_enough(text);
        }
        _ => {}
    }
}

/// A client's details with that start, as they are read.
pub(crate) fn client(since: u64) -> Option<ClientInfo> {
    look::client(format!("{since}\n7\nhost\nshop").as_bytes())
}

pub(crate) fn name(name: &Name) {
    let key = keys::lock(name);
    assert!(key.len() <= 250 && !key.bytes().any(|byte| byte <= b' ' || byte == 0x7f));
    assert!(key == name.as_str() || key.starts_with(keys::HASHED));
    let owner = crate::owner::OwnerMint::new().fresh();
    let value = keys::value(owner.text(), name);
    assert_eq!(keys::read(&value), Some((owner.text(), name.as_str())));
    // As the list writes a key down.
    let line = format!("key={} exp=1 size=65", crate::backend::fuzz::escaped(&key));
    assert_eq!(look::key(&line), Some(key));
}

/// How long an item is sure to stand that is to stand for a lease, whenever its server's clock ticks.
pub(crate) fn kept(lease: Duration) -> Duration {
    let seconds = ttl::seconds(lease);
    // What is told as a number of seconds is never taken for a date.
    assert!(ttl::needs_a_date(seconds) || seconds <= 30 * 24 * 3600);
    ttl::sure(seconds)
}
