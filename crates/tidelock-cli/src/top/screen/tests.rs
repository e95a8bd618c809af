use clap::Parser;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};
use ratatui::widgets::TableState;

use super::command::ShowCommand;
use super::draw::{Colours, screen as draw};
use super::state::{Screen, Step};
use crate::args::Cli;
use crate::top::picture::{Picture, WaiterCell};
use crate::top::sample::{evil, picture};

mod looking;
mod sizes;
mod terminal;
mod unlocking;

const SIZE: (u16, u16) = (120, 20);

fn screen_of(picture: Picture) -> Screen {
    let args = ["tidelock", "--store=redis://cache-1", "--prefix=", "top"];
    let cli = Cli::try_parse_from(args).unwrap();
    let command = ShowCommand::new(&cli.store);
    let every = std::time::Duration::from_secs(2);
    let mut screen = Screen::new("redis://cache-1".to_owned(), command, every);
    screen.show(picture);
    screen
}

fn screen() -> Screen {
    screen_of(picture())
}

fn press(screen: &mut Screen, key: KeyCode) -> Step {
    screen.on(&Event::Key(KeyEvent::new(key, KeyModifiers::NONE)))
}

fn write(screen: &mut Screen, keys: &str) {
    for key in keys.chars() {
        assert_eq!(press(screen, KeyCode::Char(key)), Step::Stay);
    }
}

fn cells(screen: &mut Screen, (width, height): (u16, u16), colours: Colours) -> Vec<Cell> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut table = TableState::default();
    let mut drawn = screen.drawn;
    let frame = terminal
        .draw(|frame| drawn = draw(frame, screen, &mut table, colours))
        .unwrap();
    let cells = frame.buffer.content.clone();
    screen.drawn = drawn;
    cells
}

/// The screen as text, without the spaces at the ends of its lines.
fn shown(screen: &mut Screen, size: (u16, u16)) -> String {
    let cells = cells(screen, size, Colours(true));
    let lines = cells.chunks(usize::from(size.0).max(1)).map(|line| {
        let line: String = line.iter().map(Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The name of the lock in the row with the cursor.
fn under_cursor(screen: &Screen) -> String {
    screen.locks()[screen.cursor().unwrap()].name.clone()
}

#[track_caller]
fn assert_shown(screen: &mut Screen, file: &str) {
    let text = shown(screen, SIZE);
    let path = format!("{}/src/top/screen/tests/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TIDELOCK_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, expected.trim_end_matches('\n'), "\n{text}\n");
}

#[test]
fn each_view_is_drawn() {
    let mut screen = screen();
    assert_shown(&mut screen, "locks.txt");
    write(&mut screen, "2");
    assert_shown(&mut screen, "queues.txt");
    write(&mut screen, "3");
    assert_shown(&mut screen, "processes.txt");
    write(&mut screen, "4");
    assert_shown(&mut screen, "leaders.txt");
    write(&mut screen, "?");
    assert_shown(&mut screen, "keys.txt");
    write(&mut screen, "?");
    assert!(!screen.shows_keys);
}

/// The columns stay as they were chosen, also in later pictures and after another view.
#[test]
fn columns_of_locks_are_left_out_as_chosen() {
    let mut screen = screen();
    write(&mut screen, "c256");
    assert_shown(&mut screen, "columns.txt");
    write(&mut screen, "c3");
    let processes = shown(&mut screen, SIZE);
    assert!(processes.contains("TIMED OUT"), "{processes}");
    write(&mut screen, "c");
    assert!(screen.said.is_some() && !screen.columns.is_open);
    write(&mut screen, "2");
    let queues = shown(&mut screen, SIZE);
    assert!(queues.contains("LEASE LEFT"), "{queues}");
    write(&mut screen, "1");
    screen.show(picture());
    assert_shown(&mut screen, "fewer_columns.txt");
    // The name stays; 0 shows all again.
    write(&mut screen, "c190c");
    assert_shown(&mut screen, "locks.txt");
}

#[test]
fn the_view_of_events_says_what_has_changed() {
    let mut screen = screen();
    write(&mut screen, "5");
    assert!(shown(&mut screen, SIZE).contains("nothing has changed"));
    let mut later = picture();
    later.at += std::time::Duration::from_secs(2);
    later.locks[0].holders.clear();
    later.processes[1].lost += 1;
    screen.show(later);
    assert_shown(&mut screen, "events.txt");
    write(&mut screen, "/web-3");
    press(&mut screen, KeyCode::Enter);
    let filtered = shown(&mut screen, SIZE);
    assert!(
        filtered.contains("has lost 1") && !filtered.contains("order:stock"),
        "{filtered}"
    );
    press(&mut screen, KeyCode::Esc);
    // What came after the picture was frozen is not in it.
    write(&mut screen, "f");
    let frozen = screen.details();
    let mut last = picture();
    last.at += std::time::Duration::from_secs(4);
    last.locks.clear();
    screen.show(last);
    assert_eq!(screen.details(), frozen);
    write(&mut screen, "f");
    assert_ne!(screen.details(), frozen);
}

/// Which process leads, and since when; what came of a job; and the command that shows its lock.
#[test]
fn the_view_of_leaders_shows_elections_and_jobs() {
    let mut screen = screen();
    write(&mut screen, "4");
    assert_eq!(screen.tasks().len(), 4);
    press(&mut screen, KeyCode::Enter);
    let lines = screen.details().unwrap();
    assert_eq!(lines[0], "billing");
    assert_eq!(lines[1], "election  leads for 1h 2m  term 7  as web-3");
    assert_eq!(lines[3], "waits  shop 1.9 (88 on web-1)");
    write(&mut screen, "y");
    let command = screen.asked_for.as_deref().unwrap();
    assert!(command.ends_with(" show -- billing"), "{command}");
    // The process ends, and its row with it. Another one must not be taken for it.
    let mut later = picture();
    later.tasks.remove(0);
    screen.show(later);
    let lines = screen.details().unwrap();
    assert!(lines[1].contains("no more"), "{lines:?}");
    write(&mut screen, "y");
    assert!(screen.said.as_deref().unwrap().contains("choose a lock"));
    press(&mut screen, KeyCode::Esc);
    write(&mut screen, "/NOV");
    press(&mut screen, KeyCode::Enter);
    let text = shown(&mut screen, SIZE);
    assert!(text.contains("running: process gone"), "{text}");
    assert_eq!(screen.tasks().len(), 1);
    write(&mut screen, "3");
    press(&mut screen, KeyCode::Esc);
    press(&mut screen, KeyCode::Enter);
    let lines = screen.details().unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("election  billing")),
        "{lines:?}"
    );
}

#[test]
fn an_opened_row_tells_all_that_is_known() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Down);
    press(&mut screen, KeyCode::Enter);
    assert_shown(&mut screen, "lock.txt");
    write(&mut screen, "3");
    assert_eq!(screen.details(), None, "another view");
    press(&mut screen, KeyCode::Enter);
    assert_shown(&mut screen, "process.txt");
    press(&mut screen, KeyCode::Esc);
    assert_eq!(screen.details(), None);
}

/// An operator looks at a lock until it is free. Another lock in its place would be taken for it.
#[test]
fn an_opened_row_stays_open_when_its_lock_is_free() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Enter);
    let mut later = picture();
    later.locks.remove(0);
    screen.show(later);
    let lines = screen.details().unwrap();
    assert_eq!(lines[0], "order:stock:42");
    assert!(lines[1].contains("any more"), "{lines:?}");
    write(&mut screen, "y");
    let command = screen.asked_for.as_deref().unwrap();
    assert!(command.ends_with(" show -- order:stock:42"), "{command}");
}

#[test]
fn an_opened_row_of_many_lines_scrolls_to_its_last() {
    let mut crowded = picture();
    let waiter = crowded.locks[0].waiting[0].clone();
    let waiting = (0..100).map(|number| WaiterCell {
        who: format!("waiter {number:03}"),
        ..waiter.clone()
    });
    crowded.locks[0].waiting = waiting.collect();
    let mut screen = screen_of(crowded);
    press(&mut screen, KeyCode::Enter);
    assert!(!shown(&mut screen, SIZE).contains("waiter 099"));
    press(&mut screen, KeyCode::End);
    let end = shown(&mut screen, SIZE);
    assert!(
        end.contains("waiter 099") && end.contains("waiter 090"),
        "{end}"
    );
    press(&mut screen, KeyCode::Up);
    let above = shown(&mut screen, SIZE);
    assert!(!above.contains("waiter 099"), "{above}");
    for _ in 0..20 {
        press(&mut screen, KeyCode::PageUp);
    }
    assert!(shown(&mut screen, SIZE).contains("order:stock:42"));
}

/// Otherwise a key that is pressed as the picture changes would act on another lock.
#[test]
fn the_cursor_stays_on_its_lock() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Down);
    assert_eq!(under_cursor(&screen), "invoice\n7");
    let mut later = picture();
    later.locks[1].longest = Some(std::time::Duration::from_secs(60));
    screen.show(later);
    assert_eq!(screen.cursor(), Some(0), "it has the longest wait now");
    assert_eq!(under_cursor(&screen), "invoice\n7");
    let mut gone = picture();
    gone.locks.remove(1);
    screen.show(gone);
    assert_eq!(
        under_cursor(&screen),
        "report",
        "the row that took its place"
    );
    screen.show(Picture {
        locks: Vec::new(),
        ..picture()
    });
    assert_eq!(screen.cursor(), None);
    let keys = [KeyCode::Down, KeyCode::End, KeyCode::Enter];
    for key in keys.into_iter().chain([KeyCode::Char('y')]) {
        press(&mut screen, key);
        shown(&mut screen, SIZE);
    }
    assert_eq!(screen.asked_for, None);
}

#[test]
fn a_frozen_picture_stays_while_moving_sorting_and_filtering_go_on() {
    let mut screen = screen();
    write(&mut screen, "f");
    let mut later = picture();
    later.locks.clear();
    screen.show(later);
    assert_eq!(screen.locks().len(), 3);
    assert!(shown(&mut screen, SIZE).contains("FROZEN"));
    press(&mut screen, KeyCode::End);
    assert_eq!(under_cursor(&screen), "report");
    write(&mut screen, "s");
    assert_eq!(screen.locks()[0].name, "report", "held longest");
    write(&mut screen, "/STOCK");
    press(&mut screen, KeyCode::Enter);
    assert_eq!(under_cursor(&screen), "order:stock:42");
    press(&mut screen, KeyCode::Enter);
    assert!(shown(&mut screen, SIZE).contains("owner a:1"), "opened");
    press(&mut screen, KeyCode::Esc);
    press(&mut screen, KeyCode::Esc);
    assert_eq!(screen.locks().len(), 3, "all again");
    write(&mut screen, "f");
    assert_eq!(screen.locks().len(), 0, "of now");
}

#[test]
fn the_longest_wait_comes_first_until_sorted_otherwise() {
    let mut shuffled = picture();
    shuffled.locks.reverse();
    let mut screen = screen_of(shuffled);
    let names = |screen: &Screen| -> Vec<String> {
        let locks = screen.locks().into_iter();
        locks.map(|lock| lock.name.clone()).collect()
    };
    assert_eq!(names(&screen), ["order:stock:42", "invoice\n7", "report"]);
    write(&mut screen, "s");
    assert_eq!(names(&screen), ["report", "order:stock:42", "invoice\n7"]);
    write(&mut screen, "s");
    assert_eq!(names(&screen), ["invoice\n7", "order:stock:42", "report"]);
    write(&mut screen, "2s");
    assert_eq!(names(&screen), ["order:stock:42", "invoice\n7"]);
    write(&mut screen, "3");
    assert_eq!(screen.processes()[0].waiting, 4);
}

#[test]
fn a_filter_may_contain_the_letters_of_keys() {
    let mut screen = screen();
    write(&mut screen, "/q1");
    assert_eq!((&*screen.filter, screen.locks().len()), ("q1", 0));
    press(&mut screen, KeyCode::Backspace);
    assert_eq!(screen.filter, "q");
    press(&mut screen, KeyCode::Esc);
    assert_eq!((&*screen.filter, screen.is_typing), ("", false));
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Step::Quit);
    write(&mut screen, "/");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.on(&Event::Key(interrupt)), Step::Quit);
}

#[test]
fn y_writes_the_command_that_shows_the_lock() {
    let mut screen = screen();
    write(&mut screen, "y");
    let command = "tidelock --store=redis://cache-1 show -- order:stock:42";
    assert_eq!(screen.asked_for.as_deref(), Some(command));
    assert!(shown(&mut screen, SIZE).ends_with(command));
    press(&mut screen, KeyCode::Down);
    assert_eq!(screen.said, None, "of another row");
    write(&mut screen, "y");
    assert_eq!(screen.asked_for, None, "a name with a line break");
    assert!(screen.said.as_deref().unwrap().contains("pasted"));
    write(&mut screen, "3y");
    assert!(screen.said.as_deref().unwrap().contains("choose a lock"));
}

/// A name of a lock is text of strangers: it must not move the cursor or change the title of the terminal.
#[test]
fn no_text_of_the_store_reaches_the_terminal_as_a_command() {
    let mut screen = screen_of(evil());
    screen.store = "redis://\u{1b}]0;x\u{7}".to_owned();
    for view in ["1", "2", "3", "4"] {
        write(&mut screen, view);
        for key in ["", "y"] {
            write(&mut screen, key);
            assert_harmless(&mut screen);
        }
        press(&mut screen, KeyCode::Enter);
        assert_harmless(&mut screen);
    }
    screen.trouble = Some("evil\u{1b}[2J".to_owned());
    assert_harmless(&mut screen);
    screen.filter = "evil\u{1b}[2J".to_owned();
    assert_harmless(&mut screen);
}

/// In a cell of the screen every character goes to the terminal as it is.
#[track_caller]
fn assert_harmless(screen: &mut Screen) {
    let cells = cells(screen, (300, 40), Colours(true));
    let text: String = cells.iter().map(Cell::symbol).collect();
    assert!(text.contains("evil"), "{text}");
    assert!(!text.contains(char::is_control), "{text:?}");
    // The mark that turns the text after it round. ratatui drops control characters, but not this.
    assert!(!text.contains('\u{202e}'), "{text:?}");
    assert!(text.contains(r"\u{1b}"), "it is shown: {text}");
}

#[test]
fn without_colours_the_cursor_is_still_seen() {
    let mut screen = screen();
    let plain = cells(&mut screen, SIZE, Colours(false));
    assert!(plain.iter().all(|cell| cell.fg == Color::Reset));
    let is_marked = |cell: &Cell| cell.modifier.contains(Modifier::REVERSED);
    assert!(plain.iter().any(is_marked));
    let coloured = cells(&mut screen, SIZE, Colours(true));
    assert!(coloured.iter().any(|cell| cell.fg == Color::Red), "gone");
}

/// Of a store that hangs the last picture stays. It must not be taken for one of now.
#[test]
fn an_old_picture_says_how_old_it_is() {
    let seconds = std::time::Duration::from_secs;
    let mut screen = screen();
    assert_eq!(screen.age(), None);
    screen.now += seconds(3);
    assert!(!shown(&mut screen, SIZE).contains(" old"));
    screen.now += seconds(27);
    // Also beside the reason, and at a narrow terminal.
    screen.trouble = Some("redis://cache-1 does not answer".to_owned());
    let text = shown(&mut screen, (80, 24));
    assert!(text.contains("does not answer"), "{text}");
    assert!(
        text.contains("  30s old") || text.contains("  29s old"),
        "{text}"
    );
    // Frozen too.
    write(&mut screen, "f");
    screen.now += seconds(30);
    let text = shown(&mut screen, (80, 24));
    assert!(
        text.contains("FROZEN  1m") || text.contains("FROZEN  59s"),
        "{text}"
    );
    write(&mut screen, "f");
    screen.show(picture());
    screen.now = std::time::Instant::now();
    assert!(!shown(&mut screen, SIZE).contains(" old"));
}
