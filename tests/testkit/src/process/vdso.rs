//! Changes the clocks of a program that reads the time through the vDSO, the page that the kernel maps into every
//! process. That needs no preparation before its start, and it works for Go, where no preloaded library changes the time.

mod code;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use object::{Endianness, Object, ObjectSymbol, read::elf::ElfFile64};
use rustix::time::{ClockId, clock_gettime};

use self::code::{CODE, Clock, OTHERS, Warp};
use super::{PATIENCE, freeze, thaw};

/// Sets the wall clock of `pid`, a child of this process, `seconds` ahead of the true time (behind it, if negative).
/// Its other clocks stay as they are. The process is frozen for a moment.
///
/// # Errors
/// Fails when the process does not run, is not for x86-64, or its memory is not writable.
pub fn shift_wall_clock(pid: u32, seconds: i64) -> Result<()> {
    change(pid, |warp, now| {
        warp.wall.settle(now.wall, 0);
        warp.wall.ahead = seconds * SECOND;
    })
}

/// From now on the wall clock and the monotonic clock of `pid` run at this rate; 1 is the true one. Neither jumps.
///
/// What the kernel counts for the process stays true: its time limits, and the instants until which a thread sleeps. A
/// program that sleeps until an instant of its clock (a JVM does) wakes too late or too early.
///
/// # Errors
/// The same as [`shift_wall_clock`], or when the rate is not between 0 and 2.
pub fn run_clocks(pid: u32, rate: f64) -> Result<()> {
    ensure!(
        (0.0..=2.0).contains(&rate),
        "no clock here runs at the rate {rate}"
    );
    change(pid, |warp, now| {
        warp.wall.settle(now.wall, warp.faster);
        warp.monotonic.settle(now.monotonic, warp.faster);
        #[allow(clippy::cast_possible_truncation, reason = "at most 2^32")]
        let faster = ((rate - 1.0) * 4_294_967_296.0) as i64;
        warp.faster = faster;
    })
}

/// The wall clock of `pid` shows the true time again, and its clocks run at the true rate. The monotonic clock keeps what
/// it has gained, because programs expect that it never jumps.
///
/// # Errors
/// The same as [`shift_wall_clock`].
pub fn right_clocks(pid: u32) -> Result<()> {
    change(pid, |warp, now| {
        warp.monotonic.settle(now.monotonic, warp.faster);
        warp.faster = 0;
        warp.wall = Clock {
            since: now.wall,
            ahead: 0,
        };
    })
}

const SECOND: i64 = 1_000_000_000;

/// The true clocks, in nanoseconds.
struct Now {
    wall: i64,
    monotonic: i64,
}

impl Now {
    fn read() -> Self {
        let nanos = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec * SECOND + time.tv_nsec
        };
        Self {
            wall: nanos(ClockId::Realtime),
            monotonic: nanos(ClockId::Monotonic),
        }
    }
}

fn change(pid: u32, change: impl Fn(&mut Warp, &Now)) -> Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the code for this processor is not written"
    );
    let page = Page::of(pid)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        freeze(pid)?;
        let written = page.write_unless_used(&change);
        thaw(pid)?;
        if written? {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "process {pid} does nothing but ask for the time"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The vDSO page and its address.
struct Page {
    pid: u32,
    from: u64,
    image: Vec<u8>,
}

impl Page {
    fn of(pid: u32) -> Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
            .with_context(|| format!("no process {pid}"))?;
        let line = maps.lines().find(|line| line.ends_with("[vdso]"));
        let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
        let (from, to) = range.context("the kernel has given it no such page")?;
        let from = u64::from_str_radix(from, 16)?;
        let length = usize::try_from(u64::from_str_radix(to, 16)? - from)?;
        let mut image = vec![0; length];
        File::open(format!("/proc/{pid}/mem"))?
            .read_exact_at(&mut image, from)
            .context("reading the page")?;
        Ok(Self { pid, from, image })
    }

    /// The offset of a function of the page. It must be at least `length` bytes long, because we overwrite it.
    fn function(&self, name: &str, length: usize) -> Result<usize> {
        let elf = ElfFile64::<Endianness>::parse(&*self.image)?;
        let mut symbols = elf.dynamic_symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(name));
        let symbol = symbol.with_context(|| format!("the page has no {name}"))?;
        ensure!(symbol.size() >= length as u64, "{name} is too short");
        Ok(usize::try_from(symbol.address())?)
    }

    /// The numbers that are in use.
    fn warp(&self, at: usize, now: &Now) -> Warp {
        let (code, behind) = self.image[at..].split_at(CODE.len());
        if code == CODE {
            return Warp::read(&behind[..Warp::LENGTH]);
        }
        let clock = |since| Clock { since, ahead: 0 };
        Warp {
            faster: 0,
            wall: clock(now.wall),
            monotonic: clock(now.monotonic),
        }
    }

    /// Writes only if no thread is inside the page. Otherwise a thread in the middle of the old function would continue
    /// in the middle of the new one.
    fn write_unless_used(&self, change: impl Fn(&mut Warp, &Now)) -> Result<bool> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let said = fs::read_to_string(thread?.path().join("syscall"))?;
            // The last word is the thread's instruction pointer; for a thread that has not stopped yet, it is
            // `running`.
            let place = said.split_whitespace().last().unwrap_or_default();
            let place = u64::from_str_radix(place.trim_start_matches("0x"), 16);
            let end = self.from + self.image.len() as u64;
            if place.is_err() || place.is_ok_and(|place| (self.from..end).contains(&place)) {
                return Ok(false);
            }
        }
        let memory = File::options()
            .write(true)
            .open(format!("/proc/{}/mem", self.pid))?;
        let write = |bytes: &[u8], at: usize| {
            let written = memory.write_all_at(bytes, self.from + at as u64);
            written.context("writing to its memory")
        };
        let at = self.function("__vdso_clock_gettime", CODE.len() + Warp::LENGTH)?;
        let now = Now::read();
        let mut warp = self.warp(at, &now);
        change(&mut warp, &now);
        write(&[&CODE[..], &warp.bytes()].concat(), at)?;
        for (name, inside) in OTHERS {
            let from = self.function(name, JUMP)?;
            // A jump counts from its own end.
            let far = i32::try_from(at)? + i32::try_from(inside)? - i32::try_from(from + JUMP)?;
            write(&[&[0xe9][..], &far.to_le_bytes()].concat(), from)?;
        }
        Ok(true)
    }
}

/// The length of a jump.
const JUMP: usize = 5;
