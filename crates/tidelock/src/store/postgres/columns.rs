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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_the_server_never_ends_before_that_of_the_client() {
        for (nanos, shown) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (1_000_000, 1000)] {
            assert_eq!(micros(Duration::from_nanos(nanos)), shown, "{nanos}");
        }
        assert_eq!(micros(Duration::MAX), i64::MAX);
    }

    #[test]
    fn a_token_is_larger_than_zero_and_fits_its_column() {
        assert_eq!(fencing(1).map(FencingToken::get), Some(1));
        assert_eq!(fencing(i64::MAX), Some(FencingToken::MAX));
        for none in [0, -1, i64::MIN] {
            assert_eq!(fencing(none), None, "{none}");
        }
        assert_eq!(newest(FencingToken::new(7)), 7);
        assert_eq!(newest(FencingToken::new(u64::MAX)), i64::MAX);
    }
}
