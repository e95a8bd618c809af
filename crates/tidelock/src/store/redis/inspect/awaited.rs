//! The locks that somebody waits for, as the server shows it: channels with subscribers. A waiter of Redisson or of
//! tidelock, in any process, subscribes to the channel of its lock.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::error::Result;
use crate::store::redis::keys;
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::{lacks_subcommand, unexpected};
use crate::store::redis::wire::reply::{MessageForm, Reply};
use crate::store::redis::wire::request::Request;
use crate::store::redis::{Layout, Redis};
use crate::store::{BootInstant, BoxFuture, ListAwaited, ready};

/// A glob that matches the channels of all locks.
const CHANNELS: &str = "redisson_*";

/// The lock that the given channel belongs to, if it is one on which waiters are woken. The names `x` and `{x}` have the
/// same channel; it counts as that of `x`.
fn of_channel(given: &str) -> Option<&str> {
    let channel = keys::of_fair_channel(given)
        .or_else(|| keys::turns::of_turn_channel(given))
        .unwrap_or(given);
    if let Some(name) = channel.strip_prefix(keys::LATCH_CHANNEL) {
        return braced(name);
    }
    let name = [
        keys::CHANNEL,
        keys::READ_WRITE_CHANNEL,
        keys::PERMIT_CHANNEL,
    ]
    .iter()
    .find_map(|prefix| channel.strip_prefix(prefix)?.strip_prefix(':'))?;
    Some(braced(name).unwrap_or(name)).filter(|name| !name.is_empty())
}

/// The name between the braces that [`keys::channel`] adds.
fn braced(name: &str) -> Option<&str> {
    let inner = name.strip_prefix('{')?.strip_suffix('}')?;
    (!inner.is_empty() && !inner.contains('{')).then_some(inner)
}

/// Asks all servers: in a cluster each shows its own subscribers only.
async fn names(router: &Router, ways: PublishModes) -> Result<Vec<String>> {
    let deadline = router.deadline();
    let servers = router.everywhere();
    let questions = servers.iter().flat_map(|server| {
        let forms = ways.forms().iter();
        forms.map(move |form| channels(server, *form, deadline))
    });
    let (mut found, mut refused) = (BTreeSet::new(), None);
    for answer in join_all(questions).await {
        match answer {
            Ok(channels) => found.extend(
                channels
                    .iter()
                    .filter_map(|channel| of_channel(channel))
                    .map(str::to_owned),
            ),
            // One node that is down does not hide the others.
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found.into_iter().collect()),
    }
}

async fn channels(
    server: &Connection,
    form: MessageForm,
    deadline: BootInstant,
) -> Result<Vec<String>> {
    let list = Request::new("PUBSUB").arg(form.lists()).arg(CHANNELS);
    let reply = match server.ask(&list, deadline).await {
        // A node without sharded messages, in a cluster that is being upgraded.
        Err(error) if lacks_subcommand(&error) => return Ok(Vec::new()),
        reply => reply?,
    };
    let channels = reply.list().ok_or_else(|| unexpected(&reply))?;
    let texts = channels.iter().filter_map(Reply::text);
    Ok(texts.map(str::to_owned).collect())
}

impl ListAwaited for Redis {
    fn awaited(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        match self.layout {
            Layout::Redisson => Box::pin(names(&self.router, self.shared.ways)),
            // A waiter for a plain lock hears the events of a key, like any other client of the server.
            Layout::Plain => ready(Ok(Vec::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Name;
    use crate::store::redis::keys::turns::turn_channel;
    use crate::store::redis::keys::{
        channel, fair_channel, latch_channel, permit_channel, read_write_channel,
    };

    #[test]
    fn the_lock_of_a_channel_is_the_one_whose_waiters_it_wakes() {
        for text in ["stock:42", "{shop}:stock:42", "a{b}c", "x}", "{}", "{a{b}"] {
            let name = Name::new(text).unwrap();
            let fair = fair_channel(&name, "6f7c7a56-5dcb-4a4f-8b7e-1f7d7c9b1b11:7");
            for channel in [
                channel(&name),
                read_write_channel(&name),
                permit_channel(&name),
                fair,
                turn_channel(&name, "6f7c7a56-5dcb-8a4f-8b7e-1f7d7c9b1b11"),
            ] {
                assert_eq!(of_channel(&channel), Some(text), "{channel}");
            }
        }
        let latch = latch_channel(&Name::new("start").unwrap());
        assert_eq!(of_channel(&latch), Some("start"));
        for other in [
            "redisson_topic:{x}",
            "redisson_lock__channel",
            "redisson_sc:",
            "redisson_countdownlatch__channel__{}",
            "redisson_countdownlatch__channel__start",
            "news",
        ] {
            assert_eq!(of_channel(other), None, "{other}");
        }
    }
}
