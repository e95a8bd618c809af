//! Durations and tokens in the columns of the tables.

use std::time::Duration;

use tokio_postgres::Row;

use crate::types::FencingToken;

/// Whole microseconds, rounded up. Otherwise the server's lease could end before the client's.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// `None`: somebody has made the sequence begin below one, where what grows has a falling distance from zero.
pub(crate) fn fencing(token: i64) -> Option<FencingToken> {
    let token = u64::try_from(token).ok().filter(|token| *token > 0);
    token.map(FencingToken::new)
}

/// A token as the column has it.
pub(crate) fn newest(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// Microseconds from a nullable column.
pub(crate) fn duration(row: &Row, column: usize) -> Option<Duration> {
    let micros: Option<i64> = row.get(column);
    Some(Duration::from_micros(u64::try_from(micros?).unwrap_or(0)))
}
