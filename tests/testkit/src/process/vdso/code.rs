//! The machine code that replaces the functions of the vDSO, and the numbers behind it.

/// Makes the system call of `clock_gettime`, and changes the time as [`Warp`] says. The other two functions call it.
pub(super) const CODE: [u8; 176] = [
    // clock_gettime(edi: the clock, rsi: the time)
    0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228
    0x0f, 0x05, // syscall
    0x85, 0xc0, // test eax, eax
    0x75, 0x58, // jne end: it failed
    0x4c, 0x8d, 0x0d, 0xa6, 0x00, 0x00, 0x00, // lea r9, [the wall clock]
    0x85, 0xff, // test edi, edi
    0x74, 0x16, // je warp: CLOCK_REALTIME
    0x83, 0xff, 0x05, // cmp edi, 5
    0x74, 0x11, // je warp: CLOCK_REALTIME_COARSE
    0x4c, 0x8d, 0x0d, 0xa6, 0x00, 0x00, 0x00, // lea r9, [the monotonic clock]
    0x83, 0xff, 0x01, // cmp edi, 1
    0x74, 0x05, // je warp: CLOCK_MONOTONIC
    0x83, 0xff, 0x06, // cmp edi, 6
    0x75, 0x37, // jne end: not CLOCK_MONOTONIC_COARSE either
    // warp: rax = the time in nanoseconds
    0x48, 0x69, 0x06, 0x00, 0xca, 0x9a, 0x3b, // imul rax, [rsi], 1000000000
    0x48, 0x03, 0x46, 0x08, // add rax, [rsi + 8]
    0x49, 0x89, 0xc0, // mov r8, rax
    0x49, 0x2b, 0x01, // sub rax, [r9]: since when it runs faster
    0x48, 0xf7, 0x2d, 0x6c, 0x00, 0x00, 0x00, // imul [by how much, times 2^32]
    0x48, 0x0f, 0xac, 0xd0, 0x20, // shrd rax, rdx, 32
    0x4c, 0x01, 0xc0, // add rax, r8
    0x49, 0x03, 0x41, 0x08, // add rax, [r9 + 8]: how far it is ahead
    0x31, 0xd2, // xor edx, edx
    0xb9, 0x00, 0xca, 0x9a, 0x3b, // mov ecx, 1000000000
    0x48, 0xf7, 0xf1, // div rcx
    0x48, 0x89, 0x06, // mov [rsi], rax
    0x48, 0x89, 0x56, 0x08, // mov [rsi + 8], rdx
    0x31, 0xc0, // xor eax, eax
    0xc3, // end: ret
    // gettimeofday(rdi: the time, with microseconds at the place of the nanoseconds)
    0x48, 0x85, 0xff, // test rdi, rdi
    0x74, 0x1c, // je none: only the time zone is wanted
    0x48, 0x89, 0xfe, // mov rsi, rdi
    0x31, 0xff, // xor edi, edi
    0xe8, 0x8d, 0xff, 0xff, 0xff, // call clock_gettime, which keeps rsi
    0x48, 0x8b, 0x46, 0x08, // mov rax, [rsi + 8]
    0x31, 0xd2, // xor edx, edx
    0xb9, 0xe8, 0x03, 0x00, 0x00, // mov ecx, 1000
    0x48, 0xf7, 0xf1, // div rcx
    0x48, 0x89, 0x46, 0x08, // mov [rsi + 8], rax
    0x31, 0xc0, // none: xor eax, eax
    0xc3, // ret
    // time(rdi: where to write it, or 0)
    0x57, // push rdi
    0x48, 0x83, 0xec, 0x10, // sub rsp, 16
    0x48, 0x89, 0xe6, // mov rsi, rsp
    0x31, 0xff, // xor edi, edi
    0xe8, 0x69, 0xff, 0xff, 0xff, // call clock_gettime
    0x48, 0x8b, 0x04, 0x24, // mov rax, [rsp]
    0x48, 0x83, 0xc4, 0x10, // add rsp, 16
    0x5f, // pop rdi
    0x48, 0x85, 0xff, // test rdi, rdi
    0x74, 0x03, // je out
    0x48, 0x89, 0x07, // mov [rdi], rax
    0xc3, // out: ret
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
];

/// The functions that begin behind `clock_gettime`, and where.
pub(super) const OTHERS: [(&str, u32); 2] = [("__vdso_gettimeofday", 0x64), ("__vdso_time", 0x88)];

/// The numbers behind the code: `shown = true + ahead + (true - since) * faster / 2^32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Warp {
    pub(super) faster: i64,
    pub(super) wall: Clock,
    pub(super) monotonic: Clock,
}

/// One clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) since: i64,
    pub(super) ahead: i64,
}

impl Warp {
    pub(super) const LENGTH: usize = 40;

    pub(super) fn bytes(&self) -> [u8; Self::LENGTH] {
        let (wall, monotonic) = (self.wall, self.monotonic);
        let numbers = [
            self.faster,
            wall.since,
            wall.ahead,
            monotonic.since,
            monotonic.ahead,
        ];
        let mut bytes = [0; Self::LENGTH];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..][..8]);
            i64::from_le_bytes(word)
        };
        let clock = |at| Clock {
            since: number(at),
            ahead: number(at + 1),
        };
        Self {
            faster: number(0),
            wall: clock(1),
            monotonic: clock(3),
        }
    }
}

impl Clock {
    /// From now on it counts how far it has come ahead, so that another rate can begin without a jump.
    pub(super) fn settle(&mut self, now: i64, faster: i64) {
        let gained = (i128::from(now - self.since) * i128::from(faster)) >> 32;
        // A clock gains less than it runs.
        self.ahead += i64::try_from(gained).unwrap_or_default();
        self.since = now;
    }
}
