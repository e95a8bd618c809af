//! What an acquisition knows of the upgradeable hold that it upgrades.

use std::sync::{Arc, Weak};

use crate::engine::lease::hold::Hold;
use crate::error::{Error, ErrorKind, Result};
use crate::store::OwnerId;

/// The upgradeable hold beside which a writer enters, and the caller that asks for it.
#[derive(Debug)]
pub(crate) struct UpgradeClaim {
    pub(crate) owner: OwnerId,
    /// Weak: a request in flight outlives its caller, and must not keep the hold.
    reader: Weak<Hold>,
    caller: Weak<()>,
}

impl UpgradeClaim {
    /// `caller`: lives as long as the future of the upgrade.
    pub(crate) fn new(reader: &Arc<Hold>, caller: &Arc<()>) -> Self {
        Self {
            owner: reader.granted().ticket.owner.clone(),
            reader: Arc::downgrade(reader),
            caller: Arc::downgrade(caller),
        }
    }

    /// Begins the upgrade.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] while another upgrade of this hold waits, or its writer holds the lock.
    pub(crate) fn begin(&self) -> Result<()> {
        let reader = self.reader.upgrade();
        // Without a reader the caller has left.
        let slot = reader.as_ref().and_then(|reader| reader.upgrade.as_ref());
        if slot.is_none_or(|slot| slot.begin(&self.caller)) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOptions).because(
            "another upgrade of this hold waits, or its writer holds the lock; end it, and read again before the next one",
        ))
    }

    /// The upgrade has become this writer.
    pub(crate) fn granted(&self, writer: &Hold) {
        // If the caller has left, the hold must not get another reference here: its release would not be the last one.
        if self.caller.strong_count() > 0
            && let Some(reader) = self.reader.upgrade()
            && let Some(slot) = &reader.upgrade
        {
            slot.granted(&self.caller, &writer.status);
        }
    }
}
