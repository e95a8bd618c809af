//! Which columns the view of locks has: the user may leave some out.

use crossterm::event::KeyCode;

use crate::top::text::LOCK_COLUMNS;

/// How many columns there are.
const COUNT: usize = LOCK_COLUMNS.len();

/// The columns of locks, as long as the program runs.
#[derive(Debug, Default)]
pub(super) struct Columns {
    is_left_out: [bool; COUNT],
    /// Their list is on the screen.
    pub(super) is_open: bool,
}

impl Columns {
    /// The columns that are drawn, if they fit.
    pub(super) fn shown(&self) -> Vec<usize> {
        (0..COUNT).filter(|at| !self.is_left_out[*at]).collect()
    }

    /// What a key changes while the list is on the screen.
    pub(super) fn on(&mut self, key: KeyCode) {
        let number = |digit: char| usize::try_from(digit.to_digit(10)?).ok();
        let at = match key {
            KeyCode::Char('c') | KeyCode::Esc | KeyCode::Enter => {
                self.is_open = false;
                None
            }
            KeyCode::Char('0') => {
                self.is_left_out = [false; COUNT];
                None
            }
            KeyCode::Char(digit) => number(digit).and_then(|number| number.checked_sub(1)),
            _ => None,
        };
        // Without its name a row would say nothing.
        if let Some(is_left_out) = at
            .filter(|at| *at > 0)
            .and_then(|at| self.is_left_out.get_mut(at))
        {
            *is_left_out = !*is_left_out;
        }
    }

    /// The list, line by line.
    pub(super) fn lines(&self) -> Vec<String> {
        let column = |(at, name): (usize, &str)| {
            let mark = if self.is_left_out[at] { ' ' } else { 'x' };
            match at {
                0 => format!("  [{mark}] {name}, always"),
                _ => format!("{} [{mark}] {name}", at + 1),
            }
        };
        let mut lines = vec!["The columns of the locks:".to_owned(), String::new()];
        lines.extend(LOCK_COLUMNS.into_iter().enumerate().map(column));
        lines.push(String::new());
        lines.push(
            "2 to 8: show a column or leave it out; 0: all; c, Enter or Esc: close".to_owned(),
        );
        lines
    }
}
