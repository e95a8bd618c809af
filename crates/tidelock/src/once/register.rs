//! The marks of one job in the store.

use std::time::{Duration, SystemTime};

use crate::engine::ClientInner;
use crate::engine::runtime::clock::BootInstant;
use crate::error::{Error, ErrorKind, Result};
use crate::once::{Mark, OnceJob, Slot};
use crate::store::{LockKind, MarkChange, Marks, Name};

/// The marks of one job.
pub(super) struct MarkRegister<'a> {
    marks: &'a dyn Marks,
    name: &'a Name,
    core: &'a ClientInner,
    keep: Duration,
    rule: &'a Slot,
}

/// A mark, and the text that the store has for it: a later write replaces exactly that text.
pub(super) struct StoredMark {
    pub(super) mark: Mark,
    text: String,
}

impl OnceJob {
    /// # Errors
    /// `Unsupported` or `Closed`, before any traffic.
    pub(super) fn register<'a>(&'a self, name: &'a Name) -> Result<MarkRegister<'a>> {
        self.lock.context.core.refuse_if_closed()?;
        self.lock.context.store.need(LockKind::Fenced)?;
        self.register_of(name)
    }

    /// As [`register`](Self::register), also while the client closes: an attempt may end in its grace period.
    pub(super) fn register_of<'a>(&'a self, name: &'a Name) -> Result<MarkRegister<'a>> {
        let context = &self.lock.context;
        let marks = context.store.front().extensions().marks;
        let marks = marks.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported)
                .because("this store keeps no marks, so it cannot tell which slots have run")
        })?;
        Ok(MarkRegister {
            marks,
            name,
            core: &context.core,
            keep: self.keep,
            rule: &self.slot,
        })
    }
}

impl MarkRegister<'_> {
    async fn through_outage<T, F>(&self, ask: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let patience = self.core.settings.lease;
        self.core.through_outage(patience, ask).await
    }

    /// Sends a request that only reads.
    async fn asked<T, F>(&self, ask: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let answer = self.through_outage(ask).await;
        answer.map_err(Error::without_effect)
    }

    /// The time of the store.
    pub(super) async fn now(&self) -> Result<SystemTime> {
        self.asked(|| self.marks.now(self.name)).await
    }

    /// The mark of a slot. `None`: no attempt has begun.
    pub(super) async fn read(&self, slot: &str) -> Result<Option<StoredMark>> {
        let text = self.asked(|| self.marks.read(self.name, slot)).await?;
        let stored = text.map(|text| {
            let mark = Mark::from_line(slot, &text)?;
            Ok(StoredMark { mark, text })
        });
        stored.transpose()
    }

    /// Replaces what the slot had. `None`: the slot has another mark now, and nothing was changed.
    ///
    /// A write whose reply is lost is repeated. The text of a mark is unique, because it contains the token of its
    /// attempt: if the slot has this text, an earlier try has written it.
    pub(super) async fn replace(
        &self,
        before: Option<&StoredMark>,
        mark: Mark,
    ) -> Result<Option<StoredMark>> {
        let text = mark.to_line();
        let (slot, before) = (&*mark.slot, before.map(|stored| &*stored.text));
        let keep = self.kept(slot);
        let change = MarkChange {
            slot,
            before,
            after: &text,
            keep,
            wish: self.core.settings.acknowledge,
        };
        let swap = || async move {
            let swapped = self.marks.replace(self.name, change).await?;
            Ok(swapped || self.marks.read(self.name, slot).await?.as_deref() == Some(change.after))
        };
        let written = self.through_outage(swap).await?;
        Ok(written.then_some(StoredMark { mark, text }))
    }

    /// Replaces the mark of an attempt that runs, and began at this time, by that of its end. `None`: another attempt has
    /// begun, and nothing was changed.
    pub(super) async fn end(
        &self,
        running: &StoredMark,
        ended: Mark,
        began: BootInstant,
    ) -> Result<Option<StoredMark>> {
        let written = self.replace(Some(running), ended.clone()).await?;
        // A mark that is missing earlier than it expires is one that the store has lost, and the lock with it.
        if written.is_some() || self.core.timers.now().since(began) < self.kept(&ended.slot) {
            return Ok(written);
        }
        // The attempt has outlived its mark. Without a mark of its end each later call would run the job again.
        self.replace(None, ended).await
    }

    /// How long the store keeps the mark of this slot. One that expires within its slot would let the job run again. The
    /// slots of a crontab line may be of any length.
    pub(super) fn kept(&self, slot: &str) -> Duration {
        self.rule.lasts(slot).unwrap_or_default().max(self.keep)
    }

    /// The marks of all slots, the newest first. A text that is no mark is left out.
    pub(super) async fn history(&self, limit: u32) -> Result<Vec<Mark>> {
        let ask = || self.marks.history(self.name, limit);
        let stored = self.asked(ask).await?;
        let marks = stored.iter().filter_map(|(slot, text)| {
            Mark::from_line(slot, text)
                .inspect_err(|error| tracing::debug!(%error, "a mark was left out of the history"))
                .ok()
        });
        Ok(marks.collect())
    }
}
