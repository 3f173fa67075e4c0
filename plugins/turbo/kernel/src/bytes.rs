//! Where a byte is in a buffer: where the lines of a file end.
//!
//! `memchr` of the system's C library, which Rust's own library links anyway, looks at 16 to 64 bytes at once.

use std::ffi::{c_int, c_void};

extern "C" {
    fn memchr(begin: *const c_void, byte: c_int, bytes: usize) -> *const c_void;
}

/// Writes the places of `byte` from `begin` on, until `places` is full; returns how many there are in it.
pub fn find(searched: &[u8], byte: u8, begin: usize, places: &mut [i64]) -> usize {
    let mut at = begin;
    let mut count = 0;
    while count < places.len() && at < searched.len() {
        let rest = &searched[at..];
        // SAFETY: the range that is searched is a slice.
        let found = unsafe { memchr(rest.as_ptr() as *const c_void, c_int::from(byte), rest.len()) };
        if found.is_null() {
            break;
        }
        at += found as usize - rest.as_ptr() as usize;
        places[count] = at as i64;
        count += 1;
        at += 1;
    }
    count
}

/// Returns how often `byte` is there. Lanes of one byte each count up to 255 at a time, which the compiler turns into vectors.
pub fn count(searched: &[u8], byte: u8) -> usize {
    const LANES: usize = 64;
    let mut found = 0;
    for block in searched.chunks(LANES * 255) {
        let mut counts = [0u8; LANES];
        let lines = block.chunks_exact(LANES);
        let rest = lines.remainder();
        for line in lines {
            for (lane, value) in counts.iter_mut().zip(line) {
                *lane += u8::from(*value == byte);
            }
        }
        found += counts.iter().map(|lane| usize::from(*lane)).sum::<usize>();
        found += rest.iter().filter(|value| **value == byte).count();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{count, find};

    #[test]
    fn all_are_counted() {
        for size in [0, 1, 63, 64, 65, 64 * 255, 64 * 255 + 1, 100_000] {
            assert_eq!(count(&vec![7; size], 7), size);
            assert_eq!(count(&vec![7; size], 8), 0);
        }
        assert_eq!(count(b"a\nb\n\n", b'\n'), 3);
    }

    #[test]
    fn all_places_in_order() {
        let mut places = [0; 4];
        assert_eq!(find(b"a\nb\n\n", b'\n', 0, &mut places), 3);
        assert_eq!(places[..3], [1, 3, 4]);
        assert_eq!(find(b"a\nb\n\n", b'\n', 2, &mut places[..1]), 1);
        assert_eq!(places[0], 3);
        assert_eq!(find(b"", b'\n', 0, &mut places), 0);
        assert_eq!(find(b"\n", b'\n', 1, &mut places), 0);
    }
}
