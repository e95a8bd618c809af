//! The MySQL store on a real server: its promises, what it costs, and what it survives.

#[path = "mysql/promises.rs"]
mod promises;
