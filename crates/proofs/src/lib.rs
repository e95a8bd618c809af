//! Tests of the promises on real servers.
