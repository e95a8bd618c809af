//! The tidelock command.
fn main() {}
