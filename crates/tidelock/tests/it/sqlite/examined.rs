//! The doctor's findings about a lock file, and the conditions that cause them.

use std::path::Path;
use std::time::Duration;

use tidelock::{Client, Finding, Severity};

const LEASE: Duration = Duration::from_secs(5);

async fn said(client: &Client, subject: &str) -> Finding {
    let findings = client.diagnose().await.unwrap();
    let found = findings.iter().find(|finding| finding.subject == subject);
    found
        .unwrap_or_else(|| panic!("nothing about {subject} in {findings:#?}"))
        .clone()
}

#[tokio::test]
async fn a_fresh_file_is_good_in_every_respect_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let held = client.lock("stock").acquire().await.unwrap();
    let reach = said(&client, "reach").await;
    assert!(
        reach.found.contains(&*file.to_string_lossy()),
        "{}",
        reach.found
    );
    assert!(reach.advice.is_some_and(|advice| advice.contains("redis:")));
    assert_eq!(said(&client, "journal mode").await.found, "wal");
    for finding in client.diagnose().await.unwrap() {
        // These two findings depend on the machine's temporary folder, not on the test.
        if !["file system", "free space"].contains(&finding.subject.as_str()) {
            assert_eq!(finding.severity, Severity::Good, "{finding:?}");
        }
    }
    assert!(held.is_held(), "looking takes nothing away");
    held.release().await.unwrap();
    assert!(client.list("*").limit(10).await.unwrap().is_empty());
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_everybody_may_write_is_a_danger() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(&file, 0o666);
    let rights = said(&client, "rights").await;
    assert_eq!(rights.severity, Severity::Danger);
    assert!(rights.advice.is_some_and(|advice| advice.contains("chmod")));
    // A group that shares a lock is a normal setup.
    allow(&file, 0o660);
    assert_eq!(said(&client, "rights").await.severity, Severity::Good);
}

#[tokio::test]
async fn a_log_that_cannot_be_started_anew_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, LEASE).await;
    assert_eq!(said(&client, "log").await.severity, Severity::Good);
    // A log as long as a reader that never ends would cause within hours. The doctor reads only its length.
    let log = std::fs::File::options()
        .write(true)
        .open(file.with_extension("db-wal"))
        .unwrap();
    let length = log.metadata().unwrap().len();
    log.set_len(65 << 20).unwrap();
    let told = said(&client, "log").await;
    log.set_len(length).unwrap();
    assert_eq!(told.severity, Severity::Advice);
    assert!(told.advice.is_some(), "{told:?}");
}
