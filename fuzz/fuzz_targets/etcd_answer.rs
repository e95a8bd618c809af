#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidelock::fuzz::etcd_answer(bytes));
