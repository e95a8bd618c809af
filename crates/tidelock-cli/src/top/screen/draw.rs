//! Draws the screen. Every text of the store is escaped before it becomes a part of it.

use std::fmt::Write;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, TableState};
use tidelock::Escaped;

use crate::top::screen::rows;
use crate::top::screen::state::Screen;
use crate::top::screen::view::View;
use crate::top::text;

const KEYS: &str =
    "↑↓ move  ⏎ open  Esc back  1 2 3 view  f freeze  s sort  / filter  y command  ? keys  q quit";

/// What each key does.
const HELP: [&str; 9] = [
    "1 2 3, Tab               locks, queues, processes",
    "↑ ↓ PgUp PgDn Home End   move; within a row that is open, scroll",
    "Enter, Esc               open a row, close it",
    "f                        freeze the picture; moving, sorting, filtering and opening go on",
    "s                        sort by the longest wait, by the longest hold, by name",
    "/                        show only rows that contain a text; Enter: keep it; Esc: all",
    "y                        write the command that shows this lock, and again after q",
    "q, Ctrl-C                quit",
    "+ and ?                  there may be more; - : nobody tells, or this user may not read it",
];

/// Whether colours may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Colours(pub(super) bool);

impl Colours {
    pub(super) fn of(self, colour: Color) -> Style {
        if self.0 {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

/// Draws all of it. Returns the number of rows that fit.
pub(super) fn screen(
    frame: &mut Frame<'_>,
    screen: &Screen,
    table: &mut TableState,
    colours: Colours,
) -> usize {
    let [head, tabs, middle, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_of(screen, colours)), head);
    frame.render_widget(Paragraph::new(tabs_of(screen)), tabs);
    frame.render_widget(Paragraph::new(foot_of(screen)), foot);
    let page = if screen.shows_keys {
        frame.render_widget(Paragraph::new(HELP.map(Line::from).to_vec()), middle);
        middle.height
    } else if let Some(lines) = screen.details() {
        details(frame, middle, &lines, screen.scroll);
        middle.height
    } else {
        rows::draw(frame, middle, screen, table, colours);
        middle.height.saturating_sub(1) // the names of the columns
    };
    page.into()
}

fn details(frame: &mut Frame<'_>, area: Rect, lines: &[String], scroll: usize) {
    let most = usize::from(area.height);
    let shown = lines.iter().skip(scroll.min(lines.len())).take(most);
    let shown: Vec<Line<'_>> = shown.map(|line| Line::from(text::safe(line))).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

fn head_of(screen: &Screen, colours: Colours) -> Vec<Line<'static>> {
    let mut head = match screen.picture() {
        Some(picture) => text::head(picture, &screen.store),
        None => format!("tidelock top  {}\n", Escaped(&screen.store)),
    };
    if screen.picture().is_some() && !screen.is_frozen() {
        head.truncate(head.trim_end().len());
        // A String takes everything.
        let _ = match screen.rates.per_second() {
            Some(rate) => write!(head, "  acquired {rate:.1}/s"),
            None => write!(head, "  acquired -"),
        };
    }
    let lines = head.lines().map(|line| Line::from(line.to_owned()));
    let mut lines: Vec<Line<'static>> = lines.collect();
    if let Some(trouble) = &screen.trouble {
        lines.truncate(1);
        let trouble = Line::from(Escaped(trouble).to_string());
        lines.push(trouble.style(colours.of(Color::Red)));
    }
    lines
}

fn tabs_of(screen: &Screen) -> Line<'static> {
    let tab = |(number, view): (usize, View)| {
        if view == screen.view {
            format!("[{number} {}]", view.title())
        } else {
            format!(" {number} {} ", view.title())
        }
    };
    let tabs: Vec<String> = (1..).zip(View::ALL).map(tab).collect();
    let order = screen.order.title(screen.view);
    let mut line = format!("{}  by {order}", tabs.concat());
    if screen.is_frozen() {
        line.push_str("  FROZEN");
    }
    if !screen.filter.is_empty() && !screen.is_typing {
        // A String takes everything.
        let _ = write!(line, "  filter: {}", Escaped(&screen.filter));
    }
    Line::from(line)
}

fn foot_of(screen: &Screen) -> Line<'static> {
    if screen.is_typing {
        return Line::from(format!("/{}", Escaped(&screen.filter)));
    }
    match &screen.said {
        Some(said) => {
            Line::from(Escaped(said).to_string()).style(Style::new().add_modifier(Modifier::BOLD))
        }
        None => Line::from(KEYS),
    }
}
