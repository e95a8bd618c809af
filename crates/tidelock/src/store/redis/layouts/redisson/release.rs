//! Release, withdrawal and forced release of Redisson locks, and the message to their waiters.

use crate::error::Result;
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
        let (owner, channel) = (ticket.owner.text(), keys::channel(&ticket.name));
        let (name, deadline) = (ticket.name.as_str(), self.router.deadline());
        let how = self.how();
        // We read this before the release. Afterwards it may include the message of this release, which `freed` adds
        // itself.
        let before = self.shared.subscriber.releases_seen(|| channel.clone());
        let reply = if withdraw {
            let tombstone = keys::tombstone(&ticket.name, owner);
            let kept = millis(TOMBSTONE_KEPT).to_string();
            let args = [owner, &channel, how, &kept];
            self.router
                .eval(&scripts::RELEASE, &[name, &tombstone], &args, deadline)
                .await?
        } else {
            let args = [owner, &channel, how];
            self.router
                .eval(&scripts::RELEASE, &[name], &args, deadline)
                .await?
        };
        match reply {
            Reply::Int(0) => Ok(Released::NotHeld),
            Reply::Int(1) => Ok(Released::Freed),
            Reply::Int(2) => {
                muted(&ticket.name);
                Ok(Released::Freed)
            }
            Reply::Int(3) => Err(answer::unnoted()),
            Reply::Int(4) => Ok(Released::WrongType),
            other => match listeners(&other) {
                Some(releases_seen) => {
                    Ok(self
                        .shared
                        .subscriber
                        .freed(&channel, releases_seen, before))
                }
                None => Err(unexpected(&other)),
            },
        }
    }

    pub(crate) async fn force_release_redisson(&self, name: &Name) -> Result<bool> {
        self.router.check(name)?;
        let channel = keys::channel(name);
        let reply = self
            .router
            .eval(
                &scripts::FORCE_RELEASE,
                &[name.as_str()],
                &[&channel, self.how()],
                self.router.deadline(),
            )
            .await
            .map_err(|error| error.on_lock(name))?;
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
