//! Throw-away servers: a free loopback port, an own directory, gone with the value that stands for them.

mod admin;
mod builder;
mod certs;
mod flavour;
mod port;
mod redis;

pub use admin::Reply;
pub use builder::RedisBuilder;
pub use certs::{Certs, ServerCert, Tls};
pub use flavour::Flavour;
pub use redis::RedisServer;
