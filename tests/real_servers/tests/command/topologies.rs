//! The command on stores with more than one server.

use anyhow::{Context, Result, ensure};
use testkit::servers::{Cluster, Sentinels};

use crate::{SOON, Spawned, say, shown_job, tidelock};

#[test]
fn it_speaks_to_sentinels() -> Result<()> {
    let sentinels = Sentinels::start()?;
    works_on(&sentinels.url())
}

#[test]
fn it_speaks_to_a_cluster() -> Result<()> {
    let cluster = Cluster::start()?;
    works_on(&cluster.url())
}

fn works_on(url: &str) -> Result<()> {
    let script = "echo in; read line";
    let mut holder = Spawned::start(tidelock(url, &["run", "job", "--", "sh", "-c", script])?)?;
    holder.wait_line("in", SOON)?;
    say(url, &["try", "job", "--", "true"])?.must(75, "job")?;
    let seen = shown_job(url)?;
    ensure!(
        seen["holders"][0]["program"] == "sh" && seen["holders"][0]["user"].is_string(),
        "{seen}"
    );
    let listed = say(url, &["ls"])?;
    ensure!(listed.out.contains("job"), "{}", listed.out);
    let findings = say(url, &["doctor"])?;
    ensure!(findings.out.contains("rights: scripts"), "{}", findings.out);
    say(url, &["unlock", "--force", "job"])?.must(0, "")?;
    let status = holder.wait(SOON).context("the holder hears of it")?;
    ensure!(status.code() == Some(76), "{status}");
    say(url, &["run", "job", "--", "true"])?.must(0, "")
}
