//! What the screen shows, and what each key changes. It knows no terminal and no store.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::top::leaders::TaskRow;
use crate::top::picture::{LockRow, Picture, ProcessRow};
use crate::top::screen::columns::Columns;
use crate::top::screen::command::ShowCommand;
use crate::top::screen::events::Events;
use crate::top::screen::rates::Rates;
use crate::top::screen::unlocking::{Answer, Unlocking};
use crate::top::screen::view::{Order, View};
use crate::top::screen::{details, queue};
use crate::unlock::Expected;

/// Bounds what is typed into the filter. A name has at most 512 bytes.
const LONGEST_FILTER: usize = 512;

/// What the program does after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    /// Draws all cells again: another program has written to the terminal.
    Redraw,
    /// Asks the store who holds this lock.
    Look(String),
    /// Unlocks this lock if it is held so. The only step that changes something in the store.
    Unlock(String, Expected),
    Quit,
}

/// What was drawn, in lines of the terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    /// How many lines the terminal has for rows, or for what is open.
    pub(super) page: usize,
    /// How many lines what is open has in all.
    pub(super) lines: usize,
}

#[derive(Debug)]
pub(super) struct Screen {
    pub(super) store: String,
    command: ShowCommand,
    /// The newest picture, and when it came.
    newest: Option<(Picture, Instant)>,
    frozen: Option<(Picture, Instant)>,
    /// The time between two pictures.
    every: Duration,
    /// When the screen is drawn.
    pub(super) now: Instant,
    pub(super) rates: Rates,
    events: Events,
    pub(super) view: View,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    /// The name of the lock, or the client of the process, of the row with the cursor. A new picture may move the row.
    selected: Option<String>,
    /// Where the cursor was last, if that row is gone.
    at: usize,
    /// What the row with the cursor was when it was opened. It stays open if its row is gone.
    open: Option<String>,
    /// The first line of what is open that is shown.
    pub(super) scroll: usize,
    pub(super) shows_keys: bool,
    pub(super) columns: Columns,
    /// `None`: the viewer was started without `--write`.
    pub(super) unlocking: Option<Unlocking>,
    /// What a key has to say.
    pub(super) said: Option<String>,
    /// The last command that was asked for.
    pub(super) asked_for: Option<String>,
    /// Why the picture is not of now.
    pub(super) trouble: Option<String>,
    pub(super) drawn: Drawn,
}

impl Screen {
    pub(super) fn new(store: String, command: ShowCommand, every: Duration) -> Self {
        Self {
            store,
            command,
            newest: None,
            frozen: None,
            every,
            now: Instant::now(),
            rates: Rates::default(),
            events: Events::default(),
            view: View::Locks,
            order: Order::Wait,
            filter: String::new(),
            is_typing: false,
            selected: None,
            at: 0,
            open: None,
            scroll: 0,
            shows_keys: false,
            columns: Columns::default(),
            unlocking: None,
            said: None,
            asked_for: None,
            trouble: None,
            drawn: Drawn { page: 10, lines: 0 },
        }
    }

    pub(super) fn show(&mut self, picture: Picture) {
        self.rates.note(&picture);
        if let Some((before, _)) = &self.newest {
            self.events.note(before, &picture);
        }
        self.newest = Some((picture, Instant::now()));
        self.trouble = None;
    }

    /// The picture that is on the screen.
    pub(super) fn picture(&self) -> Option<&Picture> {
        let (picture, _) = self.frozen.as_ref().or(self.newest.as_ref())?;
        Some(picture)
    }

    /// How old the picture is, if another one should have come: the store is slow or silent, or the picture is frozen.
    pub(super) fn age(&self) -> Option<Duration> {
        let (_, came) = self.frozen.as_ref().or(self.newest.as_ref())?;
        let age = self.now.saturating_duration_since(*came);
        (age > self.every.saturating_mul(2)).then_some(age)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The locks of this view in their order.
    pub(super) fn locks(&self) -> Vec<&LockRow> {
        let all = self.picture().map_or(&[][..], |picture| &picture.locks);
        let filter = self.filter.to_lowercase();
        let is_listed = |lock: &&LockRow| {
            let holders = lock.holders.iter().map(|holder| &holder.who);
            let waiting = lock.waiting.iter().map(|one| &one.who);
            let mut texts = holders.chain(waiting).chain([&lock.name, &lock.kind]);
            let is_of_view = self.view == View::Locks || lock.waiters > 0 || lock.is_lower_bound;
            is_of_view && texts.any(|text| matches(text, &filter))
        };
        let mut locks: Vec<_> = all.iter().filter(is_listed).collect();
        self.order.sort_locks(&mut locks);
        locks
    }

    /// The processes in their order.
    pub(super) fn processes(&self) -> Vec<&ProcessRow> {
        let all = self.picture().map_or(&[][..], |picture| &picture.processes);
        let filter = self.filter.to_lowercase();
        let is_listed = |one: &&ProcessRow| matches(&one.who, &filter);
        let mut processes: Vec<_> = all.iter().filter(is_listed).collect();
        self.order.sort_processes(&mut processes);
        processes
    }

    /// The candidates and the jobs.
    pub(super) fn tasks(&self) -> Vec<&TaskRow> {
        let all = self.picture().map_or(&[][..], |picture| &picture.tasks);
        let filter = self.filter.to_lowercase();
        let is_listed = |row: &&TaskRow| row.cells().iter().any(|cell| matches(cell, &filter));
        all.iter().filter(is_listed).collect()
    }

    fn keys(&self) -> Vec<String> {
        match self.view {
            View::Processes => {
                let processes = self.processes().into_iter();
                processes.map(|process| process.client.clone()).collect()
            }
            View::Leaders => self.tasks().into_iter().map(TaskRow::key).collect(),
            View::Events => Vec::new(),
            View::Locks | View::Queues => {
                let locks = self.locks().into_iter();
                locks.map(|lock| lock.name.clone()).collect()
            }
        }
    }

    /// Which lock or process has the cursor. `None`: there is none.
    pub(super) fn cursor(&self) -> Option<usize> {
        let keys = self.keys();
        let found = |selected: &String| keys.iter().position(|key| key == selected);
        let known = self.selected.as_ref().and_then(found);
        known.or_else(|| Some(self.at.min(keys.len().checked_sub(1)?)))
    }

    /// All that is known of what is open, line by line. Not escaped.
    pub(super) fn details(&self) -> Option<Vec<String>> {
        let picture = self.picture()?;
        if self.view == View::Events {
            return Some(self.events(picture));
        }
        let open = self.open.as_ref()?;
        Some(match self.view {
            View::Events => return None,
            View::Processes => details::of_process(open, picture),
            View::Leaders => details::of_task(open, picture),
            View::Locks | View::Queues => details::of_lock(open, picture),
        })
    }

    /// The events until the picture, which may be frozen.
    fn events(&self, picture: &Picture) -> Vec<String> {
        let filter = self.filter.to_lowercase();
        let lines = self.events.lines(picture.at, |line| matches(line, &filter));
        if lines.is_empty() {
            return vec!["nothing has changed since this viewer was started".to_owned()];
        }
        lines
    }

    /// What an event of the terminal changes.
    pub(super) fn on(&mut self, event: &Event) -> Step {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key),
            _ => Step::Stay,
        }
    }

    fn on_key(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Step::Quit,
                KeyCode::Char('l') => Step::Redraw,
                _ => Step::Stay,
            };
        }
        if self.is_typing {
            self.on_typed(key.code);
            return Step::Stay;
        }
        self.said = None;
        if let Some(unlocking) = self.unlocking.as_mut().filter(|one| one.is_open()) {
            let (step, said) = unlocking.on(key.code);
            self.said = said;
            return step;
        }
        if self.columns.is_open && key.code != KeyCode::Char('q') {
            self.columns.on(key.code);
            return Step::Stay;
        }
        if std::mem::take(&mut self.shows_keys)
            && matches!(key.code, KeyCode::Char('?') | KeyCode::Esc)
        {
            return Step::Stay;
        }
        match key.code {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Char('1') => self.see(View::Locks),
            KeyCode::Char('2') => self.see(View::Queues),
            KeyCode::Char('3') => self.see(View::Processes),
            KeyCode::Char('4') => self.see(View::Leaders),
            KeyCode::Char('5') => self.see(View::Events),
            KeyCode::Tab => self.see(self.view.next()),
            KeyCode::Char('?') => self.shows_keys = true,
            KeyCode::Char('f') => self.freeze_or_go_on(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('c') => self.choose_columns(),
            KeyCode::Char('y') => self.ask_for_command(),
            KeyCode::Char('u') => return self.begin_to_unlock(),
            KeyCode::Enter => self.open(),
            KeyCode::Esc if self.open.is_some() => self.open = None,
            KeyCode::Esc => self.filter.clear(),
            _ => self.on_move(key.code),
        }
        Step::Stay
    }

    fn on_typed(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) if self.filter.len() < LONGEST_FILTER => self.filter.push(char),
            _ => {}
        }
    }

    /// Moves through what is open, else from row to row.
    fn on_move(&mut self, key: KeyCode) {
        let Drawn { page, lines } = self.drawn;
        let is_open = self.details().is_some();
        let heights = if is_open { Vec::new() } else { self.heights() };
        let (at, last) = if is_open {
            // The last page is full.
            let last = lines.saturating_sub(page);
            (self.scroll.min(last), last)
        } else {
            (self.cursor().unwrap_or(0), heights.len().saturating_sub(1))
        };
        let to = match key {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::PageUp if is_open => at.saturating_sub(page.max(1)),
            KeyCode::PageDown if is_open => at + page.max(1),
            KeyCode::PageUp => at.saturating_sub(of_page(heights.iter().take(at).rev(), page)),
            KeyCode::PageDown => at + of_page(heights.iter().skip(at), page),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        };
        let to = to.min(last);
        if is_open {
            self.scroll = to;
        } else {
            self.select(to);
        }
    }

    /// How many lines each row of this view has.
    fn heights(&self) -> Vec<usize> {
        match self.view {
            View::Queues => self.locks().into_iter().map(queue::height).collect(),
            View::Locks | View::Processes | View::Leaders | View::Events => {
                vec![1; self.keys().len()]
            }
        }
    }

    fn select(&mut self, at: usize) {
        self.at = at;
        self.selected = self.keys().into_iter().nth(at);
    }

    fn see(&mut self, view: View) {
        (self.view, self.open) = (view, None);
        (self.selected, self.at) = (None, 0);
        self.scroll = 0;
    }

    fn open(&mut self) {
        if let Some(at) = self.cursor().filter(|_| self.open.is_none()) {
            self.select(at);
            self.open.clone_from(&self.selected);
            self.scroll = 0;
        }
    }

    fn freeze_or_go_on(&mut self) {
        self.frozen = match self.frozen {
            None => self.newest.clone(),
            Some(_) => None,
        };
    }

    fn choose_columns(&mut self) {
        match self.view {
            View::Locks => self.columns.is_open = true,
            View::Queues | View::Processes | View::Leaders | View::Events => {
                self.said = Some("only the view of locks has columns to choose: 1".to_owned());
            }
        }
    }

    /// The open lock, or that with the cursor. An election and a job have a lock of their name.
    fn chosen_lock(&self) -> Option<String> {
        match (&self.open, self.view) {
            (_, View::Processes | View::Events) => None,
            (open, View::Leaders) => {
                let tasks = self.tasks();
                let opened = open
                    .as_ref()
                    .and_then(|open| tasks.iter().find(|row| row.key() == *open));
                let under_cursor = || tasks.get(self.cursor()?);
                let row = opened.or_else(|| under_cursor().filter(|_| open.is_none()));
                row.map(|row| row.name.clone())
            }
            (Some(open), _) => Some(open.clone()),
            (None, _) => self.cursor().and_then(|at| self.keys().into_iter().nth(at)),
        }
    }

    /// Asks who holds the lock, for the operator who wants to unlock it. The picture may be old, or have no owner.
    fn begin_to_unlock(&mut self) -> Step {
        let chosen = self.chosen_lock();
        match (&mut self.unlocking, chosen) {
            (None, _) => self.said = Some("read-only: start top with --write to unlock".to_owned()),
            (Some(_), None) => self.said = Some("choose a lock: u unlocks it".to_owned()),
            (Some(unlocking), Some(name)) => return unlocking.begin(name),
        }
        Step::Stay
    }

    /// What has come of a step.
    pub(super) fn answered(&mut self, answer: Answer) {
        if let Some(unlocking) = &mut self.unlocking {
            self.said = unlocking.answered(answer).or(self.said.take());
        }
    }

    /// The command that shows the open lock, or that with the cursor.
    fn ask_for_command(&mut self) {
        let Some(name) = self.chosen_lock() else {
            self.said = Some("choose a lock: y writes the command that shows it".to_owned());
            return;
        };
        self.asked_for = self.command.of(&name);
        self.said = Some(match &self.asked_for {
            Some(command) => command.clone(),
            None => "this name has characters that cannot be pasted".to_owned(),
        });
    }
}

/// How many rows a page has, which is at least one.
fn of_page<'a>(heights: impl Iterator<Item = &'a usize>, page: usize) -> usize {
    let mut lines = 0;
    let rows = heights.take_while(|height| {
        lines += *height;
        lines <= page
    });
    rows.count().max(1)
}

/// `filter`: in small letters.
fn matches(text: &str, filter: &str) -> bool {
    filter.is_empty() || text.to_lowercase().contains(filter)
}
