//! Objects to columns: which key goes into which column, and what a body as a whole must be.

use crate::columns::Column;
use crate::scan::{Cursor, Doubt, Parsed};

/// Keys whose place in the object is remembered.
const REMEMBERED_MAX: usize = 256;
/// A longer key is looked up each time.
const REMEMBERED_BYTES_MAX: usize = 128;

/// A key with the quote that ends it, and the column that it goes into. `missed`: another key stood here the last time.
struct Seen {
    key: Vec<u8>,
    column: Option<usize>,
    missed: bool,
}

/// A name of up to 16 bytes as three numbers, of a longer one the beginning and the end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Summary {
    head: u64,
    tail: u64,
    len: usize,
}

impl Summary {
    /// Of the `len` bytes from `start` on.
    #[inline(always)]
    fn of(bytes: &[u8], start: usize, len: usize) -> Summary {
        if len >= 8 {
            return Summary { head: word(bytes, start), tail: word(bytes, start + len - 8), len };
        }
        let head = if start + 8 <= bytes.len() {
            word(bytes, start) & ((1u64 << (8 * len)) - 1)
        } else {
            bytes[start..start + len].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        Summary { head, tail: 0, len }
    }

    /// Whether names with the same summary are equal.
    fn is_whole(&self) -> bool {
        self.len <= 16
    }

    #[inline(always)]
    fn hash(&self) -> usize {
        let mixed = self.head ^ self.tail.rotate_left(23) ^ (self.len as u64) << 56;
        (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// A place in the table of names: the summary of a name, and its column's number plus one, 0 where there is none.
#[derive(Clone, Copy)]
struct Slot {
    summary: Summary,
    column: usize,
}

/// The columns that the values of an object go into.
pub struct Fields {
    names: Vec<Vec<u8>>,
    pub columns: Vec<Column>,
    /// Column numbers by hash of the name.
    slots: Vec<Slot>,
    /// What stood at each place of an earlier object: bodies of one source mostly have the same keys in the same order.
    seen: Vec<Seen>,
}

impl Fields {
    pub fn new(names: Vec<Vec<u8>>, columns: Vec<Column>) -> Fields {
        let size = (names.len() * 4).next_power_of_two();
        let mut slots = vec![Slot { summary: Summary { head: 0, tail: 0, len: 0 }, column: 0 }; size];
        for (number, name) in names.iter().enumerate() {
            let summary = Summary::of(name, 0, name.len());
            let mut slot = summary.hash() & (size - 1);
            while slots[slot].column != 0 {
                slot = (slot + 1) & (size - 1);
            }
            slots[slot] = Slot { summary, column: number + 1 };
        }
        Fields { names, columns, slots, seen: Vec::new() }
    }

    /// The same fields with empty columns.
    pub fn emptied(&self) -> Fields {
        let columns = self.columns.iter().map(Column::emptied).collect();
        Fields { names: self.names.clone(), columns, slots: self.slots.clone(), seen: Vec::new() }
    }

    pub fn reserve(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.reserve(rows);
        }
    }

    /// Hands the columns over. Empty ones take their place.
    pub fn take_columns(&mut self) -> Vec<Column> {
        let empty = self.columns.iter().map(Column::emptied).collect();
        std::mem::replace(&mut self.columns, empty)
    }

    /// Reads the members of an object whose brace was read, and its closing brace. Keys that are missing leave their column short.
    #[inline(always)]
    pub fn read(&mut self, cursor: &mut Cursor, row: usize) -> Parsed<()> {
        if cursor.is_empty(b'}') {
            return Ok(());
        }
        let mut place = 0;
        loop {
            cursor.expect(b'"')?;
            let wanted = self.key(cursor, place)?;
            place += 1;
            cursor.colon()?;
            match wanted {
                Some(number) => {
                    let column = &mut self.columns[number];
                    if column.len > row {
                        // The key is repeated.
                        return Err(Doubt);
                    }
                    read_value(column, cursor)?;
                }
                None => cursor.skip_value()?,
            }
            if !cursor.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads a key whose opening quote was read, and returns the column that it goes into.
    #[inline(always)]
    fn key(&mut self, cursor: &mut Cursor, place: usize) -> Parsed<Option<usize>> {
        if let Some(seen) = self.seen.get_mut(place) {
            let end = cursor.at + seen.key.len();
            if end <= cursor.end && same(&cursor.bytes[cursor.at..end], &seen.key) {
                cursor.at = end;
                seen.missed = false;
                return Ok(seen.column);
            }
        }
        self.other_key(cursor, place)
    }

    #[inline(never)]
    fn other_key(&mut self, cursor: &mut Cursor, place: usize) -> Parsed<Option<usize>> {
        let text = cursor.text()?;
        if text.escaped {
            return Err(Doubt);
        }
        let len = text.end - text.start;
        let column = self.column_of(cursor.bytes, text.start, len);
        if len <= REMEMBERED_BYTES_MAX && place < REMEMBERED_MAX {
            let key = &cursor.bytes[text.start..text.end + 1];
            let known = self.seen.len();
            match self.seen.get_mut(place) {
                // Of bodies of several kinds those that come twice in a row are remembered.
                Some(seen) if !seen.missed => seen.missed = true,
                Some(seen) => {
                    seen.key.clear();
                    seen.key.extend_from_slice(key);
                    seen.column = column;
                    seen.missed = false;
                }
                None if place == known => self.seen.push(Seen { key: key.to_vec(), column, missed: false }),
                None => {}
            }
        }
        Ok(column)
    }

    #[inline(always)]
    fn column_of(&self, bytes: &[u8], start: usize, len: usize) -> Option<usize> {
        let summary = Summary::of(bytes, start, len);
        let mask = self.slots.len() - 1;
        let mut at = summary.hash() & mask;
        loop {
            let slot = &self.slots[at];
            if slot.column == 0 {
                return None;
            }
            let number = slot.column - 1;
            if slot.summary == summary && (summary.is_whole() || self.names[number] == bytes[start..start + len]) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds NULL to the columns that have fewer than `len` values.
    #[inline(always)]
    pub fn fill(&mut self, len: usize) {
        for column in &mut self.columns {
            if column.len < len {
                column.push_null();
            }
        }
    }

    pub fn truncate(&mut self, len: usize) {
        for column in &mut self.columns {
            column.truncate(len);
        }
    }
}

/// Not inlined: structs of structs go round here.
#[inline(never)]
fn read_value(column: &mut Column, cursor: &mut Cursor) -> Parsed<()> {
    column.read(cursor)
}

/// Whether two texts of the same length are equal. Mostly the first eight bytes tell keys apart: no call is needed then.
#[inline(always)]
fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() < 8 || other.len() < 8 {
        return one == other;
    }
    word(one, 0) == word(other, 0) && (one.len() == 8 || one[8..] == other[8..])
}

/// Reads bodies, one object each, into columns with a value for each body. Returns the bodies that are doubtful: NULLs stand for them.
pub fn read_bodies(fields: &mut Fields, buffer: &[u8], places: &[(usize, usize)], max_body_bytes: usize) -> Vec<i64> {
    let mut doubtful = Vec::new();
    fields.reserve(places.len());
    for (row, (start, end)) in places.iter().enumerate() {
        let mut cursor = Cursor { bytes: buffer, at: *start, end: *end };
        if end - start > max_body_bytes || read_body(fields, &mut cursor, row).is_err() {
            fields.truncate(row);
            doubtful.push(row as i64);
        }
        fields.fill(row + 1);
    }
    if fields.columns.iter().any(Column::is_too_long) {
        return (0..places.len() as i64).collect();
    }
    doubtful
}

fn read_body(fields: &mut Fields, cursor: &mut Cursor, row: usize) -> Parsed<()> {
    cursor.skip_blanks();
    cursor.expect(b'{')?;
    fields.read(cursor, row)?;
    cursor.skip_blanks();
    if cursor.at == cursor.end {
        Ok(())
    } else {
        Err(Doubt)
    }
}
