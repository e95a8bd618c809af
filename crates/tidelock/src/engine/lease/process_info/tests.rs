//! Tests of the record of a process, on the store in memory.

use std::sync::atomic::AtomicUsize;

use crate::engine::lease::process_info::*;
use crate::engine::runtime::background::{Background, Stop};
use crate::engine::store_handle::tests::in_memory;
use crate::store::Clock;

const KEEP: Duration = Duration::from_secs(30);

/// A store, and the record of a process in it. The timers run while the last part is kept.
fn parts() -> (Arc<StoreHandle>, Arc<ProcessInfo>, Timers, Stop) {
    let clock = Clock::Simulated;
    let (background, stop) = Background::start(clock).unwrap();
    let timers = Timers::new(clock);
    background.spawn(timers.clone().drive());
    let store = in_memory(&timers, &background, KEEP);
    let client = ClientId::random();
    let info = ProcessInfo::new(client, Some("shop".to_owned()), None);
    (store, info, timers, stop)
}

/// The text of the record.
async fn read(store: &StoreHandle, info: &ProcessInfo) -> Option<String> {
    let marks = store.back().extensions().need_marks().unwrap();
    let (name, slot) = (records().unwrap(), info.client.as_str());
    marks.read(&name, slot).await.unwrap()
}

async fn put(store: &StoreHandle, info: &ProcessInfo, text: &str) {
    let marks = store.back().extensions().need_marks().unwrap();
    info.put_record(marks, text.to_owned(), KEEP).await.unwrap();
}

/// A record that is not what this process believes would never be replaced: each change names the text before it.
#[tokio::test(start_paused = true)]
async fn a_record_is_written_although_the_last_write_had_another_outcome() {
    let (store, info, _timers, _stop) = parts();
    put(&store, &info, "first").await;
    assert_eq!(read(&store, &info).await.as_deref(), Some("first"));
    // As after a write that failed and had no effect.
    *info.record.lock() = Some("failed".to_owned());
    put(&store, &info, "second").await;
    assert_eq!(read(&store, &info).await.as_deref(), Some("second"));
    // It has expired in the store.
    tokio::time::advance(KEEP * 2).await;
    put(&store, &info, "third").await;
    assert_eq!(read(&store, &info).await.as_deref(), Some("third"));
}

#[test]
fn a_process_tells_the_name_of_its_program() {
    let own = ProcessInfo::new(ClientId::random(), None, None).own();
    let path = std::env::current_exe().unwrap();
    assert_eq!(
        Some(own.program.as_str()),
        path.file_name().unwrap().to_str()
    );
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_closed_client_is_removed_at_once() {
    let (store, info, _timers, _stop) = parts();
    info.sent.store(true, Ordering::SeqCst);
    put(&store, &info, "here").await;
    info.remove(store.back()).await;
    let left = read(&store, &info).await;
    assert!(left.is_none_or(|text| text.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn process_info_is_written_again_before_it_expires() {
    let (store, info, timers, _stop) = parts();
    let writes = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&writes);
    let publish = info.publish(timers, move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(((), Arc::clone(&store)))
    });
    let ended = tokio::time::timeout(CLIENT_INFO_TTL, publish).await;
    assert!(ended.is_err(), "it goes on while the client exists");
    let writes = writes.load(Ordering::SeqCst);
    assert!((3..=4).contains(&writes), "{writes}");
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_process_tells_the_name_of_its_host() {
    let own = ProcessInfo::new(ClientId::random(), None, None).own();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(own.host, name.trim_end());
}
