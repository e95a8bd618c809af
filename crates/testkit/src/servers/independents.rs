use anyhow::Result;

use super::member::start_all;
use super::{RedisBuilder, RedisServer};

/// Servers that know nothing of each other, for a majority of them to decide.
#[derive(Debug)]
pub struct Independents {
    nodes: Vec<RedisServer>,
}

impl Independents {
    /// This many plain servers.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn start(count: usize) -> Result<Self> {
        Self::start_with(count, RedisServer::builder())
    }

    /// This many servers, each started with the same.
    ///
    /// # Errors
    /// As [`RedisBuilder::start`].
    pub fn start_with(count: usize, server: RedisBuilder) -> Result<Self> {
        let nodes = start_all(vec![server; count])?;
        Ok(Self { nodes })
    }

    /// The servers.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The URL of each.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }
}
