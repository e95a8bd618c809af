//! A command at a terminal, started by a shell with job control: which process may read, and the terminal's state
//! afterwards.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::bench::{Bench, PATIENCE, Process};

/// An interactive shell at a separate terminal. Its output arrives as lines, with the echo of the input between them.
struct Shell {
    terminal: Child,
    lines: Receiver<String>,
}

impl Shell {
    fn open(bench: &Bench) -> Self {
        // `script` provides the terminal. The prompt is a whole line, so that a test can await it.
        let mut terminal = bench.program("script");
        let shell = "PS1='ready\\n' exec bash --norc --noprofile --noediting -i";
        terminal
            .args(["-q", "-e", "-c", shell, "/dev/null"])
            .env("tidelock", env!("CARGO_BIN_EXE_tidelock"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut terminal = terminal.spawn().unwrap();
        let said = BufReader::new(terminal.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in said.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                let _ = tell.send(line);
            }
        });
        let mut shell = Self { terminal, lines };
        shell.until("ready");
        shell
    }

    fn write(&mut self, text: &str) {
        let stdin = self.terminal.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    /// Reads lines until one begins with this.
    fn until(&mut self, begin: &str) -> String {
        self.until_line(begin, |line| line.starts_with(begin))
    }

    /// Reads lines until one contains this.
    fn until_containing(&mut self, part: &str) -> String {
        self.until_line(part, |line| line.contains(part))
    }

    fn until_line(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if is_it(&line) => return line,
                Ok(line) => seen.push(line),
                Err(end) => panic!("{what:?} was not said ({end}): {seen:#?}"),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Killing `script` closes the terminal, and with it every process at that terminal ends.
        let _ = self.terminal.kill();
        let _ = self.terminal.wait();
    }
}

#[test]
fn a_command_in_the_background_gets_the_terminal_when_it_is_brought_forward() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell
        .write("$tidelock run job -- sh -c 'read l; echo \"got $l\"; read l; echo \"and $l\"' &\n");
    shell.until("tidelock: job: the command waits for the terminal");
    shell.write("fg\n");
    shell.write("one\n");
    shell.until("got one");
    // The command keeps the terminal: Ctrl-Z cannot suspend it while it holds the lock.
    shell.write("\x1a");
    shell.until("^Ztidelock: job: not stopped");
    shell.write("two\n");
    shell.until("and two");
    shell.until("ready");
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

#[test]
fn a_command_in_a_pipeline_may_read_what_is_typed() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("$tidelock run job -- sh -c 'echo in; read l; echo \"got $l\"' | cat\n");
    shell.until("in");
    shell.write("one\n");
    shell.until("got one");
    shell.until("ready");
}

/// The command does not have the terminal here, so Ctrl-Z goes to `tidelock`, and to the rest of its pipeline.
#[test]
fn ctrl_z_stops_no_command_that_writes_elsewhere_and_no_pipeline() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    let (flag, output) = (bench.path("flag"), bench.path("output"));
    let (flag, output) = (flag.display(), output.display());
    let script = format!("echo in > /dev/tty; until [ -e {flag} ]; do sleep 0.05; done; echo out");
    for to in [format!("> {output}; cat {output}"), "| cat".to_owned()] {
        shell.write(&format!("$tidelock run job -- sh -c '{script}' {to}\n"));
        shell.until("in");
        shell.write("\x1a");
        shell.until_containing("tidelock: job: not stopped");
        std::fs::write(bench.path("flag"), "").unwrap();
        shell.until("out");
        shell.until("ready");
        std::fs::remove_file(bench.path("flag")).unwrap();
    }
}

/// No command runs yet that could get Ctrl-Z instead, and none ever does under `hold`.
#[test]
fn ctrl_z_stops_no_pipeline_of_a_process_that_waits_or_holds() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    let flag = bench.path("flag");
    let until_there = format!("until [ -e {} ]; do sleep 0.05; done", flag.display());
    let mut holder = bench.run(&[], &format!("echo in; {until_there}"));
    assert_eq!(holder.line(), "in");
    shell.write("$tidelock run job -- echo out | cat\n");
    // It is said after the first connect. The line of the wait is drawn over and over, and does not end.
    shell.until("tidelock: store: ");
    shell.write("\x1a");
    shell.until_containing("tidelock: not stopped");
    std::fs::write(&flag, "").unwrap();
    shell.until_containing("out");
    shell.until("ready");
    assert_eq!(holder.end().0, Some(0));
    shell.write("$tidelock hold job | cat\n");
    shell.until_containing("held job");
    shell.write("\x1a");
    shell.until_containing("tidelock: not stopped");
    shell.write("\x04");
    shell.until("ready");
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

/// After `stty tostop` the terminal stops a process that writes in the background, and it could not renew.
#[test]
fn a_message_to_a_terminal_stops_no_process_in_the_background() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("stty tostop\n");
    shell.until("ready");
    shell.write("$tidelock --lease 6s run job -- sh -c 'read l; echo \"got $l\"' &\n");
    shell.until_containing("tidelock: job: the command waits for the terminal");
    // Two and a half leases.
    std::thread::sleep(Duration::from_secs(15));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 75);
    shell.write("fg\n");
    shell.write("one\n");
    shell.until("got one");
    shell.until("ready");
}

/// The shell has the terminal while its job is stopped, and keeps it after `bg`.
#[test]
fn a_run_in_the_background_does_not_take_the_terminal_from_the_shell() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    let flag = bench.path("flag");
    let script = format!(
        "echo pid $$; until [ -e {} ]; do sleep 0.05; done",
        flag.display()
    );
    shell.write(&format!("$tidelock run job -- sh -c '{script}'\n"));
    let pid = shell.until("pid ")[4..].parse().unwrap();
    let wrapper = Process(pid).parent().parent();
    wrapper.signal(rustix::process::Signal::STOP);
    shell.until("ready");
    shell.write("bg\n");
    shell.until("ready");
    std::fs::write(&flag, "").unwrap();
    wrapper.await_end();
    shell.write("echo the shell reads $((1 + 1))\n");
    shell.until("the shell reads 2");
}

/// A read in the background would stop the process, which then could not renew.
#[test]
fn a_hold_in_the_background_keeps_its_lock_until_it_is_brought_forward_and_ended() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("$tidelock --lease 6s hold job &\n");
    shell.until("held job");
    // Two and a half leases.
    std::thread::sleep(Duration::from_secs(15));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 75);
    shell.write("fg\n");
    shell.until("$tidelock --lease 6s hold job");
    shell.write("\x04");
    let wait = ["run", "--wait", "10s", "job", "--", "true"];
    assert_eq!(bench.code(&wait), 0);
}

/// A person at a terminal has no work that still needs the lock.
#[test]
fn ctrl_c_at_a_terminal_ends_a_hold_at_once() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("$tidelock hold job; echo code $?\n");
    shell.until("held job");
    shell.write("\x03");
    shell.until_containing("code 130");
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

#[test]
fn a_terminal_is_put_in_order_after_a_command_that_could_not() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("stty -a | grep -o '[-]*echonl'\n");
    shell.until("-echonl");
    shell.write("$tidelock run job -- sh -c 'stty echonl; kill -9 $$'; echo code $?\n");
    shell.until("code 137");
    shell.write("stty -a | grep -o '[-]*echonl'\n");
    shell.until("-echonl");
    // A command that exits normally may change the terminal's settings.
    shell.write("$tidelock run job -- stty echonl; echo code $?\n");
    shell.until("code 0");
    shell.write("stty -a | grep -o '[-]*echonl'\n");
    shell.until("echonl");
}

#[test]
fn a_terminal_that_is_closed_ends_the_command_and_frees_the_lock() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("$tidelock run job -- sh -c 'echo pid $$; exec sleep 1000'\n");
    let pid = shell.until("pid ")[4..].parse().unwrap();
    drop(shell);
    Process(pid).await_end();
    assert_eq!(
        bench.code(&["run", "--wait", "10s", "job", "--", "true"]),
        0
    );
}

#[test]
fn at_a_terminal_the_store_is_said() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    shell.write("$tidelock try job -- true\n");
    let told = shell.until("tidelock: store: ");
    assert!(
        told.ends_with("(all who use this file on this machine)"),
        "{told}"
    );
}

#[test]
fn at_a_terminal_a_wait_says_who_holds_the_lock() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    bench.shown("job");
    let mut shell = Shell::open(&bench);
    shell.write("$tidelock run --wait 10 job -- true\n");
    // The line is drawn over and over, so it is the part of a longer line of the terminal's output, which ends with the wait.
    let told = shell.until_containing("waiting for job: held by sh as ");
    assert!(told.contains(&holder.child.id().to_string()), "{told}");
}

#[test]
fn at_a_terminal_locks_are_a_table_with_colours_unless_no_color_is_set() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    bench.shown("job"); // the table has its user
    let mut shell = Shell::open(&bench);
    shell.write("stty cols 200; $tidelock show; $tidelock ls --modes\n");
    shell.until_containing("held by");
    let process = format!("{} on ", holder.child.id());
    let row = shell.until_containing(&process);
    assert!(row.contains("job") && row.contains('\u{1b}'), "{row:?}");
    assert!(row.contains(&crate::inspect::user()), "{row:?}");
    shell.until_containing("holders");
    shell.until_containing("exclusive");
    shell.write("NO_COLOR=1 $tidelock show | cat; NO_COLOR=1 $tidelock show\n");
    shell.until("job: held by sh as ");
    shell.until_containing("held by");
    let row = shell.until_containing(&process);
    assert!(row.contains("job") && !row.contains('\u{1b}'), "{row:?}");
}

/// A terminal of a script or of a container may say that it has no columns.
#[test]
fn a_table_keeps_its_words_whole_at_a_narrow_terminal() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    bench.shown("job"); // the table has its process
    let mut shell = Shell::open(&bench);
    for columns in [0, 20] {
        shell.write(&format!("stty cols {columns}; $tidelock show\n"));
        shell.until_containing("held by");
        shell.until_containing(&holder.child.id().to_string());
    }
}

/// The pager is in the process group of the wrapper, so the signal that stops it comes to both.
#[test]
fn a_pager_that_reads_the_terminal_stops_no_run_in_its_pipeline() {
    let bench = Bench::new();
    let mut shell = Shell::open(&bench);
    let (flag, end) = (bench.path("flag"), bench.path("end"));
    let until_there = |flag: &Path| format!("until [ -e {} ]; do sleep 0.05; done", flag.display());
    let command = format!(
        "read l; echo \"command $l\" > /dev/tty; {}; read l; echo \"command $l\"",
        until_there(&end)
    );
    let pager = format!(
        "{}; read k < /dev/tty; echo \"pager $k\"; cat",
        until_there(&flag)
    );
    shell.write(&format!(
        "$tidelock run job -- sh -c '{command}' | sh -c '{pager}'\n"
    ));
    shell.write("one\n");
    // The command reads the terminal, so it has it, and the pager does not.
    shell.until("command one");
    std::fs::write(&flag, "").unwrap();
    shell.write("two\n");
    shell.until("pager two");
    // The command gets it again.
    std::fs::write(&end, "").unwrap();
    shell.write("three\n");
    shell.until("command three");
    shell.until("ready");
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

/// bash goes on with the next line if a command ends with an exit code, although it was interrupted.
#[test]
fn ctrl_c_during_a_wait_ends_the_script_around_it() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    let mut shell = Shell::open(&bench);
    for command in ["run", "hold"] {
        let child = if command == "hold" { "" } else { " -- true" };
        shell.write(&format!(
            "bash -c '$tidelock {command} job{child}; echo next $((1 + 1))'\n"
        ));
        shell.until("tidelock: store: ");
        shell.write("\x03");
        let line = shell.until_line("the end", |line| {
            line.contains("next 2") || line.ends_with("ready")
        });
        assert!(!line.contains("next 2"), "{command}: {line}");
    }
}
