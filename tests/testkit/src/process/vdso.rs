//! Moves the wall clock of a program that reads the time through the vDSO, the page that the kernel maps into every
//! process. Programs written in Go do so, and no preloaded library can change what they see.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use object::{Endianness, Object, ObjectSymbol, read::elf::ElfFile64};

use super::{PATIENCE, freeze, thaw};

/// The machine code that replaces `clock_gettime` in that page. It makes the system call and adds the seconds stored
/// behind the code to the wall clock.
const CODE: [u8; 24] = [
    0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228: the number of clock_gettime
    0x0f, 0x05, // syscall
    0x85, 0xff, // test edi, edi: the wall clock is number 0
    0x75, 0x0a, // jne, to the ret
    0x48, 0x8b, 0x15, 0x06, 0x00, 0x00,
    0x00, // mov rdx, [rip + 6]: the seconds, stored behind this code
    0x48, 0x01, 0x16, // add [rsi], rdx
    0xc3, // ret
    0xcc, 0xcc,
];

/// Sets the wall clock of `pid`, a child of this process, `seconds` ahead of the true time (behind it, if negative).
/// Its other clocks stay correct. The process is frozen for a moment.
///
/// # Errors
/// Fails when the process does not run, is not for x86-64, or its memory is not writable.
pub fn shift_wall_clock(pid: u32, seconds: i64) -> Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the code for this processor is not written"
    );
    let page = Page::of(pid)?;
    let mut code = CODE.to_vec();
    code.extend(seconds.to_le_bytes());
    let at = page.clock_gettime(code.len())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        freeze(pid)?;
        let written = page.write_unless_used(at, &code);
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

    /// The address of the function that reads the time. It must be at least `length` bytes long, because we overwrite
    /// it.
    fn clock_gettime(&self, length: usize) -> Result<u64> {
        let elf = ElfFile64::<Endianness>::parse(&*self.image)?;
        for symbol in elf.dynamic_symbols() {
            if symbol.name() == Ok("__vdso_clock_gettime") {
                ensure!(symbol.size() >= length as u64, "it is too short");
                return Ok(self.from + symbol.address());
            }
        }
        bail!("the page does not tell the time")
    }

    /// Writes only if no thread is inside the page. Otherwise a thread in the middle of the old function would continue
    /// in the middle of the new one.
    fn write_unless_used(&self, at: u64, code: &[u8]) -> Result<bool> {
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
        memory
            .write_all_at(code, at)
            .context("writing to its memory")?;
        Ok(true)
    }
}
