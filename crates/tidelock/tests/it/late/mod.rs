//! Late replies, and replies that never come.

mod closing;
mod grants;
mod numbers;
mod releases;
mod waits;
