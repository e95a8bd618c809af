//! The command on MySQL: the demo, running under a lock, showing, breaking, and the doctor.

use anyhow::{Result, ensure};
use testkit::process::Spawned;
use testkit::servers::MariaDb;

use crate::{SOON, say, shown_job, tidelock};

#[test]
fn the_command_works_on_mysql() -> Result<()> {
    let server = MariaDb::start()?;
    let url = server.url();
    let size = [
        "demo",
        "--json",
        "--stock",
        "40",
        "--processes",
        "2",
        "--workers",
        "3",
    ];
    let told = say(&url, &size)?;
    told.must(0, "")?;
    ensure!(
        !format!("{}{}", told.out, told.err).contains(":pass@"),
        "a password is shown"
    );
    let acts = told.objects()?;
    ensure!(acts.len() == 3, "{acts:?}");
    for act in &acts[1..] {
        ensure!(act["sold"] == 40 && act["oversold"] == 0, "{act}");
    }
    let script = ["run", "job", "--", "sh", "-c", "echo in; read line; exit 7"];
    let mut holder = Spawned::start(tidelock(&url, &script)?)?;
    holder.wait_line("in", SOON)?;
    let lock = shown_job(&url)?;
    ensure!(
        lock["locked"] == true && lock["token"].as_u64() > Some(0),
        "{lock}"
    );
    ensure!(lock["holders"][0]["pid"] == holder.pid(), "{lock}");
    ensure!(say(&url, &["ls"])?.out == "job\n");
    let mut watch = Spawned::start(tidelock(&url, &["watch", "job"])?)?;
    watch.wait_line("job", SOON)?;
    let refused = say(&url, &["try", "job", "--", "true"])?;
    ensure!(refused.code != 0, "it is held");
    holder.close_stdin();
    ensure!(holder.wait(SOON)?.code() == Some(7));
    watch.wait_line("free", SOON)?;
    let mut holder = Spawned::start(tidelock(&url, &script)?)?;
    holder.wait_line("in", SOON)?;
    say(&url, &["unlock", "--force", "job"])?.must(0, "")?;
    ensure!(say(&url, &["show", "job"])?.out.starts_with("job: free"));
    ensure!(
        holder.wait(SOON * 2)?.code() != Some(7),
        "it was told of its loss"
    );
    let doctor = say(&url, &["doctor"])?;
    for word in ["MariaDB", "innodb_flush_log_at_trx_commit", "reach"] {
        ensure!(doctor.out.contains(word), "{word}: {}", doctor.out);
    }
    Ok(())
}
