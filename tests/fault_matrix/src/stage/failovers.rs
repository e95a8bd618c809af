//! The failovers of a run that no story has made.

use std::time::Duration;

use anyhow::Result;
use testkit::process::boot_time;

use super::Stage;
use crate::notes::{Outage, Span};

/// The failovers that the servers have had, and those that stories had noted by then.
pub(super) struct Failovers {
    at: Duration,
    count: u64,
    noted: usize,
}

impl Failovers {
    pub(super) fn now(stage: &Stage) -> Result<Self> {
        let harms = stage.notes.harms.iter();
        Ok(Self {
            at: boot_time(),
            count: if stage.is_storm {
                stage.world.failovers()?
            } else {
                0
            },
            noted: harms
                .filter(|harm| harm.name.is_none() && !harm.sure)
                .count(),
        })
    }

    /// On a machine that is as busy as in a storm, sentinels take a primary for dead now and then, and promote a replica that
    /// may not have acknowledged every grant.
    pub(super) fn note(self, stage: &mut Stage) -> Result<Self> {
        let now = Self::now(stage)?;
        if now.count > self.count && now.noted == self.noted {
            let when = Span {
                from: self.at,
                to: now.at,
            };
            stage.notes.outages.push(Outage { when, mute: false });
            if !stage.all_replicas {
                stage.notes.disturbed = true;
                stage.may_have_forgotten(when);
            }
        }
        Self::now(stage)
    }
}
