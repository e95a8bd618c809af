//! The values of environment variables.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const NAMES: [&str; 11] = [
    "TIDELOCK_LEASE_MS",
    "TIDELOCK_RESPONSE_TIMEOUT_MS",
    "TIDELOCK_ACKNOWLEDGE_MS",
    "TIDELOCK_ACKNOWLEDGE",
    "TIDELOCK_PREFIX",
    "TIDELOCK_USER",
    "TIDELOCK_PASSWORD",
    "TIDELOCK_PASSWORD_FILE",
    "TIDELOCK_TLS_CA",
    "TIDELOCK_TLS_CERT",
    "TIDELOCK_TLS_KEY",
];

// The input is one value per line.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    for name in NAMES {
        let line = lines
            .next()
            .filter(|line| !line.is_empty() && !line.contains(&0));
        // SAFETY: this process has one thread while a target runs.
        match line {
            Some(line) => unsafe { std::env::set_var(name, OsStr::from_bytes(line)) },
            None => unsafe { std::env::remove_var(name) },
        }
    }
    tidelock::fuzz::environment();
});
