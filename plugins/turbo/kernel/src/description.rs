//! What columns a decoder has, as bytes: numbers of 64 bits, little endian, and names with their length before them.
//!
//! Fields are their count, then for each its name and its column. A column is its kind and what belongs to it:
//!
//! | kind | | then |
//! |---|---|---|
//! | 0 | whole numbers | the least, the greatest |
//! | 1 | floats | |
//! | 2 | booleans | |
//! | 3 | texts | |
//! | 4 | moments in microseconds | whether texts have a zone, units a second of numbers |
//! | 5 | dates | |
//! | 6 | texts of numbers | |
//! | 7 | texts of JSON values | |
//! | 8 | structs | fields |
//! | 9 | lists | the column of the elements |

use crate::columns::{Bits, Column, ListColumn, TextKind, Values};
use crate::objects::Fields;

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.rest.get(..count)?;
        self.rest = &self.rest[count..];
        Some(taken)
    }

    fn number(&mut self) -> Option<i64> {
        let mut raw = [0; 8];
        raw.copy_from_slice(self.take(8)?);
        Some(i64::from_le_bytes(raw))
    }

    fn fields(&mut self) -> Option<Fields> {
        let (mut names, mut columns) = (Vec::new(), Vec::new());
        for _ in 0..self.number()? {
            let length = usize::try_from(self.number()?).ok()?;
            names.push(self.take(length)?.to_vec());
            columns.push(self.column()?);
        }
        Some(Fields::new(names, columns))
    }

    fn column(&mut self) -> Option<Column> {
        Some(match self.number()? {
            0 => Column::new(Values::Integers(self.number()?, self.number()?, Vec::new())),
            1 => Column::new(Values::Floats(Vec::new())),
            2 => Column::new(Values::Booleans(Bits::default())),
            3 => Column::texts(TextKind::String),
            4 => {
                let with_zone = self.number()? != 0;
                let units = self.number().filter(|units| *units > 0 && 1_000_000_000 % *units == 0)?;
                Column::new(Values::Moments(with_zone, units, Vec::new()))
            }
            5 => Column::new(Values::Days(Vec::new())),
            6 => Column::texts(TextKind::Number),
            7 => Column::texts(TextKind::Json),
            8 => Column::new(Values::Struct(self.fields()?)),
            9 => Column::new(Values::List(ListColumn { offsets: vec![0], inner: Box::new(self.column()?) })),
            _ => return None,
        })
    }
}

/// Returns the fields of a description, None if it is not understood or something stands behind it.
pub fn fields(description: &[u8]) -> Option<Fields> {
    let mut reader = Reader { rest: description };
    let fields = reader.fields()?;
    reader.rest.is_empty().then(|| fields)
}
