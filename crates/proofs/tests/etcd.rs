//! The etcd store on a real server: what it promises, what it costs, and what it survives.

#[path = "etcd/promises.rs"]
mod promises;
