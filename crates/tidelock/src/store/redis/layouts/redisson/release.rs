//! Release, withdrawal and forced release of Redisson locks, and the message to their waiters.

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::redis::keys;
use crate::store::redis::layouts::{answer, scripts};
use crate::store::redis::pubsub::subscriber::Listeners;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::{Redis, TOMBSTONE_KEPT, millis};
use crate::store::{Name, Released, Ticket};

impl Redis {
    /// The command that publishes a release at this moment.
    pub(crate) fn how(&self) -> &'static str {
        self.shared
            .ways
            .word(self.shared.channel_router.are_settled())
    }

    pub(crate) async fn release_redisson(
        &self,
        ticket: &Ticket,
        withdraw: bool,
    ) -> Result<Released> {
        let owner = ticket.owner.text();
        let (name, deadline) = (ticket.name.as_str(), self.router.deadline());
        let how = self.how();
        let channel = || keys::channel(&ticket.name);
        // We read this before the release. Afterwards it may include the message of this release, which `freed` adds
        // itself.
        let before = self.shared.subscriber.releases_seen(channel);
        // Declared where the attempt declares it: a proxy that writes a prefix before each key would part the names.
        let is_declared = withdraw && self.declares_tombstone(ticket);
        let (mut tombstone, mut kept) = (String::new(), String::new());
        if is_declared {
            tombstone = keys::tombstone(&ticket.name, owner);
        }
        if withdraw {
            kept = millis(TOMBSTONE_KEPT).to_string();
        }
        let (keys, args) = ([name, &tombstone], [owner, how, &kept, "spins"]);
        let keys = &keys[..=usize::from(is_declared)];
        let args = match (ticket.kind.is_spin(), withdraw) {
            (true, _) => &args[..],
            (false, true) => &args[..3],
            // The script publishes so if it is not told how.
            (false, false) if how == "publish" => &args[..1],
            (false, false) => &args[..2],
        };
        let script = &scripts::RELEASE;
        let answer = match self.tell(script, keys, args, 1, deadline).await {
            Err(error) if withdraw && !is_declared && self.must_declare(&error) => {
                return Box::pin(self.release_redisson(ticket, withdraw)).await;
            }
            answer => answer?,
        };
        let released = match answer {
            Reply::Int(0) => Released::NotHeld,
            Reply::Int(1) => Released::Freed,
            Reply::Int(2) => {
                muted(&ticket.name);
                Released::Freed
            }
            Reply::Int(3) => return Err(answer::unnoted()),
            Reply::Int(4) => Released::WrongType,
            other => {
                let heard = listeners(&other).ok_or_else(|| unexpected(&other))?;
                self.shared.subscriber.freed(&channel(), heard, before)
            }
        };
        Ok(self.beside_spinners(ticket, released))
    }

    pub(crate) async fn force_release_redisson(
        &self,
        name: &Name,
        seen: Option<&Snapshot>,
    ) -> Result<bool> {
        self.router.check(name)?;
        let (channel, counter) = (keys::channel(name), keys::token(name));
        let token = seen.and_then(|seen| seen.token);
        let token = token.map_or_else(String::new, |token| token.to_string());
        let mut args = vec![&*channel, self.how()];
        if let Some(seen) = seen {
            args.extend([&*counter, &*token].into_iter().chain(seen.owners()));
        }
        let (script, deadline) = (&scripts::FORCE_RELEASE, self.router.deadline());
        let keys = [name.as_str()];
        let asked = self.tell(script, &keys, &args, 1, deadline);
        let reply = asked.await.map_err(|error| error.on_lock(name))?;
        match reply.list().unwrap_or_default() {
            [Reply::Int(0)] => Ok(false),
            [Reply::Int(1)] => Ok(true),
            [Reply::Int(2)] => {
                muted(name);
                Ok(true)
            }
            [Reply::Int(3), mode] => {
                Err(answer::read_write(mode.text().unwrap_or_default()).on_lock(name))
            }
            _ => Err(unexpected(&reply)),
        }
    }
}

fn listeners(reply: &Reply) -> Option<Listeners> {
    let [all, ours] = reply.list()? else {
        return None;
    };
    let ours = ours.int()?;
    Some(Listeners {
        all: all.int()?,
        ours: (ours >= 0).then_some(ours),
    })
}

/// Logs that the lock is free, but the user is not allowed to publish the release.
pub(crate) fn muted(name: &Name) {
    tracing::warn!(lock = %name, "the lock was released, but the user may not publish on its channel, so waiters notice it only when they poll; grant the user that channel");
}
