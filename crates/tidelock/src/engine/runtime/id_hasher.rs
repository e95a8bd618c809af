//! A hasher for maps whose keys no outsider can choose.

use std::hash::Hasher;

/// A hasher for ids that count up, and for names, which carry a hash with a secret key. No outsider chooses either
/// value, so the map needs no protection against collisions, and each acquisition hashes several times. Entries with
/// neighbouring ids lie side by side in memory, because they are renewed together.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The factor is an odd number near 2^64 divided by the golden ratio: it puts blocks of 64 ids far apart. Within
        // a block the high bits differ. The map compares those first, so it can tell neighbours apart.
        let block = (id >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = block.wrapping_add(id & 63) ^ (id << 57);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
