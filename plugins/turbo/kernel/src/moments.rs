//! Texts of dates and times to numbers, as `headrace.codecs.timestamps` defines them.

use crate::scan::{Doubt, Parsed};

/// The seconds since the Unix epoch of 0001-01-01T00:00:00 and 9999-12-31T23:59:59.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;

fn digits(text: &[u8]) -> Parsed<i64> {
    let mut value = 0i64;
    for byte in text {
        if !byte.is_ascii_digit() {
            return Err(Doubt);
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    Ok(value)
}

fn last_day(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a text `YYYY-MM-DD`. Counts years from March: Howard Hinnant, "chrono-compatible low-level date
/// algorithms", days_from_civil.
pub fn days(text: &[u8]) -> Parsed<i64> {
    if text.len() != 10 || text[4] != b'-' || text[7] != b'-' {
        return Err(Doubt);
    }
    let (year, month, day) = (digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..])?);
    if year < 1 || !(1..=12).contains(&month) || day < 1 || day > last_day(year, month) {
        return Err(Doubt);
    }
    let shifted = year - i64::from(month <= 2);
    let era = shifted / 400;
    let year_of_era = shifted - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Ok(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// Microseconds since the Unix epoch of an ISO 8601 text; finer digits are cut off. A zone is only taken `with_zone`.
pub fn microseconds(text: &[u8], with_zone: bool) -> Parsed<i64> {
    if text.len() < 16 || !matches!(text[10], b'T' | b' ') || text[13] != b':' {
        return Err(Doubt);
    }
    let (hour, minute) = (digits(&text[11..13])?, digits(&text[14..16])?);
    let mut rest = &text[16..];
    let (mut second, mut fraction) = (0, 0);
    if rest.first() == Some(&b':') {
        if rest.len() < 3 {
            return Err(Doubt);
        }
        second = digits(&rest[1..3])?;
        rest = &rest[3..];
        if matches!(rest.first(), Some(b'.' | b',')) {
            let count = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&count) {
                return Err(Doubt);
            }
            let kept = count.min(6);
            fraction = digits(&rest[1..1 + kept])? * 10i64.pow(6 - kept as u32);
            rest = &rest[1 + count..];
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err(Doubt);
    }
    let mut seconds = days(&text[..10])? * 86_400 + hour * 3600 + minute * 60 + second;
    if !rest.is_empty() {
        if !with_zone {
            return Err(Doubt);
        }
        seconds -= zone_seconds(rest)?;
        if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
            return Err(Doubt);
        }
    }
    Ok(seconds * 1_000_000 + fraction)
}

fn zone_seconds(zone: &[u8]) -> Parsed<i64> {
    if zone == b"Z" {
        return Ok(0);
    }
    let sign = match zone[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return Err(Doubt),
    };
    let (hour, minute) = match zone.len() {
        3 => (digits(&zone[1..])?, 0),
        5 => (digits(&zone[1..3])?, digits(&zone[3..])?),
        6 if zone[3] == b':' => (digits(&zone[1..3])?, digits(&zone[4..])?),
        _ => return Err(Doubt),
    };
    if hour > 23 || minute > 59 {
        return Err(Doubt);
    }
    Ok(sign * (hour * 3600 + minute * 60))
}

/// Microseconds of a whole number of units since the Unix epoch; finer units are cut off.
pub fn microseconds_of_number(number: i64, units_per_second: i64) -> Parsed<i64> {
    let seconds = number.div_euclid(units_per_second);
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        return Err(Doubt);
    }
    let nanoseconds = number.rem_euclid(units_per_second) * (1_000_000_000 / units_per_second);
    Ok(seconds * 1_000_000 + nanoseconds / 1000)
}
