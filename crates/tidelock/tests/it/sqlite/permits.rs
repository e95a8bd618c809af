//! Semaphores between processes, and what a cancelled operation leaves.

use std::path::Path;
use std::time::{Duration, Instant};

use tidelock::Client;

use super::child::Other;

/// Long enough for a process of a busy machine to renew it in time.
const LEASE: Duration = Duration::from_secs(5);
const NAME: &str = "render";
const TOTAL: u32 = 5;

async fn client(file: &Path) -> Client {
    super::client(file, LEASE).await
}

/// How many permits are available, of how many.
async fn count(client: &Client) -> (i64, i64) {
    let seen = client.semaphore(NAME).inspect().await.unwrap();
    let count = seen.permits.unwrap();
    (count.available, count.total)
}

/// Each permit of a process is a file while it is held.
#[tokio::test]
async fn t51_processes_together_never_have_too_many_permits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    std::fs::create_dir(file.with_extension("out")).unwrap();
    let client = client(&file).await;
    client.semaphore(NAME).set_permits(TOTAL).await.unwrap();
    let others: Vec<Other> = (0..4)
        .map(|_| Other::start("share permits", &file, 12))
        .collect();
    for other in others {
        assert_eq!(other.rounds(), 12);
    }
    assert_eq!(count(&client).await, (TOTAL.into(), TOTAL.into()));
}

/// The part of a child: takes one to three permits at a time. Prints how often it had them.
pub(crate) async fn share_permits(file: &Path, rounds: u32, say: fn(&str)) {
    let client = client(file).await;
    let semaphore = client.semaphore(NAME);
    let out = file.with_extension("out");
    for round in 0..rounds {
        let wanted = u16::try_from((round + std::process::id()) % 3 + 1).unwrap();
        let permits = semaphore.permits(wanted).acquire().await.unwrap();
        let mine = permits.ids().into_iter().map(|id| out.join(id));
        let mine: Vec<_> = mine.collect();
        for one in &mine {
            std::fs::File::create_new(one).expect("nobody else has this permit");
        }
        let all = std::fs::read_dir(&out).unwrap().count();
        assert!(all <= TOTAL as usize, "{all} permits are out");
        tokio::time::sleep(Duration::from_millis(1)).await;
        for one in &mine {
            std::fs::remove_file(one).unwrap();
        }
        permits.release().await.unwrap();
    }
    say(&rounds.to_string());
}

#[tokio::test]
async fn t51_permits_of_a_process_that_was_killed_come_back_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = client(&file).await;
    let semaphore = client.semaphore(NAME);
    semaphore.set_permits(3).await.unwrap();
    let mut other = Other::start("keep permits", &file, 2);
    assert_eq!(other.hear(), "in");
    let begun = Instant::now();
    let shown = loop {
        let mut seen = semaphore.inspect().await.unwrap();
        let holder = seen.holders.remove(0);
        assert_eq!((holder.holds, seen.permits.unwrap().available), (2, 1));
        if let Some(client) = holder.client {
            break client.pid;
        }
        assert!(begun.elapsed() < LEASE, "its process is not shown");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(shown, other.pid());
    other.kill();
    let three = semaphore.permits(3);
    let three = tokio::time::timeout(LEASE * 2, three.acquire()).await;
    let three = three.expect("the lease has ended").unwrap();
    assert_eq!(count(&client).await, (0, 3));
    three.release().await.unwrap();
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(count(&client).await, (3, 3));
}

/// The part of a child: keeps so many permits until it is killed.
pub(crate) async fn keep_permits(file: &Path, count: u32, say: fn(&str)) {
    let client = client(file).await;
    let wanted = client
        .semaphore(NAME)
        .permits(u16::try_from(count).unwrap());
    let _permits = wanted.acquire().await.unwrap();
    say("in");
    std::future::pending::<()>().await;
}
