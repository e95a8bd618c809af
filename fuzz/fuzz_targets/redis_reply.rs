#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidelock::fuzz::redis_reply(bytes));
