//! Leases, clock drift, instants, and the timer queue.
#![no_main]

use std::time::Duration;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (head, rest) = bytes.split_at(bytes.len().min(48));
    let mut words = head
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    let mut number = || words.next().unwrap_or(0);
    let mut time = || Duration::new(number() >> 1, (number() % 1_000_000_000) as u32);
    let (lease, later) = (time(), time());
    let (share, sent) = (f64::from_bits(number()), number());
    tidelock::fuzz::times(lease, share, later, sent, later);
    tidelock::fuzz::times(
        Duration::from_nanos(sent),
        0.01,
        Duration::from_millis(2),
        sent,
        lease,
    );
    let steps: Vec<(u8, u16)> = rest
        .chunks_exact(3)
        .map(|step| (step[0], u16::from_le_bytes([step[1], step[2]])))
        .collect();
    tidelock::fuzz::timers(&steps);
});
