//! Several processes, some of which crash.

use std::time::{Duration, Instant};

use super::child::{Other, boot_nanos};

#[tokio::test]
async fn a_lock_of_a_killed_process_is_free_when_its_lease_ends_and_tokens_grow() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let lease = Duration::from_secs(2); // that of the holder
    let client = super::client(&file, lease).await;
    let lock = client.lock("ledger").fenced();
    let mut last = 0_u64;
    for rounds in [1, 3, 5] {
        let mut holder = Other::start("hold long", &file, rounds);
        for _ in 0..rounds {
            let token: u64 = holder.hear().parse().unwrap();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        assert!(lock.try_acquire().await.unwrap().is_none());
        holder.kill();
        let killed = Instant::now();
        let guard = lock.acquire().await.unwrap();
        assert!(killed.elapsed() < lease * 2, "{:?}", killed.elapsed());
        let token = guard.token().to_string().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.release().await.unwrap();
    }
}

#[test]
fn four_processes_never_overlap() {
    const ROUNDS: u32 = 250;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    std::fs::write(file.with_extension("word"), "0").unwrap();
    let began = Instant::now();
    let all: Vec<Other> = (0..4)
        .map(|_| Other::start("hammer", &file, ROUNDS))
        .collect();
    all.into_iter().for_each(Other::finish);
    let count = std::fs::read_to_string(file.with_extension("word")).unwrap();
    assert_eq!(count, (4 * ROUNDS).to_string());
    println!(
        "{} rounds of 4 processes: {:?}",
        4 * ROUNDS,
        began.elapsed()
    );
}

#[tokio::test]
async fn a_lock_goes_from_process_to_process_in_a_small_part_of_the_lease() {
    const ROUNDS: u32 = 40;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, Duration::from_secs(30)).await;
    let ball = client.lock("ball");
    let mut guard = ball.acquire().await.unwrap();
    let mut other = Other::start("echo", &file, ROUNDS);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        assert_eq!(other.hear(), "ready");
        tokio::time::sleep(Duration::from_millis(20 + u64::from(round % 10))).await;
        guard.release().await.unwrap();
        let released = boot_nanos();
        let got: i64 = other.hear().parse().unwrap();
        times.push(Duration::from_nanos(
            u64::try_from(got - released).unwrap_or(0),
        ));
        assert_eq!(other.hear(), "over");
        guard = ball.acquire().await.unwrap();
    }
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("handed over in {median:?} (median), {worst:?} (worst of {ROUNDS})");
    assert!(worst < Duration::from_secs(3), "a tenth of the lease");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_waits_uses_hardly_any_cpu() {
    const TIME: Duration = Duration::from_secs(4);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let client = super::client(&file, Duration::from_secs(30)).await;
    let guard = client.lock("held").acquire().await.unwrap();
    let mut other = Other::start("wait", &file, 1);
    assert_eq!(other.hear(), "waiting");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = cpu_ticks(other.pid());
    tokio::time::sleep(TIME).await;
    let used = cpu_ticks(other.pid()) - before;
    println!(
        "a waiting process used {used} of {} ticks",
        100 * TIME.as_secs()
    );
    // A generous limit, because the machine may do other work too. A busy loop would use far more.
    assert!(used < 100 * TIME.as_secs() / 10, "{used} ticks");
    guard.release().await.unwrap();
    assert_eq!(other.hear(), "got it");
}

/// User and system time of a process, in hundredths of a second.
#[cfg(target_os = "linux")]
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
