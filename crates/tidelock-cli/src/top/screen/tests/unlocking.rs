//! The key `u`.

use tidelock::{FencingToken, Holder, Snapshot};

use super::*;
use crate::exit::Failure;
use crate::top::screen::unlocking::{Answer, Unlocking};
use crate::unlock::{Expected, Unlocked};

fn seen(name: &str) -> Snapshot {
    let mut seen = Snapshot::free(name);
    seen.holders.push(Holder::new("a:1", 1));
    seen.token = Some(FencingToken::new(88_121));
    seen.expires_in = Some(std::time::Duration::from_millis(26_300));
    seen
}

fn writing() -> Screen {
    let mut screen = screen();
    screen.unlocking = Some(Unlocking::default());
    screen
}

/// The dialog of the lock with the cursor.
fn opened(seen: Snapshot) -> Screen {
    let mut screen = writing();
    let name = under_cursor(&screen);
    assert_eq!(press(&mut screen, KeyCode::Char('u')), Step::Look(name));
    screen.answered(Answer::Seen(Ok(seen)));
    screen
}

/// Every key, on every view, with and without an open row, with and without the keys being shown.
#[test]
fn a_viewer_without_write_never_sends_a_write() {
    let mut screen = screen();
    let mut keys: Vec<KeyCode> = (' '..='~')
        .filter(|key| *key != 'q')
        .map(KeyCode::Char)
        .collect();
    keys.extend([
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Home,
        KeyCode::End,
    ]);
    for view in ['1', '2', '3', '4'] {
        for first in [KeyCode::Esc, KeyCode::Enter, KeyCode::Char('?')] {
            for key in &keys {
                press(&mut screen, KeyCode::Esc);
                press(&mut screen, KeyCode::Char(view));
                press(&mut screen, first);
                for key in [*key, KeyCode::Enter, KeyCode::Char('u'), KeyCode::Enter] {
                    assert_eq!(
                        press(&mut screen, key),
                        Step::Stay,
                        "{view} {first:?} {key:?}"
                    );
                }
                press(&mut screen, KeyCode::Esc);
                press(&mut screen, KeyCode::Esc);
            }
        }
    }
    write(&mut screen, "1u");
    let said = screen.said.unwrap();
    assert!(said.contains("--write"), "{said}");
}

#[test]
fn a_lock_is_unlocked_as_it_is_shown_once_its_name_is_typed() {
    let mut screen = opened(seen("order:stock:42"));
    assert_shown(&mut screen, "unlocking.txt");
    write(&mut screen, "order:stock:4");
    assert_eq!(press(&mut screen, KeyCode::Enter), Step::Stay);
    assert!(screen.said.as_ref().unwrap().contains("not its name"));
    // `q` is a letter of a name here.
    write(&mut screen, "qorder:stock:42");
    assert_eq!(press(&mut screen, KeyCode::Enter), Step::Stay);
    write(&mut screen, "order:stock:42");
    let expected = Expected {
        owners: vec!["a:1".to_owned()],
        token: Some(88_121),
    };
    let name = "order:stock:42".to_owned();
    let sent = Step::Unlock(name.clone(), expected.clone());
    assert_eq!(press(&mut screen, KeyCode::Enter), sent);
    // Nothing can be done until the answer comes.
    assert_eq!(press(&mut screen, KeyCode::Enter), Step::Stay);
    screen.answered(Answer::Done(name, expected, Ok(Unlocked::Freed)));
    assert_eq!(screen.said.as_deref(), Some("order:stock:42: unlocked"));
    let log = &screen.unlocking.as_ref().unwrap().log;
    assert!(
        log[0].ends_with("owner a:1, token 88121: order:stock:42: unlocked"),
        "{log:?}"
    );
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Step::Quit);
}

#[test]
fn a_dialog_that_is_closed_stays_closed() {
    let mut screen = opened(seen("order:stock:42"));
    press(&mut screen, KeyCode::Esc);
    assert_eq!(screen.unlocking.as_ref().unwrap().lines(), None);
    // An answer that comes late opens nothing.
    screen.answered(Answer::Seen(Ok(seen("order:stock:42"))));
    assert_eq!(screen.unlocking.as_ref().unwrap().lines(), None);
    for (answer, said) in [
        (Ok(Snapshot::free("order:stock:42")), "nobody holds it"),
        (Err(Failure::usage("it is away")), "it is away"),
    ] {
        press(&mut screen, KeyCode::Char('u'));
        screen.answered(Answer::Seen(answer));
        assert_eq!(screen.unlocking.as_ref().unwrap().lines(), None);
        assert!(screen.said.as_ref().unwrap().contains(said));
    }
}

#[test]
fn a_name_that_cannot_be_typed_is_typed_as_it_is_shown() {
    let mut screen = opened(seen("invoice\n7"));
    let text = shown(&mut screen, SIZE);
    assert!(text.contains(r"invoice\n7"), "{text}");
    write(&mut screen, r"invoice\n7");
    let sent = press(&mut screen, KeyCode::Enter);
    assert!(matches!(sent, Step::Unlock(name, _) if name == "invoice\n7"));
}
