//! RESP on one connection: the handshake, the pipeline, frames, requests and replies. No word about locks.

pub(crate) mod decode;
pub(crate) mod driver;
pub(crate) mod errors;
pub(crate) mod handshake;
pub(crate) mod live_connection;
pub(crate) mod pipeline;
pub(crate) mod read_buffer;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod script;
pub(crate) mod stream;

#[cfg(test)]
pub(crate) mod tests;
