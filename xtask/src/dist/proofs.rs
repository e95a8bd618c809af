//! The proofs of `cargo xtask dist --check`, each a function that fails if its claim does not hold.

pub(super) mod crates;
pub(super) mod image;
pub(super) mod installed;
pub(super) mod pages;
pub(super) mod parts;
