//! The table of elections and of jobs that run once.

use crate::top::leaders::{TASK_COLUMNS, TASK_NUMBERS, TaskRow};
use crate::top::picture::Picture;
use crate::web::view::{Cell, Row, Table, View, cell, key, to, to_client};

/// The elections and the jobs for which this holds.
pub(super) fn table(picture: &Picture, is_listed: impl Fn(&TaskRow) -> bool) -> Table {
    let rows = picture.tasks.iter().filter(|row| is_listed(row));
    Table {
        id: "leaders",
        caption: "Elections, and jobs that run once",
        columns: TASK_COLUMNS.to_vec(),
        numbers: TASK_NUMBERS,
        rows: rows.map(row_of).collect(),
        empty: "no process tells of one",
    }
}

/// The cells are those of `tidelock top`.
fn row_of(task: &TaskRow) -> Row {
    let mut cells: Vec<Cell> = task.cells().map(cell).into();
    if let [name, _, process, ..] = &mut cells[..] {
        // Its lock has the same name.
        *name = to(&View::Lock(task.name.clone()), &task.name);
        *process = to_client(&task.client, &process.text);
    }
    Row {
        key: key(&task.key()),
        state: if task.is_gone { "gone" } else { "" },
        cells,
    }
}
