//! Release, withdrawal and forced release of plain locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::redis::layouts::plain::{PlainLockWords, without_lua};
use crate::store::redis::layouts::{answer, scripts};
use crate::store::redis::topology::job::ScriptJob;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, TOMBSTONE_KEPT, keys, millis};
use crate::store::{Awaited, Name, Released, Ticket};

impl Redis {
    pub(crate) async fn release_plain(&self, ticket: &Ticket, withdraw: bool) -> Result<Released> {
        let events = self.channel_to_count(&ticket.name);
        let before = self.shared.events.releases_seen(&ticket.name);
        let reply = self.free_plain(ticket, withdraw, events.as_deref()).await?;
        let listeners = match reply {
            Reply::Int(0) => return Ok(Released::NotHeld),
            Reply::Int(1) => 0,
            Reply::Int(3) => return Err(answer::unnoted()),
            other => match other.list() {
                Some([Reply::Int(listeners)]) => *listeners,
                _ => return Err(unexpected(&other)),
            },
        };
        let freed = self.shared.events.freed(&ticket.name, listeners, before);
        if matches!(freed, Released::Awaited(Awaited { polled: true, .. })) {
            self.listen_to(&ticket.name);
        }
        Ok(freed)
    }

    /// Runs the script that releases, or its table. `events`: the channel whose listeners it counts.
    async fn free_plain(
        &self,
        ticket: &Ticket,
        withdraw: bool,
        events: Option<&str>,
    ) -> Result<Reply> {
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let (mut tombstone, mut kept) = (String::new(), String::new());
        // A withdrawal declares it where the attempt does: a proxy that writes a prefix before each key would part the
        // names. A release only touches it, if it finds nothing of its own. It declares the lock alone: while the slot
        // migrates, a node refuses a script with two keys of which one is missing.
        let declares = if withdraw {
            self.declares_tombstone(ticket)
        } else {
            self.shared.declares_keys.load(Ordering::Relaxed)
        };
        if declares {
            tombstone = keys::tombstone(&ticket.name, owner);
        }
        if withdraw {
            kept = millis(TOMBSTONE_KEPT).to_string();
        }
        let (keys, args) = (
            [name, &*tombstone],
            [owner, events.unwrap_or_default(), &*kept],
        );
        let args = match (withdraw, events) {
            (true, _) => &args[..],
            (false, Some(_)) => &args[..2],
            (false, None) => &args[..1],
        };
        let script = ScriptJob {
            script: &scripts::PLAIN_RELEASE,
            keys: &keys[..=usize::from(!tombstone.is_empty())],
            args,
            deadline: self.router.deadline(),
        };
        match self.run_script(&script).await {
            // Only a withdrawal and a release that finds nothing of its own use the tombstone.
            Some(Err(error)) if tombstone.is_empty() && self.must_declare(&error) => {
                return Box::pin(self.free_plain(ticket, withdraw, events)).await;
            }
            Some(answer) => return answer,
            None => {}
        }
        let table = if withdraw {
            &without_lua::WITHDRAW
        } else {
            &without_lua::RELEASE
        };
        let words = PlainLockWords {
            name,
            owner,
            tombstone: &keys::tombstone(&ticket.name, owner),
            counter: None,
            millis: &millis(TOMBSTONE_KEPT).to_string(),
            ..PlainLockWords::default()
        };
        self.run_table(table, words, script.deadline).await
    }

    /// The channel whose listeners a release counts, unless we know that the server publishes no events. A process that
    /// releases often without waiting learns this in the background.
    fn channel_to_count(&self, name: &Name) -> Option<String> {
        let channel = self.shared.events.channel(name)?;
        if self.shared.events.should_ask(name) {
            let (shared, router, name) =
                (Arc::clone(&self.shared), self.router.clone(), name.clone());
            self.shared.background.spawn(async move {
                shared.events.ask_setting(&name, &router).await;
            });
        }
        Some(channel)
    }

    /// Subscribes in the background: the release is done, and its caller must not wait for a subscription.
    fn listen_to(&self, name: &Name) {
        let (shared, router, name) = (Arc::clone(&self.shared), self.router.clone(), name.clone());
        self.shared.background.spawn(async move {
            shared.events.listen(&name, &router).await;
        });
    }

    pub(crate) async fn force_release_plain(
        &self,
        name: &Name,
        seen: Option<&Snapshot>,
    ) -> Result<bool> {
        self.router.check(name)?;
        let (counter, name) = (&*keys::plain_token(name), name.as_str());
        let owner = match seen.map(|seen| &seen.holders[..]) {
            None => None,
            // A plain lock has one holder.
            Some([holder]) => Some(&*holder.owner),
            Some(_) => return Ok(false),
        };
        let token = seen.and_then(|seen| seen.token);
        let token = token.map(|token| token.to_string());
        let args = owner.into_iter();
        let args: Vec<&str> = match &token {
            Some(token) => args.chain([counter, token]).collect(),
            None => args.collect(),
        };
        let script = ScriptJob {
            script: &scripts::PLAIN_FORCE_RELEASE,
            keys: &[name],
            args: &args,
            deadline: self.router.deadline(),
        };
        let words = PlainLockWords {
            name,
            owner: owner.unwrap_or_default(),
            counter: token.is_some().then_some(counter),
            newest: token.as_deref().unwrap_or_default(),
            ..PlainLockWords::default()
        };
        let table = match (owner, &token) {
            (None, _) => &without_lua::FORCE_RELEASE,
            (Some(_), None) => &without_lua::FORCE_RELEASE_IF_OWNED,
            (Some(_), Some(_)) => &without_lua::FORCE_RELEASE_IF_GRANTED,
        };
        match self.run_either(script, table, words).await? {
            Reply::Int(0) => Ok(false),
            Reply::Int(1) => Ok(true),
            other => Err(unexpected(&other)),
        }
    }
}
