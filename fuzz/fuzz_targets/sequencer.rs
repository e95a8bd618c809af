#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| tidelock::fuzz::sequencer(text));
