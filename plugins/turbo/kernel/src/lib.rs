//! The C interface of the kernel, called by `headrace_turbo.kernel` through ctypes.
//!
//! A decoder is made of a description of its columns and decodes batches of bodies. Each batch gives buffers of Arrow; every buffer is
//! owned by the caller, who frees it alone. A panic never crosses the border: the call returns NULL then.

pub mod bytes;
pub mod columns;
pub mod description;
pub mod groups;
pub mod moments;
pub mod objects;
pub mod scan;
pub mod sums;

use columns::{Column, Values};
use objects::{read_bodies, Fields};
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Changed when a function changes or goes. The package looks for functions that came later.
const INTERFACE_VERSION: i64 = 3;

/// A buffer that the caller owns.
pub struct Owned {
    address: *const u8,
    bytes: usize,
    _holder: Box<dyn Any>,
}

impl Owned {
    fn of<T: 'static>(values: Vec<T>) -> Owned {
        Owned {
            address: values.as_ptr() as *const u8,
            bytes: values.len() * std::mem::size_of::<T>(),
            _holder: Box::new(values),
        }
    }
}

/// What a batch has given: numbers that describe the columns in preorder, and the buffers they name by their place.
pub struct Batch {
    numbers: Vec<i64>,
    buffers: Vec<Option<Owned>>,
    doubtful: Vec<i64>,
}

impl Batch {
    /// Adds a column: values, NULLs, then validity and up to two buffers by their place, -1 where there is none.
    fn add(&mut self, column: Column) {
        let Column { values, validity, len } = column;
        let bits = validity.bits.map(|bits| Owned::of(bits.bytes)).filter(|_| validity.nulls > 0);
        let (first, second, children) = match values {
            Values::Integers(_, _, values) | Values::Moments(_, _, values) => (Some(Owned::of(values)), None, vec![]),
            Values::Floats(values) => (Some(Owned::of(values)), None, vec![]),
            Values::Booleans(bits) => (Some(Owned::of(bits.bytes)), None, vec![]),
            Values::Texts(column) => (Some(Owned::of(column.views)), Some(Owned::of(column.data)), vec![]),
            Values::Days(values) => (Some(Owned::of(values)), None, vec![]),
            Values::Struct(fields) => (None, None, fields.columns),
            Values::List(column) => (Some(Owned::of(column.offsets)), None, vec![*column.inner]),
        };
        self.numbers.extend([len as i64, validity.nulls as i64]);
        for buffer in [bits, first, second] {
            match buffer {
                Some(owned) => {
                    self.numbers.push(self.buffers.len() as i64);
                    self.buffers.push(Some(owned));
                }
                None => self.numbers.push(-1),
            }
        }
        for child in children {
            self.add(child);
        }
    }
}

#[no_mangle]
pub extern "C" fn headrace_turbo_version() -> i64 {
    INTERFACE_VERSION
}

/// Writes the places of `byte` in `buffer` from `begin` on to `places`, at most `capacity` of them, and returns how many were written.
///
/// # Safety
/// `buffer` points to `bytes` readable bytes, `begin` is not behind them, and `places` has room for `capacity` numbers.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_find_byte(
    buffer: *const u8,
    bytes: usize,
    byte: u8,
    begin: usize,
    places: *mut i64,
    capacity: usize,
) -> usize {
    let searched = std::slice::from_raw_parts(buffer, bytes);
    bytes::find(searched, byte, begin, std::slice::from_raw_parts_mut(places, capacity))
}

/// Returns how often `byte` is in `buffer` from `begin` to `end`.
///
/// # Safety
/// `buffer` points to at least `end` readable bytes, and `begin` is not behind `end`.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_count_byte(buffer: *const u8, byte: u8, begin: usize, end: usize) -> usize {
    bytes::count(std::slice::from_raw_parts(buffer.add(begin), end - begin), byte)
}

/// Writes the polynomial of each text to `sums`: of the bytes from `offsets[n]` to `offsets[n + 1]`. False: these are not in `data`.
///
/// # Safety
/// `data` points to `bytes` readable bytes, `offsets` to one number more than `count`, and `sums` has room for `count` numbers.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_text_sums(
    data: *const u8,
    bytes: usize,
    offsets: *const i64,
    count: usize,
    sums: *mut u64,
) -> bool {
    if count == 0 {
        return true;
    }
    let data = if bytes == 0 { &[] } else { std::slice::from_raw_parts(data, bytes) };
    sums::write(data, std::slice::from_raw_parts(offsets, count + 1), std::slice::from_raw_parts_mut(sums, count))
}

/// Puts rows with equal keys into groups: the first row of each group goes to `firsts`, in this order, and the group of each row to `groups`.
///
/// `numbers` describes the columns of keys: the address of the values, then of 64-bit integers 0, of string views one more than the number
/// of their buffers, followed by address and bytes of each buffer. Returns the number of groups; `usize::MAX`: it could not.
///
/// # Safety
/// `numbers` points to `columns` such descriptions, which name readable memory: `rows` values each. `firsts` and `groups` have room for
/// `rows` numbers each.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_group(
    numbers: *const u64,
    columns: usize,
    rows: usize,
    firsts: *mut u32,
    groups: *mut u32,
) -> usize {
    if rows == 0 || rows > u32::MAX as usize >> 1 {
        return if rows == 0 { 0 } else { usize::MAX };
    }
    let mut given = numbers;
    let mut next = || {
        let number = *given;
        given = given.add(1);
        number as usize
    };
    let mut keys = Vec::with_capacity(columns);
    for _ in 0..columns {
        let (values, buffers) = (next(), next());
        if buffers == 0 {
            keys.push(groups::Keys::Integers(std::slice::from_raw_parts(values as *const i64, rows)));
            continue;
        }
        let data = (1..buffers)
            .map(|_| match (next(), next()) {
                (_, 0) => &[][..],
                (address, bytes) => std::slice::from_raw_parts(address as *const u8, bytes),
            })
            .collect();
        keys.push(groups::Keys::Texts(std::slice::from_raw_parts(values as *const groups::View, rows), data));
    }
    let firsts = std::slice::from_raw_parts_mut(firsts, rows);
    let groups = std::slice::from_raw_parts_mut(groups, rows);
    catch_unwind(AssertUnwindSafe(|| groups::group(&keys, firsts, groups))).ok().flatten().unwrap_or(usize::MAX)
}

/// Writes the sums of each column by group, those of one column after those of another. False: it could not.
///
/// # Safety
/// `groups` points to `rows` numbers less than `count`, `columns` to the addresses of `sums` columns of `rows` numbers each (NULL: 1 in
/// each row), and `made` has room for `sums` times `count` numbers.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_sum(
    groups: *const u32,
    rows: usize,
    count: usize,
    columns: *const *const i64,
    sums: usize,
    made: *mut i64,
) -> bool {
    if rows == 0 || sums == 0 {
        return true;
    }
    let columns: Vec<Option<&[i64]>> = (0..sums)
        .map(|place| *columns.add(place))
        .map(|values| (!values.is_null()).then(|| std::slice::from_raw_parts(values, rows)))
        .collect();
    let groups = std::slice::from_raw_parts(groups, rows);
    let made = std::slice::from_raw_parts_mut(made, sums * count);
    catch_unwind(AssertUnwindSafe(|| groups::sum(groups, count, &columns, made))).is_ok()
}

/// Makes a decoder of a description (see description.rs). NULL: the description is not understood.
///
/// # Safety
/// `description` points to `bytes` readable bytes.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_decoder(description: *const u8, bytes: usize) -> *mut Fields {
    let given = std::slice::from_raw_parts(description, bytes);
    match catch_unwind(|| description::fields(given)) {
        Ok(Some(fields)) => Box::into_raw(Box::new(fields)),
        _ => std::ptr::null_mut(),
    }
}

/// # Safety
/// `decoder` comes from `headrace_turbo_decoder` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_decoder_free(decoder: *mut Fields) {
    drop(Box::from_raw(decoder));
}

/// Decodes `count` bodies that stand in `buffer` from `starts` to `ends`. NULL: it could not, and the decoder must not be used again.
///
/// # Safety
/// `decoder` comes from `headrace_turbo_decoder` and is used by no other thread. `buffer` points to `bytes` readable bytes, `starts` and
/// `ends` to `count` numbers each. Places that are not in the buffer give NULL.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_decode(
    decoder: *mut Fields,
    buffer: *const u8,
    bytes: usize,
    starts: *const i64,
    ends: *const i64,
    count: usize,
    max_body_bytes: usize,
) -> *mut Batch {
    let buffer = std::slice::from_raw_parts(buffer, bytes);
    let starts = std::slice::from_raw_parts(starts, count);
    let ends = std::slice::from_raw_parts(ends, count);
    let fields = &mut *decoder;
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        let places: Option<Vec<(usize, usize)>> = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| {
                (*start >= 0 && start <= end && *end as usize <= bytes).then(|| (*start as usize, *end as usize))
            })
            .collect();
        let places = places?;
        let doubtful = read_bodies(fields, buffer, &places, max_body_bytes);
        let mut batch = Batch { numbers: Vec::new(), buffers: Vec::new(), doubtful };
        for column in fields.take_columns() {
            batch.add(column);
        }
        Some(batch)
    }));
    match decoded {
        Ok(Some(batch)) => Box::into_raw(Box::new(batch)),
        _ => std::ptr::null_mut(),
    }
}

/// Says how many numbers describe the columns, how many bodies are doubtful, and where both stand, by `target[0..4]`.
///
/// # Safety
/// `batch` comes from `headrace_turbo_decode`; `target` points to four numbers. What is named stands until the batch is freed.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_batch(batch: *const Batch, target: *mut u64) {
    let batch = &*batch;
    let told = [
        batch.numbers.len() as u64,
        batch.numbers.as_ptr() as u64,
        batch.doubtful.len() as u64,
        batch.doubtful.as_ptr() as u64,
    ];
    std::slice::from_raw_parts_mut(target, 4).copy_from_slice(&told);
}

/// Hands a buffer of a batch over; its address and its bytes go to `target[0..2]`. NULL: it was handed over before.
///
/// # Safety
/// `batch` comes from `headrace_turbo_decode`; `target` points to two numbers.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_take(batch: *mut Batch, place: usize, target: *mut u64) -> *mut Owned {
    let batch = &mut *batch;
    match batch.buffers.get_mut(place).and_then(Option::take) {
        Some(owned) => {
            std::slice::from_raw_parts_mut(target, 2).copy_from_slice(&[owned.address as u64, owned.bytes as u64]);
            Box::into_raw(Box::new(owned))
        }
        None => std::ptr::null_mut(),
    }
}

/// # Safety
/// `buffer` comes from `headrace_turbo_take` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_buffer_free(buffer: *mut Owned) {
    drop(Box::from_raw(buffer));
}

/// # Safety
/// `batch` comes from `headrace_turbo_decode` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn headrace_turbo_batch_free(batch: *mut Batch) {
    drop(Box::from_raw(batch));
}
