//! Draws the screen. Every text of the store is escaped before it becomes a part of it.

use std::fmt::Write;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, TableState};
use tidelock::Escaped;

use crate::top::screen::rows;
use crate::top::screen::state::{Drawn, Screen};
use crate::top::screen::unlocking::Unlocking;
use crate::top::screen::view::View;
use crate::top::screen::wrap::wrapped;
use crate::top::text::{self, brief};

/// The first ones are needed most: a narrow terminal has no room for all.
const KEYS: [&str; 11] = [
    "? keys",
    "q quit",
    "↑↓ move",
    "⏎ open",
    "Esc back",
    "f freeze",
    "s sort",
    "/ filter",
    "y command",
    "u unlock",
    "c columns",
];

/// What each key does.
const HELP: [&str; 11] = [
    "1 2 3 4 5, Tab           locks, queues, processes, elections and jobs that run once, events",
    "↑ ↓ PgUp PgDn Home End   move; within a row that is open, scroll",
    "Enter, Esc               open a row, close it",
    "f                        freeze the picture; moving, sorting, filtering and opening go on",
    "s                        sort by the longest wait, by the longest hold, by name",
    "/                        show only rows that contain a text; Enter: keep it; Esc: all",
    "c                        choose the columns of the view of locks",
    "y                        write the command that shows this lock, and again after q",
    "u                        unlock this lock, if top runs with --write; its name has to be typed",
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

/// Draws all of it.
pub(super) fn screen(
    frame: &mut Frame<'_>,
    screen: &Screen,
    table: &mut TableState,
    colours: Colours,
) -> Drawn {
    let [head, tabs, middle, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_of(screen, colours)), head);
    frame.render_widget(Paragraph::new(tabs_of(screen, tabs.width)), tabs);
    frame.render_widget(Paragraph::new(foot_of(screen, foot.width)), foot);
    let mut page = usize::from(middle.height);
    let mut lines = 0;
    let dialog = screen.unlocking.as_ref().and_then(Unlocking::lines);
    if let Some(dialog) = dialog {
        scrolled(frame, middle, &dialog, 0);
    } else if screen.shows_keys {
        scrolled(frame, middle, &HELP.map(str::to_owned), 0);
    } else if screen.columns.is_open {
        scrolled(frame, middle, &screen.columns.lines(), 0);
    } else if let Some(details) = screen.details() {
        lines = scrolled(frame, middle, &details, screen.scroll);
    } else {
        rows::draw(frame, middle, screen, table, colours);
        page = page.saturating_sub(1); // the names of the columns
    }
    Drawn { page, lines }
}

/// Draws a page of these texts. Returns how many lines they have in all.
fn scrolled(frame: &mut Frame<'_>, area: Rect, texts: &[String], scroll: usize) -> usize {
    let lines = texts.iter().flat_map(|text| wrapped(text, area.width));
    let lines: Vec<Line<'_>> = lines.map(Line::from).collect();
    let (count, page) = (lines.len(), usize::from(area.height));
    // The opened row may have fewer lines than at the last draw. We limit the offset; otherwise the page would be empty.
    let first = scroll.min(count.saturating_sub(page));
    let shown: Vec<_> = lines.into_iter().skip(first).take(page).collect();
    frame.render_widget(Paragraph::new(shown), area);
    count
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

fn tabs_of(screen: &Screen, width: u16) -> Line<'static> {
    let tab = |(number, view): (usize, View)| {
        if view == screen.view {
            format!("[{number} {}]", view.title())
        } else {
            format!(" {number} {} ", view.title())
        }
    };
    let tabs: Vec<String> = (1..).zip(View::ALL).map(tab).collect();
    let (tabs, order) = (tabs.concat(), screen.order.title(screen.view));
    let order = format!("  by {order}");
    let mut state = String::new();
    if screen.is_frozen() {
        state.push_str("  FROZEN");
    }
    if let Some(age) = screen.age() {
        // A String takes everything.
        let _ = write!(state, "  {} old", brief(Duration::from_secs(age.as_secs())));
    }
    if !screen.filter.is_empty() && !screen.is_typing {
        // A String takes everything.
        let _ = write!(state, "  filter: {}", Escaped(&screen.filter));
    }
    let line = Line::from(format!("{tabs}{order}{state}"));
    if line.width() <= width.into() {
        return line;
    }
    // A picture that is not of now must say so, also at a narrow terminal.
    Line::from(format!("{tabs}{state}"))
}

fn foot_of(screen: &Screen, width: u16) -> Line<'static> {
    if screen.is_typing {
        return Line::from(format!("/{}", Escaped(&screen.filter)));
    }
    let typed = screen.unlocking.as_ref().and_then(Unlocking::typed);
    match (&screen.said, typed) {
        (None, Some(typed)) => Line::from(format!("its name: {}", Escaped(typed))),
        (Some(said), _) => {
            Line::from(Escaped(said).to_string()).style(Style::new().add_modifier(Modifier::BOLD))
        }
        (None, None) => Line::from(keys(width)),
    }
}

/// As many as fit.
fn keys(width: u16) -> String {
    let mut keys = String::new();
    for key in KEYS {
        let gap = if keys.is_empty() { "" } else { "  " };
        let more = format!("{keys}{gap}{key}");
        if Line::from(&*more).width() > width.into() {
            break;
        }
        keys = more;
    }
    keys
}
