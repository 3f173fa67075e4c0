//! Rows in groups of equal keys, and the sums of their numbers: one pass over the rows, with a table of groups.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A text of Arrow's string views: its length, then the text itself up to twelve bytes, else four bytes, a buffer and a place there.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct View {
    low: u64,
    high: u64,
}

const INLINE_MAX: usize = 12;

impl View {
    fn len(self) -> usize {
        self.low as u32 as usize
    }

    /// The bytes of a text that is not in the view itself; None where they are not in the buffers.
    fn outside<'a>(self, buffers: &[&'a [u8]]) -> Option<&'a [u8]> {
        let (buffer, begin) = (self.high as u32 as usize, (self.high >> 32) as usize);
        buffers.get(buffer)?.get(begin..begin.checked_add(self.len())?)
    }
}

/// A column of keys without NULL.
pub enum Keys<'a> {
    Integers(&'a [i64]),
    Texts(&'a [View], Vec<&'a [u8]>),
}

impl Keys<'_> {
    fn hash(&self, row: usize, seed: u64) -> Option<u64> {
        Some(match self {
            Keys::Integers(values) => mixed(seed, values[row] as u64),
            Keys::Texts(views, buffers) => {
                let view = views[row];
                if view.len() <= INLINE_MAX {
                    return Some(mixed(mixed(seed, view.low), view.high));
                }
                let steps = view.outside(buffers)?.chunks_exact(8);
                let rest = steps.remainder().iter().fold(view.len() as u64, |made, byte| made << 8 | u64::from(*byte));
                let whole = |made, step: &[u8]| mixed(made, u64::from_le_bytes(step.try_into().unwrap_or_default()));
                mixed(steps.fold(seed, whole), rest)
            }
        })
    }

    /// Whether two rows have the same key. Their texts are in the buffers: both were hashed.
    #[inline(always)]
    fn equal(&self, one: usize, other: usize) -> bool {
        match self {
            Keys::Integers(values) => values[one] == values[other],
            Keys::Texts(views, buffers) => {
                let (one, other) = (views[one], views[other]);
                if one == other {
                    return true;
                }
                one.len() > INLINE_MAX && one.low == other.low && one.outside(buffers) == other.outside(buffers)
            }
        }
    }
}

#[inline(always)]
fn mixed(state: u64, value: u64) -> u64 {
    let wide = u128::from(state ^ value ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
    wide as u64 ^ (wide >> 64) as u64
}

/// Slots with the upper half of a hash and a group, counted from one; 0 is an empty slot.
struct Table {
    slots: Vec<u64>,
    mask: usize,
}

impl Table {
    fn of(bits: u32) -> Table {
        Table { slots: vec![0; 1 << bits], mask: (1 << bits) - 1 }
    }

    /// Doubles the slots. Half of a hash is kept, so it says the place of a group as long as there are no more than 2**32 slots.
    fn grown(&self) -> Table {
        let mut made = Table { slots: vec![0; self.slots.len() * 2], mask: self.mask * 2 + 1 };
        for slot in self.slots.iter().filter(|slot| **slot != 0) {
            let mut place = (slot >> 32) as usize & made.mask;
            while made.slots[place] != 0 {
                place = (place + 1) & made.mask;
            }
            made.slots[place] = *slot;
        }
        made
    }
}

/// Writes the first row of each group, in this order, to `firsts`, and the group of each row to `groups`. Returns the number of groups;
/// None where a text is not in its buffers.
pub fn group(keys: &[Keys], firsts: &mut [u32], groups: &mut [u32]) -> Option<usize> {
    // Another one in each call: nobody can choose keys that all fall into one slot.
    let seed = RandomState::new().build_hasher().finish();
    let (mut table, mut count) = (Table::of(12), 0);
    for (row, group) in groups.iter_mut().enumerate() {
        let mut hash = seed;
        for column in keys {
            hash = column.hash(row, hash)?;
        }
        let half = hash >> 32;
        let mut place = half as usize & table.mask;
        loop {
            let slot = table.slots[place];
            if slot == 0 {
                firsts[count] = row as u32;
                *group = count as u32;
                count += 1;
                table.slots[place] = half << 32 | count as u64;
                if count * 2 > table.mask {
                    table = table.grown();
                }
                break;
            }
            let found = slot as u32 - 1;
            if slot >> 32 == half && keys.iter().all(|column| column.equal(row, firsts[found as usize] as usize)) {
                *group = found;
                break;
            }
            place = (place + 1) & table.mask;
        }
    }
    Some(count)
}

/// Adds each column's values by group; sums wrap around. A column that is None is 1 in each row. `made` has room for `columns.len()` times
/// `count` numbers, one column's after another.
pub fn sum(groups: &[u32], count: usize, columns: &[Option<&[i64]>], made: &mut [i64]) {
    made.fill(0);
    for (values, sums) in columns.iter().zip(made.chunks_exact_mut(count.max(1))) {
        match values {
            Some(values) => {
                for (group, value) in groups.iter().zip(*values) {
                    let sum = &mut sums[*group as usize];
                    *sum = sum.wrapping_add(*value);
                }
            }
            None => groups.iter().for_each(|group| sums[*group as usize] += 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{group, sum, Keys, View};

    fn view(text: &[u8], data: &mut Vec<u8>) -> View {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
        if text.len() <= 12 {
            bytes[4..4 + text.len()].copy_from_slice(text);
        } else {
            bytes[4..8].copy_from_slice(&text[..4]);
            bytes[12..].copy_from_slice(&(data.len() as u32).to_le_bytes());
            data.extend(text);
        }
        let number = |part: &[u8]| u64::from_le_bytes(part.try_into().unwrap());
        View { low: number(&bytes[..8]), high: number(&bytes[8..]) }
    }

    #[test]
    fn groups_are_in_the_order_of_their_first_rows() {
        let mut data = Vec::new();
        let texts: Vec<String> = (0..9000).map(|row| "long enough to be outside ".repeat(row % 2) + &(row % 4001).to_string()).collect();
        let views: Vec<View> = texts.iter().map(|text| view(text.as_bytes(), &mut data)).collect();
        let numbers: Vec<i64> = (0..9000).map(|row| row % 2).collect();
        let keys = [Keys::Texts(&views, vec![&data]), Keys::Integers(&numbers)];
        let (mut firsts, mut groups) = (vec![0; 9000], vec![0; 9000]);
        let count = group(&keys, &mut firsts, &mut groups).unwrap();
        assert_eq!(count, 8002);
        assert_eq!(firsts[..count], (0..8002).collect::<Vec<u32>>());
        assert_eq!(groups[8002..], (0..998).collect::<Vec<u32>>());
        let mut made = vec![7; 3 * count];
        sum(&groups, count, &[Some(&numbers), Some(&[i64::MAX; 9000]), None], &mut made);
        assert_eq!(made[..4], [0, 2, 0, 2]);
        assert_eq!(made[count], i64::MAX.wrapping_mul(2));
        assert_eq!(made[2 * count - 1], i64::MAX);
        assert_eq!(made[2 * count..].iter().sum::<i64>(), 9000);
    }

    #[test]
    fn texts_outside_their_buffers_are_refused() {
        let mut data = Vec::new();
        let views = [view(b"a text outside of its view", &mut data)];
        let (mut firsts, mut groups) = ([0], [0]);
        assert_eq!(group(&[Keys::Texts(&views, vec![&data])], &mut firsts, &mut groups), Some(1));
        assert_eq!(group(&[Keys::Texts(&views, vec![&data[1..]])], &mut firsts, &mut groups), None);
        assert_eq!(group(&[Keys::Texts(&views, vec![])], &mut firsts, &mut groups), None);
    }
}
