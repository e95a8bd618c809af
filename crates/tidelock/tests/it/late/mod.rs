//! Late replies, and replies that never come.

mod closing;
mod grants;
mod numbers;
mod reads;
mod releases;
mod waits;
