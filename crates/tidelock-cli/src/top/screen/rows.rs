//! Draws the table of a view.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::top::leaders::{TASK_COLUMNS, TASK_NUMBERS};
use crate::top::screen::draw::Colours;
use crate::top::screen::queue;
use crate::top::screen::state::Screen;
use crate::top::screen::view::View;
use crate::top::text::{self, LOCK_COLUMNS, NUMBERS, PROCESS_COLUMNS};

/// The space between two columns.
const GAP: u16 = 2;

/// The columns that shrink: first the holder, then the name.
const SHRINK: [usize; 2] = [2, 0];

/// They shrink to this width before another column is left out, and to the second one when no other is left.
const NARROW: (u16, u16) = (24, 8);

/// The columns that are left out at a narrow terminal, the first one first: kind, token, what is left of the lease, for
/// how long it is held.
const LEAST_OF_LOCKS: [usize; 4] = [1, 5, 4, 3];

/// The same of processes: timed out, store, acquired, lost.
const LEAST_OF_PROCESSES: [usize; 4] = [6, 2, 5, 7];

/// The same of elections and jobs: attempt, kind, slot, term.
const LEAST_OF_TASKS: [usize; 4] = [6, 1, 4, 5];

/// A line of the table, escaped.
struct DrawnRow {
    cells: [Line<'static>; 8],
    style: Style,
}

impl DrawnRow {
    fn new(cells: &[String; 8], style: Style) -> Self {
        let cells = std::array::from_fn(|column| Line::from(text::safe(&cells[column])));
        Self { cells, style }
    }
}

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &Screen,
    table: &mut TableState,
    colours: Colours,
) {
    let (rows, selected) = match screen.view {
        View::Processes => {
            let cursor = screen.cursor();
            (of_processes(screen, colours), cursor.map(|at| at..at + 1))
        }
        View::Leaders => {
            let cursor = screen.cursor();
            (of_tasks(screen, colours), cursor.map(|at| at..at + 1))
        }
        View::Locks | View::Queues | View::Events => of_locks(screen, colours),
    };
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(why_empty(screen)), area);
        return;
    }
    let (names, least, numbers) = match screen.view {
        View::Processes => (PROCESS_COLUMNS, LEAST_OF_PROCESSES, NUMBERS),
        View::Leaders => (TASK_COLUMNS, LEAST_OF_TASKS, TASK_NUMBERS),
        View::Locks | View::Queues | View::Events => (LOCK_COLUMNS, LEAST_OF_LOCKS, NUMBERS),
    };
    let names = names.map(|name| Line::from(name.to_uppercase()));
    let widths: [u16; 8] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row.cells[column].width());
        let widest = cells.chain([names[column].width()]).max().unwrap_or(0);
        u16::try_from(widest).unwrap_or(u16::MAX)
    });
    let wanted = match screen.view {
        View::Locks => screen.columns.shown(),
        View::Queues | View::Processes | View::Leaders | View::Events => (0..8).collect(),
    };
    let columns = fit(widths, wanted, &least, area.width);
    let row_of = |mut cells: [Line<'static>; 8]| {
        Row::new(
            columns
                .iter()
                .map(|(column, _)| {
                    let cell = std::mem::take(&mut cells[*column]);
                    Cell::from(if *column < numbers {
                        cell
                    } else {
                        cell.right_aligned()
                    })
                })
                .collect::<Vec<_>>(),
        )
    };
    let header = row_of(names).style(Style::new().add_modifier(Modifier::BOLD));
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| row_of(row.cells).style(row.style))
        .collect();
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let drawn = Table::new(rows, widths)
        .header(header)
        .column_spacing(GAP)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    table.select(selected.as_ref().map(|rows| rows.start));
    if let Some(rows) = selected {
        // ratatui shows the row with the cursor. The queue below it has to be seen too.
        let page = usize::from(area.height).saturating_sub(1);
        let first = rows.end.saturating_sub(page).min(rows.start);
        *table.offset_mut() = table.offset().max(first);
    }
    frame.render_stateful_widget(drawn, area, table);
}

fn why_empty(screen: &Screen) -> &'static str {
    match (screen.picture(), screen.view) {
        (None, _) => "the store is asked",
        _ if !screen.filter.is_empty() => "nothing contains the text of the filter",
        (_, View::Locks | View::Events) => "no process is known to hold a lock or to wait for one",
        (_, View::Queues) => "nobody is known to wait",
        (_, View::Processes) => "no process tells what it does",
        (_, View::Leaders) => "no process tells of an election or of a job that runs once",
    }
}

fn of_processes(screen: &Screen, colours: Colours) -> Vec<DrawnRow> {
    let rows = screen.processes().into_iter().map(|process| {
        let style = if process.is_gone {
            colours.of(Color::Red)
        } else {
            Style::new()
        };
        DrawnRow::new(&text::row_of_process(process), style)
    });
    rows.collect()
}

fn of_tasks(screen: &Screen, colours: Colours) -> Vec<DrawnRow> {
    let rows = screen.tasks().into_iter().map(|task| {
        let style = match (task.is_gone, task.is_active()) {
            (true, true) => colours.of(Color::Red),
            (false, true) => colours.of(Color::Green),
            _ => Style::new(),
        };
        DrawnRow::new(&task.cells(), style)
    });
    rows.collect()
}

/// The rows, and those of the lock with the cursor.
fn of_locks(screen: &Screen, colours: Colours) -> (Vec<DrawnRow>, Option<Range<usize>>) {
    let cursor = screen.cursor();
    let (mut rows, mut selected) = (Vec::new(), None);
    for (at, lock) in screen.locks().into_iter().enumerate() {
        let first = rows.len();
        let style = if lock.holders.iter().any(|holder| holder.is_gone) {
            colours.of(Color::Red)
        } else if lock.waiters > 0 {
            colours.of(Color::Yellow)
        } else {
            Style::new()
        };
        let mut tree = queue::rows(lock);
        if screen.view != View::Queues {
            tree.truncate(1);
        }
        for (below, cells) in tree.iter().enumerate() {
            let style = if below == 0 { style } else { Style::new() };
            rows.push(DrawnRow::new(cells, style));
        }
        if cursor == Some(at) {
            selected = Some(first..rows.len());
        }
    }
    (rows, selected)
}

/// Those of these columns that fit, and their widths.
fn fit(
    widths: [u16; 8],
    mut columns: Vec<usize>,
    least: &[usize],
    available: u16,
) -> Vec<(usize, u16)> {
    let mut least = least.iter();
    loop {
        let mut fitted = shrink(widths, &columns, available, NARROW.0);
        let left_out = match least.next() {
            Some(column) if total(&columns, &fitted) > available.into() => column,
            next => {
                if next.is_none() {
                    // The table cuts what does not fit even so.
                    fitted = shrink(fitted, &columns, available, NARROW.1);
                }
                return columns.into_iter().map(|it| (it, fitted[it])).collect();
            }
        };
        columns.retain(|it| it != left_out);
    }
}

fn shrink(mut widths: [u16; 8], columns: &[usize], available: u16, narrow: u16) -> [u16; 8] {
    for column in SHRINK.into_iter().filter(|it| columns.contains(it)) {
        let excess = total(columns, &widths).saturating_sub(available.into());
        let width = u32::from(widths[column]);
        let shrunk = width.saturating_sub(excess).max(width.min(narrow.into()));
        widths[column] = u16::try_from(shrunk).unwrap_or(u16::MAX);
    }
    widths
}

fn total(columns: &[usize], widths: &[u16; 8]) -> u32 {
    let gaps = columns.len().saturating_sub(1) * usize::from(GAP);
    let widths = columns.iter().map(|column| u32::from(widths[*column]));
    widths.sum::<u32>() + u32::try_from(gaps).unwrap_or(0)
}
