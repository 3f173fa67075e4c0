"""Where the fields of CSV records begin and end (RFC 4180), for one record in words and for many in arrays.

``split_record`` defines the syntax of a record; ``malformed_rows`` finds, for many records at once, those that it would refuse (tested).
A record that both accept means the same to every CSV reader, so that a fast and lenient one can then read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.foundation.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Dialect:
    """The characters of a CSV format, and the unquoted text that means NULL. Without a quote character nothing is quoted."""

    delimiter: str
    quote: str | None
    null_value: str


class Field(NamedTuple):
    """One field of a record: its text without the quotes, and whether it had any."""

    text: str
    quoted: bool

    def value(self, dialect: Dialect) -> str | None:
        """Return the text, or None if it means NULL."""
        return None if not self.quoted and self.text == dialect.null_value else self.text


def split_record(record: str, dialect: Dialect) -> list[Field]:
    """Return the fields of one record. Raises DataError with the reason if it is malformed."""
    record = record.removesuffix("\r")
    fields: list[Field] = []
    at = 0
    while True:
        number = len(fields) + 1
        if dialect.quote is not None and record.startswith(dialect.quote, at):
            text, at = _quoted(record, at, dialect.quote, number)
            fields.append(Field(text, True))
            if at < len(record) and record[at] != dialect.delimiter:
                raise DataError(f"field {number}: {record[at]!r} after the closing quote")
        else:
            end = record.find(dialect.delimiter, at)
            end = len(record) if end < 0 else end
            text, at = record[at:end], end
            if dialect.quote is not None and dialect.quote in text:
                raise DataError(f"field {number}: a quote within a field that does not begin with one")
            if "\n" in text or "\r" in text:
                raise DataError(f"field {number}: a line break outside quotes")
            fields.append(Field(text, False))
        if at == len(record):
            return fields
        at += 1


def _quoted(record: str, at: int, quote: str, number: int) -> tuple[str, int]:
    """Read a quoted field; return its text and where it ends."""
    parts = []
    at += 1
    while True:
        end = record.find(quote, at)
        if end < 0:
            raise DataError(f"field {number}: the closing quote is missing")
        parts.append(record[at:end])
        if not record.startswith(quote, end + 1):
            return "".join(parts), end + 1
        parts.append(quote)
        at = end + 2


def without_carriage_returns(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], bool]:
    """Return where the records end without one carriage return at their end, and whether that changed anything."""
    if b"\r" not in data:
        return ends, False
    characters = np.frombuffer(data, dtype=np.uint8)
    trailing = (ends > starts) & (characters[ends - 1] == ord("\r"))
    return ends - trailing, bool(trailing.any())


def malformed_rows(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], dialect: Dialect, width: int
) -> NDArray[np.bool_]:
    """Say which records are no records of ``width`` fields.

    Between the records, which lie in order, ``data`` holds nothing but line breaks; a trailing carriage return is no
    part of a record.
    """
    characters = np.frombuffer(data, dtype=np.uint8)
    bad = np.zeros(len(starts), dtype=np.bool_)
    quotes = np.zeros(0, dtype=np.int64)
    if dialect.quote is not None and dialect.quote.encode() in data:
        quotes = np.flatnonzero(characters == ord(dialect.quote))
    first = np.searchsorted(quotes, starts)
    counts = np.searchsorted(quotes, ends) - first
    if len(quotes):
        bad |= _misplaced_quotes(characters, starts, ends, dialect, quotes, first, counts)

    delimiters = np.flatnonzero(characters == ord(dialect.delimiter))
    _, owners = _outside_quotes(delimiters, starts, ends, quotes, first)
    bad |= np.bincount(owners, minlength=len(starts)) != width - 1

    breaks = characters == ord("\n")
    if b"\r" in data:
        breaks |= characters == ord("\r")
    # Every record but the last is followed by at least one line break.
    if np.count_nonzero(breaks) >= len(starts):
        _, owners = _outside_quotes(np.flatnonzero(breaks), starts, ends, quotes, first)
        bad[owners] = True
    return bad


def quoted_fields(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], dialect: Dialect, width: int
) -> NDArray[np.bool_]:
    """Say of well-formed records which of their ``width`` fields are quoted: one row per record."""
    if dialect.quote is None or dialect.quote.encode() not in data:
        return np.zeros((len(starts), width), dtype=np.bool_)
    characters = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(characters == ord(dialect.quote))
    delimiters = np.flatnonzero(characters == ord(dialect.delimiter))
    between, _ = _outside_quotes(delimiters, starts, ends, quotes, np.searchsorted(quotes, starts))
    begins = np.column_stack([starts, between.reshape(len(starts), width - 1) + 1])
    # Where the last field is empty it begins after the data, whose last character then is a delimiter.
    quoted: NDArray[np.bool_] = characters[np.minimum(begins, len(data) - 1)] == ord(dialect.quote)
    return quoted


def _misplaced_quotes(
    characters: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    dialect: Dialect,
    quotes: NDArray[np.int64],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Say which records have a quote where none may be, or an odd number of them.

    The quotes of a record open and close in turn, a doubled quote being a closing and an opening one side by side. So an
    opening quote is at the beginning of a field or right after a closing one, and a closing one likewise.
    """
    bad: NDArray[np.bool_] = counts % 2 == 1
    owners = np.repeat(np.arange(len(starts)), counts)
    place = np.arange(len(quotes)) - first[owners]
    opening = place % 2 == 0
    delimiter, quote = ord(dialect.delimiter), ord(dialect.quote or "")
    before = characters[np.maximum(quotes - 1, 0)]
    after = characters[np.minimum(quotes + 1, len(characters) - 1)]
    begins = (quotes == starts[owners]) | (before == delimiter) | ((place > 0) & (before == quote))
    finishes = (quotes + 1 == ends[owners]) | (after == delimiter) | ((place + 1 < counts[owners]) & (after == quote))
    bad[owners[~np.where(opening, begins, finishes)]] = True
    return bad


def _outside_quotes(
    positions: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    quotes: NDArray[np.int64],
    first: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return those of the positions that are in a record and outside quotes, and which record each is in."""
    begin, end = np.searchsorted(positions, starts), np.searchsorted(positions, ends)
    counts = end - begin
    owners = np.repeat(np.arange(len(starts)), counts)
    # The positions of record i are those from begin[i] to end[i]; what lies between records is left out.
    inside = positions[np.arange(len(owners)) + (begin - np.cumsum(counts) + counts)[owners]]
    if not len(quotes):
        return inside, owners
    outside = (np.searchsorted(quotes, inside) - first[owners]) % 2 == 0
    return inside[outside], owners[outside]
