use anyhow::Result;

use super::member::{spread, start_all};
use super::{RedisBuilder, RedisServer};
use crate::hosts::Host;

/// Independent servers for majority locks.
#[derive(Debug)]
pub struct Independents {
    nodes: Vec<RedisServer>,
}

impl Independents {
    /// Starts this many plain servers.
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn start(count: usize) -> Result<Self> {
        Self::start_with(count, RedisServer::builder())
    }

    /// Starts this many servers with the same settings.
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn start_with(count: usize, server: RedisBuilder) -> Result<Self> {
        let nodes = start_all(vec![server; count])?;
        Ok(Self { nodes })
    }

    /// Starts one server on each of these hosts.
    ///
    /// # Errors
    /// The same as [`RedisBuilder::start`].
    pub fn start_on(hosts: &[Host], server: &RedisBuilder) -> Result<Self> {
        let nodes = start_all(spread(server, hosts.len(), hosts)?)?;
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
