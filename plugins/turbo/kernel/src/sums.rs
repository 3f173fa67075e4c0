//! Polynomials over the bytes of texts: the part of the hash of keys that looks at every byte (core's `flow/key_hashes.py`).

/// Odd, so that it has an inverse modulo 2**64. A part of the storage format, as the whole polynomial is.
const BASE: u64 = 0x100000001B3;
const STEP: usize = 8;
const POWERS: [u64; STEP + 1] = powers();

const fn powers() -> [u64; STEP + 1] {
    let mut made = [1; STEP + 1];
    let mut place = 1;
    while place <= STEP {
        made[place] = BASE.wrapping_mul(made[place - 1]);
        place += 1;
    }
    made
}

/// Writes the polynomial of each text; false where a text is not in `data`.
pub fn write(data: &[u8], offsets: &[i64], sums: &mut [u64]) -> bool {
    for (ends, sum) in offsets.windows(2).zip(sums) {
        let (begin, end) = (ends[0], ends[1]);
        if begin < 0 || end < begin || end as u64 > data.len() as u64 {
            return false;
        }
        *sum = polynomial(&data[begin as usize..end as usize]);
    }
    true
}

/// Sum of `(byte[i] + 1) * BASE**i` modulo 2**64. Terms of eight bytes do not wait for one another.
fn polynomial(text: &[u8]) -> u64 {
    let steps = text.chunks_exact(STEP);
    let mut total = terms(steps.remainder());
    for step in steps.rev() {
        total = total.wrapping_mul(POWERS[STEP]).wrapping_add(terms(step));
    }
    total
}

#[inline(always)]
fn terms(bytes: &[u8]) -> u64 {
    bytes.iter().zip(POWERS).fold(0, |sum, (byte, power)| sum.wrapping_add((u64::from(*byte) + 1).wrapping_mul(power)))
}

#[cfg(test)]
mod tests {
    use super::{polynomial, write, BASE};

    #[test]
    fn as_by_the_definition() {
        for size in [0, 1, 7, 8, 9, 16, 100] {
            let text: Vec<u8> = (0..size).map(|place| (place * 37 + 200) as u8).collect();
            let plain = text.iter().rev().fold(0u64, |sum, byte| sum.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1));
            assert_eq!(polynomial(&text), plain);
        }
    }

    #[test]
    fn places_outside_are_refused() {
        let mut sums = [0; 2];
        assert!(write(b"ab", &[0, 1, 2], &mut sums));
        assert!(!write(b"ab", &[0, 1, 3], &mut sums));
        assert!(!write(b"ab", &[0, 2, 1], &mut sums));
        assert!(!write(b"ab", &[-1, 1, 2], &mut sums));
    }
}
