//! A row that a statement returns, with or without a name.

use tokio_postgres::{Row, SimpleQueryRow};

/// A row of a statement that may have a name.
#[derive(Debug)]
pub(crate) enum NamedRow {
    /// From `EXECUTE`, as texts.
    Texts(SimpleQueryRow),
    /// From the statement without a name.
    Typed(Row),
}

impl NamedRow {
    /// A column of type `integer`.
    pub(crate) fn integer(&self, column: usize) -> Option<i32> {
        match self {
            Self::Texts(row) => row.try_get(column).ok()??.parse().ok(),
            Self::Typed(row) => row.try_get(column).ok(),
        }
    }

    /// A column of type `bigint`. `None`: it is null.
    pub(crate) fn bigint(&self, column: usize) -> Option<i64> {
        match self {
            Self::Texts(row) => row.try_get(column).ok()??.parse().ok(),
            Self::Typed(row) => row.try_get(column).ok()?,
        }
    }

    /// A column of type `boolean`.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        match self {
            Self::Texts(row) => matches!(row.try_get(column), Ok(Some("t"))),
            Self::Typed(row) => row.try_get(column).unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::Type;

    use super::*;
    use crate::store::Liveness;
    use crate::store::postgres::prepared::{NamedStatement, Value};
    use crate::store::postgres::tests::fake_server::ScriptedDatabase;
    use crate::store::postgres::tests::wire::{Cell, ServerAnswer, big, flag, int, null, row};

    /// A row with these columns, as the server sends it for a statement with and without a name.
    async fn both(cells: &[Cell]) -> [NamedRow; 2] {
        let server = ScriptedDatabase::start().await;
        let connection = server.connection();
        let statement = NamedStatement::new("bigint", "SELECT $1".to_owned());
        // The second one has no name: the session has forgotten it.
        let forgotten = ServerAnswer::Fails("26000");
        server.answers([row(cells), forgotten, row(cells)]);
        let (somebody, values) = (Liveness::default(), [Value::Number(7)]);
        let ask = || connection.ask_named(&somebody, &statement, &values, connection.deadline());
        [ask().await.unwrap().unwrap(), ask().await.unwrap().unwrap()]
    }

    #[tokio::test]
    async fn a_column_is_the_same_with_and_without_a_name() {
        let cells = [
            int(-7),
            big(1 << 40),
            flag(true),
            flag(false),
            null(Type::INT8),
        ];
        let [texts, typed] = both(&cells).await;
        assert!(matches!(texts, NamedRow::Texts(_)) && matches!(typed, NamedRow::Typed(_)));
        for row in [texts, typed] {
            assert_eq!(row.integer(0), Some(-7));
            assert_eq!(row.bigint(1), Some(1 << 40));
            assert!(row.is_true(2) && !row.is_true(3));
            assert_eq!(row.bigint(4), None);
            // There is no such column.
            assert_eq!(
                (row.integer(9), row.bigint(9), row.is_true(9)),
                (None, None, false)
            );
        }
        let [texts, typed] = both(&[null(Type::BOOL)]).await;
        assert!(!texts.is_true(0) && !typed.is_true(0));
    }
}
