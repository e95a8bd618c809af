//! Terminals of any size, and more than they have room for.

use crossterm::event::KeyCode;

use super::{
    SIZE, Screen, ShowCommand, picture, press, screen, screen_of, shown, under_cursor, write,
};
use crate::top::picture::{Picture, WaiterCell};

fn crowded(waiters: usize) -> Picture {
    let mut crowded = picture();
    let waiter = crowded.locks[0].waiting[0].clone();
    let waiting = (0..waiters).map(|number| WaiterCell {
        who: format!("waiter {number:03}"),
        ..waiter.clone()
    });
    crowded.locks[0].waiting = waiting.collect();
    crowded
}

/// What may be on the screen, each with its name.
fn states() -> Vec<(&'static str, Screen)> {
    let after = |picture: Picture, keys: &str| {
        let mut screen = screen_of(picture);
        for key in keys.chars() {
            let key = match key {
                '\n' => KeyCode::Enter,
                key => KeyCode::Char(key),
            };
            press(&mut screen, key);
        }
        screen
    };
    let empty = Picture {
        locks: Vec::new(),
        processes: Vec::new(),
        tasks: Vec::new(),
        ..picture()
    };
    let no_picture = Screen::new(
        "redis://cache-1".to_owned(),
        ShowCommand::default(),
        std::time::Duration::from_secs(2),
    );
    let mut silent = screen();
    silent.trouble = Some("redis://cache-1 does not answer".to_owned());
    silent.now += std::time::Duration::from_secs(3600);
    vec![
        ("locks", screen()),
        ("queues", after(crowded(20), "2")),
        ("processes", after(picture(), "3")),
        ("leaders", after(picture(), "4")),
        ("help", after(picture(), "?")),
        ("an opened lock", after(crowded(20), "\n")),
        ("an opened process", after(picture(), "3\n")),
        ("typing", after(picture(), "/stock")),
        ("a command", after(picture(), "y")),
        ("frozen", after(picture(), "f")),
        ("an empty picture", after(empty, "")),
        ("no picture", no_picture),
        ("a silent store", silent),
    ]
}

#[test]
fn a_terminal_of_any_size_is_drawn() {
    let small = [0, 1, 9].into_iter();
    let small = small.flat_map(|width| [0, 1, 4, 6, 7].map(|height| (width, height)));
    for size in small.chain([(40, 3), (60, 10), (3, 40), (300, 1), (300, 40)]) {
        for (_, mut screen) in states() {
            shown(&mut screen, size);
            for key in [KeyCode::End, KeyCode::PageUp] {
                press(&mut screen, key);
                shown(&mut screen, size);
            }
        }
    }
}

/// They are drawn indeed: each has something that no other one has.
#[test]
fn each_state_is_seen() {
    for (state, mut screen) in states() {
        let text = shown(&mut screen, (120, 30));
        let part = match state {
            "locks" => "[1 Locks]",
            "queues" => "[2 Queues]",
            "processes" => "PROCESS",
            "leaders" => "ATTEMPT",
            "help" => "open a row, close it",
            "an opened lock" => "holds  shop",
            "an opened process" => "connected since",
            "typing" => "/stock",
            "a command" => "show -- ",
            "frozen" => "FROZEN",
            "an empty picture" => "no process is known to hold a lock",
            "no picture" => "the store is asked",
            _ => "does not answer",
        };
        assert!(text.contains(part), "{state}: {text}");
    }
}

/// The name, who holds it and who waits are worth more than the rest.
#[test]
fn a_narrow_terminal_leaves_columns_out_instead_of_cutting_all() {
    let mut screen = screen();
    let text = shown(&mut screen, (80, 20));
    for part in [
        "LOCK",
        "HOLDER",
        "WAITERS",
        "LONGEST",
        "order:stock:42",
        "11s 900ms",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("KIND"), "{text}");
    let wide = shown(&mut screen, SIZE);
    assert!(wide.contains("KIND") && wide.contains("TOKEN"), "{wide}");
}

/// A user who knows none of the keys needs these two first.
#[test]
fn a_narrow_terminal_names_the_most_needed_keys_whole() {
    let mut screen = screen();
    let foot = |screen: &mut Screen, width| {
        let text = shown(screen, (width, 24));
        text.lines().last().unwrap().to_owned()
    };
    let whole = foot(&mut screen, 80);
    assert!(whole.starts_with("? keys  q quit  "), "{whole}");
    assert!(whole.ends_with("y command"), "{whole}");
    assert_eq!(foot(&mut screen, 20), "? keys  q quit");
    assert_eq!(foot(&mut screen, 23), "? keys  q quit  ↑↓ move");
}

#[test]
fn a_narrow_terminal_shows_whole_what_is_open_and_the_help() {
    let name = format!("order:{}:last", "x".repeat(200));
    let mut long = picture();
    long.locks[0].name.clone_from(&name);
    let mut screen = screen_of(long);
    press(&mut screen, KeyCode::Enter);
    let text = shown(&mut screen, (40, 30));
    let joined: String = text.lines().map(str::trim).collect();
    assert!(joined.contains(&name), "{text}");
    assert!(text.contains("holds  shop 1.9"), "below it: {text}");
    write(&mut screen, "?");
    let help = shown(&mut screen, (80, 24));
    let joined = help.replace("\n  ", " ");
    for end in ["opening go on", "may not read it", "again after q"] {
        assert!(joined.contains(end), "{end}: {help}");
    }
}

#[test]
fn an_opened_row_that_became_shorter_is_still_seen() {
    let mut screen = screen_of(crowded(100));
    press(&mut screen, KeyCode::Enter);
    shown(&mut screen, SIZE);
    press(&mut screen, KeyCode::End);
    screen.show(crowded(30));
    let end = shown(&mut screen, SIZE);
    assert!(
        end.contains("waiter 029") && end.contains("waiter 020"),
        "{end}"
    );
    press(&mut screen, KeyCode::Up);
    let above = shown(&mut screen, SIZE);
    assert!(!above.contains("waiter 029"), "one key moves it: {above}");
    assert!(above.contains("waiter 028"), "{above}");
}

/// The cursor moves from lock to lock, so a longer queue could not be seen to its end.
#[test]
fn a_long_queue_says_how_many_more_wait() {
    let mut screen = screen_of(crowded(200));
    write(&mut screen, "2");
    let text = shown(&mut screen, (120, 30));
    assert!(
        text.contains("waiter 008") && !text.contains("waiter 009"),
        "{text}"
    );
    assert!(text.contains("└ and 191 more: Enter"), "{text}");
    assert!(text.contains(r"invoice\n7"), "the next one: {text}");
    let mut few = screen_of(crowded(10));
    write(&mut few, "2");
    let text = shown(&mut few, (120, 30));
    assert!(
        text.contains("└ waiter 009") && !text.contains("more"),
        "{text}"
    );
}

#[test]
fn the_queue_of_the_lock_with_the_cursor_is_seen() {
    let mut all = crowded(9);
    let first = all.locks[0].clone();
    all.locks = (0..30)
        .map(|number| {
            let mut lock = first.clone();
            lock.name = format!("lock {number:02}");
            for one in &mut lock.waiting {
                one.who = format!("{} of {number:02}", one.who);
            }
            lock
        })
        .collect();
    let mut screen = screen_of(all);
    write(&mut screen, "2ss");
    // Each lock has ten rows, and fourteen fit: a page is one lock.
    shown(&mut screen, SIZE);
    for number in 1..30 {
        press(&mut screen, KeyCode::PageDown);
        let text = shown(&mut screen, SIZE);
        assert_eq!(under_cursor(&screen), format!("lock {number:02}"));
        assert!(
            text.contains(&format!("└ waiter 008 of {number:02}")),
            "{text}"
        );
    }
    shown(&mut screen, (120, 36)); // 30 rows: three locks
    press(&mut screen, KeyCode::PageUp);
    assert_eq!(under_cursor(&screen), "lock 26");
    press(&mut screen, KeyCode::Home);
    press(&mut screen, KeyCode::PageDown);
    assert_eq!(under_cursor(&screen), "lock 03");
}
