//! The screen of `tidelock top` at a real terminal: what it shows, and what it leaves behind.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vt100::{Color, Parser, Screen};

use crate::bench::{Bench, PATIENCE, Process, Run};

const ROWS: NonZero<u16> = NonZero::new(30).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(140).unwrap();

/// Starts `top`, writes its process id to a file, and tells afterwards how it ended and whether lines are edited again.
const SCRIPT: &str = r#"stty cols 140 rows 30
sh -c 'echo $$ > "$pid"; exec "$tidelock" $flags top' || failed=$?
echo code ${failed:-0}
stty -a | grep -o '[-]*icanon'
read line"#;

/// `tidelock top` at a terminal of its own, and what that terminal shows.
struct Terminal {
    script: Child,
    shown: Arc<(Mutex<Parser>, Condvar)>,
}

impl Terminal {
    fn open(bench: &Bench, env: &[(&str, &str)]) -> Self {
        // `script` provides the terminal.
        let mut script = bench.program("script");
        script
            .args(["-q", "-e", "-c", SCRIPT, "/dev/null"])
            .env("tidelock", env!("CARGO_BIN_EXE_tidelock"))
            .env("pid", bench.path("pid"))
            .env("flags", "")
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = script.spawn().unwrap();
        let mut said = script.stdout.take().unwrap();
        let shown = Arc::new((Mutex::new(Parser::new(ROWS, COLUMNS, 0)), Condvar::new()));
        let terminal = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = said.read(&mut bytes) {
                terminal.0.lock().unwrap().process(&bytes[..count]);
                terminal.1.notify_all();
            }
        });
        Self { script, shown }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows it.
    #[track_caller]
    fn until(&self, what: &str, is_it: impl Fn(&Screen) -> bool) {
        let begun = Instant::now();
        let (parser, changed) = &*self.shown;
        let mut parser = parser.lock().unwrap();
        while !is_it(parser.screen()) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let text = parser.screen().contents();
            assert!(!left.is_zero(), "{what:?} was not shown:\n{text}");
            (parser, _) = changed.wait_timeout(parser, left).unwrap();
        }
    }

    /// Waits until the screen of `top` contains all of this.
    #[track_caller]
    fn until_screen(&self, parts: &[&str]) {
        self.until(&parts.join(", "), |screen| {
            let text = screen.contents();
            screen.alternate_screen() && parts.iter().all(|part| text.contains(part))
        });
    }

    /// Waits until `top` has ended with this code. The terminal has to be as it was.
    #[track_caller]
    fn until_end(&self, code: u8) {
        let (code, icanon) = (format!("code {code}\n"), "\nicanon");
        self.until(&code, |screen| {
            let text = screen.contents();
            let is_as_it_was = !screen.alternate_screen() && !screen.hide_cursor();
            is_as_it_was && text.contains(&code) && text.contains(icanon)
        });
    }

    /// The colours of the letters that are shown.
    fn colours(&self) -> Vec<Color> {
        let parser = self.shown.0.lock().unwrap();
        let screen = parser.screen();
        let cells =
            (0..ROWS.get()).flat_map(|row| (0..COLUMNS.get()).map(move |column| (row, column)));
        let cells = cells.filter_map(|(row, column)| screen.cell(row, column));
        let mut colours: Vec<Color> = cells.map(vt100::Cell::fgcolor).collect();
        colours.retain(|colour| *colour != Color::Default);
        colours
    }

    /// The process of `top`. Only once its screen is shown.
    fn process(bench: &Bench) -> Process {
        let pid = std::fs::read_to_string(bench.path("pid")).unwrap();
        Process(pid.trim().parse().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Killing `script` closes the terminal, and with it every process at that terminal ends.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Two `tidelock run` of one lock: the one that holds it, and the one that waits.
fn holder_and_waiter(bench: &Bench) -> (Run, Run) {
    let mut holder = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(holder.line(), "in");
    (holder, bench.run(&[], "true"))
}

#[test]
fn top_follows_its_keys_and_leaves_the_terminal_as_it_was() {
    let bench = Bench::new();
    let (holder, _waiter) = holder_and_waiter(&bench);
    let mut terminal = Terminal::open(&bench, &[]);
    terminal.until_screen(&[
        "[1 Locks]",
        "waiters 1",
        "job",
        &holder.child.id().to_string(),
    ]);
    terminal.press("2");
    terminal.until_screen(&["[2 Queues]", "└ sh"]);
    terminal.press("3");
    terminal.until_screen(&["[3 Processes]", "PROCESS"]);
    terminal.press("1\r");
    terminal.until_screen(&["holds  sh", "waits  sh"]);
    terminal.press("f");
    terminal.until_screen(&["FROZEN"]);
    terminal.press("y");
    terminal.until_screen(&["show -- job"]);
    terminal.press("q");
    terminal.until_end(0);
    terminal.until("the command again", |screen| {
        screen.contents().contains("show -- job")
    });
}

#[test]
fn a_signal_ends_top_and_leaves_the_terminal_as_it_was() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::INT, 0),
    ] {
        let bench = Bench::with_a_store();
        let terminal = Terminal::open(&bench, &[]);
        terminal.until_screen(&["contended 0"]);
        Terminal::process(&bench).signal(signal);
        terminal.until_end(code);
    }
}

/// Starts `top` behind a process that gets the signal of a terminal that is closed, and ignores it.
const DEAF: &str = r#"trap '' HUP; "$tidelock" top; exit $?"#;

/// Every write to such a terminal fails, so all that `top` does about its end may fail, but not its exit code.
#[test]
fn a_terminal_that_is_closed_ends_top() {
    let tidelock = env!("CARGO_BIN_EXE_tidelock");
    for command in [&[tidelock, "top"][..], &["sh", "-c", DEAF]] {
        let bench = Bench::with_a_store();
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&master).unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        // It makes the process the first one at its own terminal.
        let mut top = bench.program("setsid");
        top.arg("--ctty")
            .args(command)
            .env("tidelock", tidelock)
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        let mut top = KilledAtEnd(top.spawn().unwrap());
        let mut master = File::from(master);
        let mut shown = Parser::new(ROWS, COLUMNS, 0);
        let mut bytes = [0; 4096];
        let limit = Timespec::try_from(PATIENCE).unwrap();
        while !shown.screen().contents().contains("contended 0") {
            let mut output = [PollFd::new(&master, PollFlags::IN)];
            assert_eq!(poll(&mut output, Some(&limit)).unwrap(), 1);
            let count = master.read(&mut bytes).unwrap();
            shown.process(&bytes[..count]);
        }
        drop(master);
        Process(i32::try_from(top.0.id()).unwrap()).await_end();
        assert_eq!(top.0.wait().unwrap().code(), Some(129), "{command:?}");
    }
}

struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_contended_lock_has_a_colour_unless_no_color_is_set() {
    let bench = Bench::new();
    let _both = holder_and_waiter(&bench);
    let coloured = Terminal::open(&bench, &[]);
    // The head is drawn before the rows, and a row from left to right. At its end is how long somebody waits.
    let is_row = |line: &str| line.starts_with("job ") && !line.trim_end().ends_with('-');
    let is_contended = |screen: &Screen| screen.contents().lines().any(is_row);
    coloured.until("a contended lock", is_contended);
    assert!(!coloured.colours().is_empty());
    let plain = Terminal::open(&bench, &[("NO_COLOR", "1")]);
    plain.until("a contended lock", is_contended);
    assert_eq!(plain.colours(), []);
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_gets_text() {
    let bench = Bench::with_a_store();
    let terminal = Terminal::open(&bench, &[("TERM", "dumb")]);
    terminal.until("text", |screen| screen.contents().contains("contended 0"));
    let parser = terminal.shown.0.lock().unwrap();
    assert!(!parser.screen().alternate_screen());
}

/// The lines of the log would move the screen, and stay on it.
#[test]
fn a_terminal_that_shows_the_log_gets_text() {
    let bench = Bench::with_a_store();
    let terminal = Terminal::open(&bench, &[("flags", "-v")]);
    terminal.until("text", |screen| {
        assert!(!screen.alternate_screen());
        screen.contents().contains("contended 0")
    });
}
