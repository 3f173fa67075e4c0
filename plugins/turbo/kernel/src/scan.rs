//! Reads JSON tokens (RFC 8259) from bytes, strictly. Whatever is not certainly good is a `Doubt`: another decoder judges the body.

/// The body is unusual or bad. It says nothing more: the decoder that judges it gives the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Doubt;

pub type Parsed<T> = Result<T, Doubt>;

/// Arrays and objects within a value that nobody wants, one in another. Deeper values are left to the other decoder.
const SKIPPED_DEPTH_MAX: u32 = 128;
/// Digits of a number that nobody wants. A longer one might be beyond what the other decoder takes.
const SKIPPED_DIGITS_MAX: usize = 19;

/// A string as it stands in the body, without its quotes.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    pub start: usize,
    pub end: usize,
    /// Whether it holds escapes, which are valid.
    pub escaped: bool,
}

/// A number as it stands in the body.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    pub start: usize,
    pub end: usize,
    /// Whether it has neither fraction nor exponent.
    pub whole: bool,
}

/// A place in a body. `bytes` is the buffer that holds it: bytes behind `end` may be looked at, but never count.
pub struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    pub end: usize,
}

impl<'a> Cursor<'a> {
    /// The next byte, 0 at the end of the body: no token begins with 0, nor goes on with it.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        if self.at < self.end {
            self.bytes[self.at]
        } else {
            0
        }
    }

    #[inline(always)]
    pub fn skip_blanks(&mut self) {
        while self.at < self.end && self.bytes[self.at] <= b' ' {
            match self.bytes[self.at] {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                _ => return,
            }
        }
    }

    #[inline(always)]
    pub fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.peek() == byte {
            self.at += 1;
            Ok(())
        } else {
            Err(Doubt)
        }
    }

    /// After the bracket or brace that opens an array or object: reads the one that closes it, if nothing stands between.
    #[inline(always)]
    pub fn is_empty(&mut self, close: u8) -> bool {
        self.skip_blanks();
        let found = self.peek() == close;
        self.at += usize::from(found);
        found
    }

    /// After an element or member: reads the comma before the next one (true), or what closes the array or object (false).
    #[inline(always)]
    pub fn goes_on(&mut self, close: u8) -> Parsed<bool> {
        self.skip_blanks();
        let found = self.peek();
        if found == b',' {
            self.at += 1;
            self.skip_blanks();
            Ok(true)
        } else {
            self.expect(close)?;
            Ok(false)
        }
    }

    /// Reads the colon between a key and its value.
    #[inline(always)]
    pub fn colon(&mut self) -> Parsed<()> {
        self.skip_blanks();
        self.expect(b':')?;
        self.skip_blanks();
        Ok(())
    }

    pub fn literal(&mut self, word: &[u8]) -> Parsed<()> {
        if self.end - self.at >= word.len() && &self.bytes[self.at..self.at + word.len()] == word {
            self.at += word.len();
            Ok(())
        } else {
            Err(Doubt)
        }
    }

    /// Reads a string whose opening quote was read, up to and with its closing one. Its text is valid UTF-8, its escapes are valid.
    #[inline(always)]
    pub fn text(&mut self) -> Parsed<Text> {
        let start = self.at;
        let mut escaped = false;
        let mut beyond_ascii = false;
        loop {
            let (found, high) = find_special(self.bytes, self.at);
            if found >= self.end {
                return Err(Doubt);
            }
            beyond_ascii |= high;
            self.at = found;
            match self.bytes[found] {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(Doubt),
            }
        }
        let end = self.at;
        self.at += 1;
        if beyond_ascii && std::str::from_utf8(&self.bytes[start..end]).is_err() {
            return Err(Doubt);
        }
        Ok(Text { start, end, escaped })
    }

    /// Reads a string whose opening quote was read, and puts its text behind what `target` holds if it has escapes. Returns the string,
    /// whose `escaped` says whether it has. After a `Doubt` a part of it may stand in `target`.
    // The loop of `text` once more: one for both, with a closure for escapes, takes 2 to 5 % more to decode a body.
    #[inline(always)]
    pub fn text_into(&mut self, target: &mut Vec<u8>) -> Parsed<Text> {
        let start = self.at;
        let mut copied = start;
        let mut beyond_ascii = false;
        loop {
            let (found, high) = find_special(self.bytes, self.at);
            if found >= self.end {
                return Err(Doubt);
            }
            beyond_ascii |= high;
            self.at = found;
            match self.bytes[found] {
                b'"' => break,
                b'\\' => {
                    target.extend_from_slice(&self.bytes[copied..found]);
                    self.escape_into(target)?;
                    copied = self.at;
                }
                _ => return Err(Doubt),
            }
        }
        let end = self.at;
        let escaped = copied != start;
        if escaped {
            target.extend_from_slice(&self.bytes[copied..end]);
        }
        self.at += 1;
        if beyond_ascii && std::str::from_utf8(&self.bytes[start..end]).is_err() {
            return Err(Doubt);
        }
        Ok(Text { start, end, escaped })
    }

    /// Reads an escape, and puts the character that it stands for behind what `target` holds.
    #[inline(always)]
    fn escape_into(&mut self, target: &mut Vec<u8>) -> Parsed<()> {
        self.at += 1;
        let kind = self.peek();
        let plain = match kind {
            b'"' | b'\\' | b'/' => kind,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode_into(target),
            _ => return Err(Doubt),
        };
        self.at += 1;
        target.push(plain);
        Ok(())
    }

    fn unicode_into(&mut self, target: &mut Vec<u8>) -> Parsed<()> {
        self.at += 1;
        let mut code = self.hex()?;
        if (0xD800..0xDC00).contains(&code) {
            self.expect(b'\\')?;
            self.expect(b'u')?;
            let low = self.hex()?;
            if !(0xDC00..0xE000).contains(&low) {
                return Err(Doubt);
            }
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        // The second half of a pair alone is no character.
        let character = char::from_u32(code).ok_or(Doubt)?;
        target.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn escape(&mut self) -> Parsed<()> {
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 1;
                Ok(())
            }
            b'u' => {
                self.at += 1;
                let unit = self.hex()?;
                if (0xD800..0xDC00).contains(&unit) {
                    self.expect(b'\\')?;
                    self.expect(b'u')?;
                    if !(0xDC00..0xE000).contains(&self.hex()?) {
                        return Err(Doubt);
                    }
                } else if (0xDC00..0xE000).contains(&unit) {
                    return Err(Doubt);
                }
                Ok(())
            }
            _ => Err(Doubt),
        }
    }

    fn hex(&mut self) -> Parsed<u32> {
        if self.end - self.at < 4 {
            return Err(Doubt);
        }
        let unit = hex_of(&self.bytes[self.at..self.at + 4]).ok_or(Doubt)?;
        self.at += 4;
        Ok(unit)
    }

    /// Reads a number that begins here.
    #[inline(always)]
    pub fn number(&mut self) -> Parsed<Number> {
        let start = self.at;
        if self.peek() == b'-' {
            self.at += 1;
        }
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(Doubt),
        }
        let mut whole = true;
        if self.peek() == b'.' {
            whole = false;
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            whole = false;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(Number { start, end: self.at, whole })
    }

    #[inline(always)]
    fn digits(&mut self) {
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Parsed<()> {
        let start = self.at;
        self.digits();
        if self.at == start {
            Err(Doubt)
        } else {
            Ok(())
        }
    }

    /// Reads a value that nobody wants.
    #[inline(always)]
    pub fn skip_value(&mut self) -> Parsed<()> {
        self.skip_within(SKIPPED_DEPTH_MAX)
    }

    #[inline(always)]
    fn skip_within(&mut self, depth: u32) -> Parsed<()> {
        match self.peek() {
            b'"' => {
                self.at += 1;
                self.text().map(|_| ())
            }
            _ => self.skip_other(depth),
        }
    }

    fn skip_other(&mut self, depth: u32) -> Parsed<()> {
        match self.peek() {
            b'{' => self.skip_object(depth),
            b'[' => self.skip_array(depth),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => {
                let number = self.number()?;
                let exponent = self.bytes[number.start..number.end].iter().any(|byte| matches!(byte, b'e' | b'E'));
                if exponent || number.end - number.start > SKIPPED_DIGITS_MAX {
                    return Err(Doubt);
                }
                Ok(())
            }
        }
    }

    fn skip_object(&mut self, depth: u32) -> Parsed<()> {
        if depth == 0 {
            return Err(Doubt);
        }
        self.at += 1;
        if self.is_empty(b'}') {
            return Ok(());
        }
        loop {
            self.expect(b'"')?;
            self.text()?;
            self.colon()?;
            self.skip_within(depth - 1)?;
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    fn skip_array(&mut self, depth: u32) -> Parsed<()> {
        if depth == 0 {
            return Err(Doubt);
        }
        self.at += 1;
        if self.is_empty(b']') {
            return Ok(());
        }
        loop {
            self.skip_within(depth - 1)?;
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }
}

fn hex_of(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| Some(value * 16 + (*digit as char).to_digit(16)?))
}

/// Returns the first place from `at` on with a quote, a backslash or a control character, the length of `bytes` if there is none,
/// and whether a byte beyond ASCII stands before it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn find_special(bytes: &[u8], mut at: usize) -> (usize, bool) {
    let mut high = 0u32;
    while at + 16 <= bytes.len() {
        // SAFETY: 16 bytes from `at` on are in the slice.
        let (special, beyond) = unsafe { special_of(bytes.as_ptr().add(at)) };
        if special != 0 {
            let place = special.trailing_zeros();
            high |= beyond & ((1u32 << place) - 1);
            return (at + place as usize, high != 0);
        }
        high |= beyond;
        at += 16;
    }
    let (found, more) = find_special_bytewise(bytes, at);
    (found, more || high != 0)
}

/// Says, a bit for each of 16 bytes, which are special, and which are beyond ASCII.
///
/// # Safety
/// 16 bytes can be read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn special_of(bytes: *const u8) -> (u32, u32) {
    use std::arch::x86_64::*;
    // SSE2 is part of x86-64.
    let chunk = _mm_loadu_si128(bytes as *const __m128i);
    let control = _mm_cmpeq_epi8(_mm_min_epu8(chunk, _mm_set1_epi8(0x1F)), chunk);
    let quote = _mm_cmpeq_epi8(chunk, _mm_set1_epi8(b'"' as i8));
    let escape = _mm_cmpeq_epi8(chunk, _mm_set1_epi8(b'\\' as i8));
    let special = _mm_movemask_epi8(_mm_or_si128(control, _mm_or_si128(quote, escape))) as u32;
    (special, _mm_movemask_epi8(chunk) as u32)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn find_special(bytes: &[u8], mut at: usize) -> (usize, bool) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let mut high = 0u64;
    while at + 8 <= bytes.len() {
        let mut raw = [0u8; 8];
        raw.copy_from_slice(&bytes[at..at + 8]);
        let chunk = u64::from_le_bytes(raw);
        let low = chunk & !HIGHS;
        // A byte of each is 0x80 exactly where the byte of `low` is below 32, a quote, a backslash: no borrow leaves a byte.
        let zero = |word: u64| !((word | HIGHS).wrapping_sub(ONES)) & HIGHS;
        let control = !((low | HIGHS).wrapping_sub(ONES * 0x20)) & HIGHS;
        let special = (control | zero(low ^ (ONES * b'"' as u64)) | zero(low ^ (ONES * b'\\' as u64))) & !chunk;
        if special != 0 {
            let place = special.trailing_zeros() / 8;
            high |= chunk & HIGHS & ((1u64 << (place * 8)).wrapping_sub(1));
            return (at + place as usize, high != 0);
        }
        high |= chunk & HIGHS;
        at += 8;
    }
    let (found, more) = find_special_bytewise(bytes, at);
    (found, more || high != 0)
}

fn find_special_bytewise(bytes: &[u8], mut at: usize) -> (usize, bool) {
    let mut high = false;
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\\' | 0..=0x1F => return (at, high),
            byte => high |= byte >= 0x80,
        }
        at += 1;
    }
    (at, high)
}
