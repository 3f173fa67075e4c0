//! Columns that grow by a value a row, in the layout of Arrow: https://arrow.apache.org/docs/format/Columnar.html

use crate::moments;
use crate::objects::Fields;
use crate::scan::{Cursor, Doubt, Number, Parsed, Text};

/// Bytes of texts that a column may hold: Arrow counts them in 32 bits.
const TEXT_BYTES_MAX: usize = i32::MAX as usize;
/// Texts of so few bytes stand in the view itself.
const INLINE_MAX: usize = 12;
/// A whole number of so many digits is below 2^63 whatever they are.
const SURE_DIGITS: usize = 18;

/// Bits, the lowest of a byte first.
#[derive(Default)]
pub struct Bits {
    pub bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    fn ones(len: usize) -> Bits {
        let mut bits = Bits { bytes: vec![0xFF; (len + 7) / 8], len };
        bits.truncate(len);
        bits
    }

    #[inline(always)]
    fn push(&mut self, bit: bool) {
        if self.len % 8 == 0 {
            self.bytes.push(0);
        }
        let last = self.bytes.len() - 1;
        self.bytes[last] |= u8::from(bit) << (self.len % 8);
        self.len += 1;
    }

    /// Bits behind `len` are zeros.
    fn truncate(&mut self, len: usize) {
        self.len = len;
        self.bytes.truncate((len + 7) / 8);
        if len % 8 != 0 {
            let last = self.bytes.len() - 1;
            self.bytes[last] &= (1u8 << (len % 8)) - 1;
        }
    }

    fn is_set(&self, at: usize) -> bool {
        self.bytes[at / 8] & (1 << (at % 8)) != 0
    }
}

/// Which values are not NULL. There are no bits before the first NULL.
#[derive(Default)]
pub struct Validity {
    pub bits: Option<Bits>,
    pub nulls: usize,
}

impl Validity {
    #[inline(always)]
    fn push_good(&mut self) {
        if let Some(bits) = &mut self.bits {
            bits.push(true);
        }
    }

    fn push_null(&mut self, len: usize) {
        self.bits.get_or_insert_with(|| Bits::ones(len)).push(false);
        self.nulls += 1;
    }

    fn truncate(&mut self, len: usize) {
        if let Some(bits) = &mut self.bits {
            self.nulls -= (len..bits.len).filter(|at| !bits.is_set(*at)).count();
            bits.truncate(len);
        }
    }
}

/// Which values a column of texts takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Strings.
    String,
    /// Numbers as they are written, and strings without escapes that may hold one.
    Number,
    /// Any value, as it is written.
    Json,
}

/// Arrow's string view: the length, and the text itself or its first four bytes, the buffer and the offset there.
pub type View = [u32; 4];

pub struct TextColumn {
    kind: TextKind,
    pub views: Vec<View>,
    pub data: Vec<u8>,
    expected_bytes: usize,
    too_long: bool,
}

impl TextColumn {
    fn new(kind: TextKind, expected_bytes: usize) -> TextColumn {
        TextColumn { kind, views: Vec::new(), data: Vec::new(), expected_bytes, too_long: false }
    }

    #[inline(always)]
    fn push(&mut self, text: &[u8]) {
        let mut view = [0u8; 16];
        view[..4].copy_from_slice(&(text.len() as u32).to_ne_bytes());
        if text.len() <= INLINE_MAX {
            view[4..4 + text.len()].copy_from_slice(text);
        } else {
            view[4..8].copy_from_slice(&text[..4]);
            view[12..].copy_from_slice(&(self.data.len() as u32).to_ne_bytes());
            self.data.extend_from_slice(text);
            self.too_long |= self.data.len() > TEXT_BYTES_MAX;
        }
        self.views.push(as_view(view));
    }

    /// Adds the text that stands in `data` from `begin` on.
    #[inline(always)]
    fn push_behind(&mut self, begin: usize) {
        let len = self.data.len() - begin;
        let mut view = [0u8; 16];
        view[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        if len <= INLINE_MAX {
            view[4..4 + len].copy_from_slice(&self.data[begin..]);
            self.data.truncate(begin);
        } else {
            view[4..8].copy_from_slice(&self.data[begin..begin + 4]);
            view[12..].copy_from_slice(&(begin as u32).to_ne_bytes());
            self.too_long |= self.data.len() > TEXT_BYTES_MAX;
        }
        self.views.push(as_view(view));
    }
}

fn as_view(bytes: [u8; 16]) -> View {
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [word(0), word(4), word(8), word(12)]
}

pub struct ListColumn {
    pub offsets: Vec<i64>,
    pub inner: Box<Column>,
}

/// The values of a column, by what JSON must hold for them.
pub enum Values {
    /// Whole numbers from the first to the second number.
    Integers(i64, i64, Vec<i64>),
    Floats(Vec<f64>),
    Booleans(Bits),
    Texts(TextColumn),
    /// Microseconds since the Unix epoch, of texts with a zone or without, and of numbers of so many units a second.
    Moments(bool, i64, Vec<i64>),
    /// Days since the Unix epoch.
    Days(Vec<i32>),
    Struct(Fields),
    List(ListColumn),
}

pub struct Column {
    pub values: Values,
    pub validity: Validity,
    pub len: usize,
}

impl Column {
    pub fn new(values: Values) -> Column {
        Column { values, validity: Validity::default(), len: 0 }
    }

    pub fn texts(kind: TextKind) -> Column {
        Column::new(Values::Texts(TextColumn::new(kind, 0)))
    }

    /// An empty column of the same kind, which takes no memory yet.
    pub fn emptied(&self) -> Column {
        Column::new(match &self.values {
            Values::Integers(least, most, _) => Values::Integers(*least, *most, Vec::new()),
            Values::Floats(_) => Values::Floats(Vec::new()),
            Values::Booleans(_) => Values::Booleans(Bits::default()),
            Values::Texts(column) => Values::Texts(TextColumn::new(column.kind, column.data.len())),
            Values::Moments(with_zone, units, _) => Values::Moments(*with_zone, *units, Vec::new()),
            Values::Days(_) => Values::Days(Vec::new()),
            Values::Struct(fields) => Values::Struct(fields.emptied()),
            Values::List(column) => {
                Values::List(ListColumn { offsets: vec![0], inner: Box::new(column.inner.emptied()) })
            }
        })
    }

    /// Makes room for so many values, and for as much text as the batch before had.
    pub fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Values::Integers(_, _, values) | Values::Moments(_, _, values) => values.reserve(rows),
            Values::Floats(values) => values.reserve(rows),
            Values::Booleans(bits) => bits.bytes.reserve(rows / 8 + 1),
            Values::Texts(column) => {
                column.views.reserve(rows);
                column.data.reserve(column.expected_bytes + column.expected_bytes / 8);
            }
            Values::Days(values) => values.reserve(rows),
            Values::Struct(fields) => fields.reserve(rows),
            Values::List(column) => column.offsets.reserve(rows),
        }
    }

    /// Reads a value and adds it. After a `Doubt` the column may hold a part of it, which `truncate` takes out.
    #[inline(always)]
    pub fn read(&mut self, cursor: &mut Cursor) -> Parsed<()> {
        if cursor.peek() == b'n' {
            cursor.literal(b"null")?;
            self.push_null();
            return Ok(());
        }
        self.read_present(cursor)?;
        self.validity.push_good();
        self.len += 1;
        Ok(())
    }

    #[inline(always)]
    fn read_present(&mut self, cursor: &mut Cursor) -> Parsed<()> {
        match &mut self.values {
            Values::Texts(column) => read_text(column, cursor),
            Values::Integers(least, most, values) => {
                let number = cursor.number()?;
                let value = whole(cursor.bytes, number)?;
                if value < *least || value > *most {
                    return Err(Doubt);
                }
                values.push(value);
                Ok(())
            }
            Values::Floats(values) => {
                let number = cursor.number()?;
                values.push(float(cursor.bytes, number)?);
                Ok(())
            }
            Values::Booleans(bits) => {
                let value = cursor.peek() == b't';
                cursor.literal(if value { b"true" } else { b"false" })?;
                bits.push(value);
                Ok(())
            }
            Values::Moments(with_zone, units, values) => {
                values.push(moment(cursor, *with_zone, *units)?);
                Ok(())
            }
            Values::Days(values) => {
                let text = plain_text(cursor)?;
                values.push(moments::days(&cursor.bytes[text.start..text.end])? as i32);
                Ok(())
            }
            Values::Struct(fields) => {
                cursor.expect(b'{')?;
                fields.read(cursor, self.len)?;
                fields.fill(self.len + 1);
                Ok(())
            }
            Values::List(column) => {
                read_list(&mut column.inner, cursor)?;
                column.offsets.push(column.inner.len as i64);
                Ok(())
            }
        }
    }

    pub fn push_null(&mut self) {
        match &mut self.values {
            Values::Integers(_, _, values) | Values::Moments(_, _, values) => values.push(0),
            Values::Floats(values) => values.push(0.0),
            Values::Booleans(bits) => bits.push(false),
            Values::Texts(column) => column.views.push([0; 4]),
            Values::Days(values) => values.push(0),
            Values::Struct(fields) => fields.fill(self.len + 1),
            Values::List(column) => column.offsets.push(column.inner.len as i64),
        }
        self.validity.push_null(self.len);
        self.len += 1;
    }

    /// Takes out what stands behind the first `len` values, also a value that was read in part.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.values {
            Values::Integers(_, _, values) | Values::Moments(_, _, values) => values.truncate(len),
            Values::Floats(values) => values.truncate(len),
            Values::Booleans(bits) => bits.truncate(len),
            Values::Texts(column) => column.views.truncate(len),
            Values::Days(values) => values.truncate(len),
            Values::Struct(fields) => fields.truncate(len),
            Values::List(column) => {
                column.offsets.truncate(len + 1);
                column.inner.truncate(column.offsets[len] as usize);
            }
        }
        self.validity.truncate(len);
        self.len = len;
    }

    /// Whether texts take more bytes than Arrow can count: none of the rows can be used.
    pub fn is_too_long(&self) -> bool {
        match &self.values {
            Values::Texts(column) => column.too_long,
            Values::Struct(fields) => fields.columns.iter().any(Column::is_too_long),
            Values::List(column) => column.inner.is_too_long(),
            _ => false,
        }
    }
}

#[inline(always)]
fn read_text(column: &mut TextColumn, cursor: &mut Cursor) -> Parsed<()> {
    match column.kind {
        TextKind::String => {
            cursor.expect(b'"')?;
            let begin = column.data.len();
            let text = cursor.text_into(&mut column.data)?;
            if text.escaped {
                column.push_behind(begin);
            } else {
                column.push(&cursor.bytes[text.start..text.end]);
            }
        }
        TextKind::Number if cursor.peek() == b'"' => {
            let text = plain_text(cursor)?;
            column.push(&cursor.bytes[text.start..text.end]);
        }
        TextKind::Number => {
            let number = cursor.number()?;
            column.push(&cursor.bytes[number.start..number.end]);
        }
        TextKind::Json => {
            let start = cursor.at;
            cursor.skip_value()?;
            column.push(&cursor.bytes[start..cursor.at]);
        }
    }
    Ok(())
}

fn read_list(inner: &mut Column, cursor: &mut Cursor) -> Parsed<()> {
    cursor.expect(b'[')?;
    if cursor.is_empty(b']') {
        return Ok(());
    }
    loop {
        read_element(inner, cursor)?;
        if !cursor.goes_on(b']')? {
            return Ok(());
        }
    }
}

/// Not inlined: lists of lists go round here.
#[inline(never)]
fn read_element(inner: &mut Column, cursor: &mut Cursor) -> Parsed<()> {
    inner.read(cursor)
}

/// Reads a string without escapes.
fn plain_text(cursor: &mut Cursor) -> Parsed<Text> {
    cursor.expect(b'"')?;
    let text = cursor.text()?;
    if text.escaped {
        Err(Doubt)
    } else {
        Ok(text)
    }
}

fn moment(cursor: &mut Cursor, with_zone: bool, units: i64) -> Parsed<i64> {
    if cursor.peek() == b'"' {
        let text = plain_text(cursor)?;
        return moments::microseconds(&cursor.bytes[text.start..text.end], with_zone);
    }
    let number = cursor.number()?;
    moments::microseconds_of_number(whole(cursor.bytes, number)?, units)
}

#[inline(always)]
fn whole(bytes: &[u8], number: Number) -> Parsed<i64> {
    if !number.whole {
        return Err(Doubt);
    }
    let negative = bytes[number.start] == b'-';
    let digits = &bytes[number.start + usize::from(negative)..number.end];
    // "-0" is left to the other decoder.
    if negative && digits[0] == b'0' {
        return Err(Doubt);
    }
    if digits.len() <= SURE_DIGITS {
        let value = digits.iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Ok(if negative { -value } else { value });
    }
    std::str::from_utf8(&bytes[number.start..number.end]).ok().and_then(|text| text.parse().ok()).ok_or(Doubt)
}

/// The nearest float64, as the standard library reads it. Numbers that are so small or large that readers differ are doubtful.
fn float(bytes: &[u8], number: Number) -> Parsed<f64> {
    let text = std::str::from_utf8(&bytes[number.start..number.end]).map_err(|_| Doubt)?;
    let value: f64 = text.parse().map_err(|_| Doubt)?;
    if value.is_finite() && (value == 0.0 || value.abs() > 1e-290) && value.abs() < 1e290 {
        Ok(value)
    } else {
        Err(Doubt)
    }
}
