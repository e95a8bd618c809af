//! Everything that a run leaves behind: open files in its processes, and locks in the store.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use testkit::process::{boot_time, open_fds};

use super::Stage;
use super::terms::grace;
use crate::check::{Breach, Promise};
use crate::store::Store;
use crate::world;

/// The bound on additional files and connections that a process may have open after a fault.
const MORE_FILES: usize = 16;

pub(super) fn open_files(stage: &Stage) -> Vec<(u32, usize)> {
    let members = stage.crew.members.iter();
    let count = |pid| open_fds(pid).unwrap_or(0);
    members
        .map(|member| (member.number, count(member.process.pid())))
        .collect()
}

pub(super) fn files_left(stage: &Stage, before: &[(u32, usize)]) -> Vec<Breach> {
    let mut found = Vec::new();
    for (number, now) in open_files(stage) {
        let then = before.iter().find(|(before, _)| *before == number);
        if let Some((_, then)) = then
            && now > then + MORE_FILES
        {
            let how = format!("process {number} had {then} files open, and now {now}");
            found.push(Breach::new(Promise::Leaks, how));
        }
    }
    found
}

/// Everything that is still in the store once every lease must have ended.
pub(super) fn left_over(stage: &Stage) -> Result<Vec<String>> {
    if stage.store == Store::Memory {
        return Ok(Vec::new());
    }
    stage.world.mend()?;
    let limit = stage.lease + grace(stage.store) + Duration::from_secs(1);
    let end = boot_time() + limit;
    loop {
        let mut left = held(stage)?;
        left.extend(stage.world.left(&stage.base)?);
        // Leases of killed or frozen processes may still run, so we poll until the limit.
        if left.is_empty() || boot_time() > end {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The locks that the store itself lists as held.
fn held(stage: &Stage) -> Result<Vec<String>> {
    let (urls, secret) = (stage.world.urls(), stage.world.secret());
    match stage.world.spread() {
        // This process does not reach servers that have hosts of their own.
        Some(spread) => spread.held(&urls, &stage.base),
        None => world::held(&urls, secret.as_ref(), &stage.base),
    }
}
