//! Which faults a storm has on each store: those of the fault matrix on its usual servers, and some that take many locks.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::process::boot_time;

use crate::catalogue::rows;
use crate::notes::Span;
use crate::role::Role;
use crate::stage::{Stage, Story};
use crate::store::Store;
use crate::stories as s;
use crate::world::{self, On};

/// The number of locks that an operator ends by force.
const FORCED_AT_ONCE: usize = 8;

/// An operator ends locks by force, as `tidelock unlock --force` does.
const FORCED: Story = Story::new("locks forced free", |stage| {
    for _ in 0..2 {
        stage.crew.refresh()?;
        let mut names = stage.crew.held(Role::Holder);
        stage.rng.shuffle(&mut names);
        names.truncate(FORCED_AT_ONCE);
        let from = boot_time();
        force(stage, &names)?;
        let to = boot_time();
        for name in names {
            stage.forced(Span { from, to }, name);
        }
        stage.pass(stage.lease / 2);
    }
    Ok(())
});

fn force(stage: &mut Stage, names: &[String]) -> Result<()> {
    if stage.store != Store::Memory {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return stage
            .world
            .urls()
            .iter()
            .try_for_each(|url| world::force(url, &names));
    }
    // Nobody but the process itself reaches its memory.
    let process = &mut stage.crew.by_number(1)?.process;
    for name in names {
        process.write_line(&format!("force {name}"))?;
        let said = process.wait_line("forced", Duration::from_secs(10))?;
        ensure!(said == "forced", "{name}: {said}");
    }
    Ok(())
}

/// The faults that fit this store.
pub(super) fn of(store: Store) -> Vec<Story> {
    let mut found: Vec<Story> = Vec::new();
    for story in rows().flat_map(|row| (row.answer)(store).stories) {
        let is_fault = story.name != s::CALM.name && story.crowd == 0;
        let on_usual_servers = matches!(story.on, On::Usual | On::Durable);
        let is_new = found.iter().all(|known| known.name != story.name);
        if is_fault && on_usual_servers && is_new {
            found.push(story);
        }
    }
    // A majority of servers has no order for this; its locks are deleted server by server.
    if store != Store::Redlock {
        found.push(FORCED);
    }
    if store == Store::Memory {
        found.push(s::HOLDER_FROZEN);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_has_faults_that_take_locks() {
        for store in Store::ALL {
            let faults = of(store);
            let taking = faults.iter().filter(|fault| !fault.keeps).count();
            assert!(taking >= 2, "{store}: {faults:?}");
        }
    }
}
