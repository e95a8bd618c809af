//! The command line tool, with real processes, each test on a separate SQLite file. Linux only, because `run` gives its
//! guarantees only there.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests count as outside of tests"
)]

#[path = "cli/alone.rs"]
mod alone;
#[path = "cli/bench.rs"]
mod bench;
#[cfg(feature = "web")]
#[path = "cli/browser.rs"]
mod browser;
#[path = "cli/codes.rs"]
mod codes;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/covers.rs"]
mod covers;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/fair.rs"]
mod fair;
#[path = "cli/faults.rs"]
mod faults;
#[path = "cli/hold.rs"]
mod hold;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/lead.rs"]
mod lead;
#[path = "cli/moving.rs"]
mod moving;
#[cfg(not(feature = "web"))]
#[path = "cli/no_page.rs"]
mod no_page;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/passing.rs"]
mod passing;
#[path = "cli/reference.rs"]
mod reference;
#[cfg(feature = "screen")]
#[path = "cli/screen.rs"]
mod screen;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "cli/stores.rs"]
mod stores;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/top.rs"]
mod top;
#[path = "cli/tutorial.rs"]
mod tutorial;
#[cfg(feature = "web")]
#[path = "cli/web.rs"]
mod web;
#[cfg(feature = "web")]
#[path = "cli/web_writes.rs"]
mod web_writes;
#[path = "cli/which.rs"]
mod which;
