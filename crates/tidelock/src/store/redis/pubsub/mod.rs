//! How a waiter hears of a release: subscriptions, the connections that carry them, and keyspace events.

pub(crate) mod channel_router;
pub(crate) mod connection;
pub(crate) mod keyspace_events;
pub(crate) mod registry;
pub(crate) mod subscriber;
