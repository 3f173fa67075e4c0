//! Objects to columns: which key goes into which column, and what a body as a whole must be.

use crate::columns::Column;
use crate::scan::{Cursor, Doubt, Parsed};

/// Keys whose place in the object is remembered.
const REMEMBERED_MAX: usize = 256;
/// A longer key is looked up each time.
const REMEMBERED_BYTES_MAX: usize = 128;

/// A key with the quote that ends it, and the column that it goes into.
struct Seen {
    key: Vec<u8>,
    column: Option<usize>,
}

/// The columns that the values of an object go into.
pub struct Fields {
    names: Vec<Vec<u8>>,
    pub columns: Vec<Column>,
    /// Column numbers by hash of the name; a column's number plus one, 0 where there is none.
    slots: Vec<u32>,
    /// What stood at each place of an earlier object: bodies of one source mostly have the same keys in the same order.
    seen: Vec<Seen>,
}

impl Fields {
    pub fn new(names: Vec<Vec<u8>>, columns: Vec<Column>) -> Fields {
        let size = (names.len() * 4).next_power_of_two();
        let mut slots = vec![0; size];
        for (number, name) in names.iter().enumerate() {
            let mut slot = hash(name) & (size - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            slots[slot] = number as u32 + 1;
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
        if let Some(seen) = self.seen.get(place) {
            let end = cursor.at + seen.key.len();
            if end <= cursor.end && cursor.bytes[cursor.at..end] == seen.key[..] {
                cursor.at = end;
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
        let name = &cursor.bytes[text.start..text.end];
        let column = self.column_of(name);
        if name.len() <= REMEMBERED_BYTES_MAX && place < REMEMBERED_MAX {
            let seen = Seen { key: cursor.bytes[text.start..text.end + 1].to_vec(), column };
            if place < self.seen.len() {
                self.seen[place] = seen;
            } else if place == self.seen.len() {
                self.seen.push(seen);
            }
        }
        Ok(column)
    }

    fn column_of(&self, name: &[u8]) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut slot = hash(name) & mask;
        while self.slots[slot] != 0 {
            let number = self.slots[slot] as usize - 1;
            if self.names[number] == name {
                return Some(number);
            }
            slot = (slot + 1) & mask;
        }
        None
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

/// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
fn hash(name: &[u8]) -> usize {
    let mixed = name.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (mixed ^ (mixed >> 32)) as usize
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
