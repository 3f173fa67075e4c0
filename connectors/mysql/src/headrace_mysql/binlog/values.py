"""Values of the binary log as columns, equal to what a SELECT of the table gives (see ``headrace_mysql.types``).

Source of the formats: https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html and, for times and decimals,
``my_time.cc`` and ``decimal.cc`` in the server's source.
"""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from importlib.util import find_spec

import numpy as np
import polars as pl
from headrace.flow.byte_slices import SPARE_BYTES as SPARE_BYTES
from headrace.flow.byte_slices import series_of_slices
from headrace.foundation.errors import DataError
from numpy.typing import NDArray

from headrace_mysql.binlog import layout
from headrace_mysql.binlog.images import Flags, Integers, Places
from headrace_mysql.binlog.layout import WireColumn
from headrace_mysql.tables import TableColumn
from headrace_mysql.types import column_type

Bytes = NDArray[np.uint8]

_HAS_ARROW = find_spec("pyarrow") is not None
#: Python's names of character sets that are not UTF-8.
_CODECS: Mapping[str, str] = {
    "ascii": "ascii", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "greek": "iso8859_7",
    "hebrew": "iso8859_8", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850",
    "cp852": "cp852", "cp866": "cp866", "koi8r": "koi8_r", "koi8u": "koi8_u", "gbk": "gbk", "gb2312": "gb2312",
    "gb18030": "gb18030", "big5": "big5", "euckr": "cp949", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "ucs2": "utf_16_be", "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be",
    "tis620": "tis_620",
}  # fmt: skip
_UTF8 = {"utf8", "utf8mb3", "utf8mb4", "binary", ""}
_BINARIES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of events, with ``SPARE_BYTES`` after the last value: the same memory as bytes and as an array."""

    raw: bytearray
    array: Bytes


def series_of_places(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    """Return the values of a column. Raises DataError for bytes that are no value of its type."""
    kind = column_type(column)
    make = _MAKERS.get(column.kind, _texts_of_column)
    made = make(column, wire, places, data)
    if places.missing.any():
        made = _without(made, places.missing)
    return made.alias(column.name) if made.dtype == kind else made.cast(kind).alias(column.name)


def _without(made: pl.Series, missing: Flags) -> pl.Series:
    return pl.select(pl.when(pl.Series(~missing)).then(made)).to_series()


def _gathered(places: Places, data: Data, width: int) -> Bytes:
    found: Bytes = data.array[places.starts[:, None] + np.arange(width)]
    return found


def _big_endian(gathered: Bytes) -> Integers:
    number = gathered[:, 0].astype(np.int64)
    for byte in range(1, gathered.shape[1]):
        number = number << 8 | gathered[:, byte]
    return number


def _little_endian(gathered: Bytes) -> Integers:
    return _big_endian(gathered[:, ::-1])


# ------------------------------------------------------------------------------------------------------------ numbers


def _integers(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    width = wire.extent.width
    if width == 3:
        number = _little_endian(_gathered(places, data, 3))
        if not column.unsigned:
            number = (number ^ 1 << 23) - (1 << 23)
    else:
        number = _gathered(places, data, width).view(f"<{'u' if column.unsigned else 'i'}{width}")[:, 0]
    return pl.Series(number) != 0 if column.full_type == "tinyint(1)" else pl.Series(number)


def _floats(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    width = wire.extent.width
    return pl.Series(_gathered(places, data, width).view(f"<f{width}")[:, 0])


def _years(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    number = data.array[places.starts].astype(np.int32)
    return pl.Series(np.where(number == 0, 0, number + 1900))


def _bits(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    if column.full_type == "bit(1)":
        return pl.Series(data.array[places.starts] != 0)
    return _slices(Places(places.starts, np.where(places.missing, 0, wire.size), places.missing), data, text=False)


def _decimals(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    raw = _gathered(places, data, wire.extent.width)
    negative = raw[:, 0] < 0x80
    raw[:, 0] ^= 0x80
    raw[negative] ^= 0xFF
    whole = wire.size - wire.scale
    # Four limbs of 32 bits are enough for 38 digits; longer ones become texts.
    limbs = np.zeros((3 if wire.size <= 28 else 4 if wire.size <= 38 else 7, len(raw)), dtype=np.uint64)
    place = 0
    for digits in [whole % 9, *[9] * (whole // 9), *[9] * (wire.scale // 9), wire.scale % 9]:
        width = layout._DIGIT_BYTES[digits]
        if width:
            _append(limbs, 10**digits, _big_endian(raw[:, place : place + width]).astype(np.uint64))
            place += width
    if _HAS_ARROW and wire.size <= 38:
        return _decimals_by_arrow(limbs, negative, wire)
    with localcontext() as context:
        context.prec = 70
        values = [
            None if absent else Decimal(-number if minus else number).scaleb(-wire.scale)
            for number, minus, absent in zip(
                _whole_numbers(limbs), negative.tolist(), places.missing.tolist(), strict=True
            )
        ]
    if wire.size > 38:
        return pl.Series([None if value is None else f"{value:f}" for value in values], dtype=pl.String)
    return pl.Series(values, dtype=pl.Decimal(wire.size, wire.scale))


def _append(limbs: NDArray[np.uint64], factor: int, added: NDArray[np.uint64]) -> None:
    """Set the numbers to themselves times ``factor`` plus ``added``."""
    carry = added
    for limb in limbs:
        product = limb * np.uint64(factor) + carry
        limb[:] = product & np.uint64(0xFFFF_FFFF)
        carry = product >> np.uint64(32)


def _whole_numbers(limbs: NDArray[np.uint64]) -> list[int]:
    return [sum(limb << 32 * place for place, limb in enumerate(one)) for one in limbs.T.tolist()]


def _decimals_by_arrow(limbs: NDArray[np.uint64], negative: Flags, wire: WireColumn) -> pl.Series:
    import pyarrow as pa

    words = np.zeros((limbs.shape[1], 2), dtype=np.uint64)
    words[:, 0] = limbs[0] | limbs[1] << np.uint64(32)
    words[:, 1] = limbs[2] if len(limbs) == 3 else limbs[2] | limbs[3] << np.uint64(32)
    low, high = ~words[negative, 0] + np.uint64(1), ~words[negative, 1]
    words[negative, 0], words[negative, 1] = low, high + (low == 0)
    kind = pa.decimal128(wire.size, wire.scale)
    found = pl.from_arrow(pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)]))
    assert isinstance(found, pl.Series)
    return found


# -------------------------------------------------------------------------------------------------------------- times


def _days(year: Integers, month: Integers, day: Integers) -> tuple[Integers, Flags]:
    """Return days since 1970, and which dates there are: zero dates and such as 31 February are NULL, as in a SELECT."""
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    good = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    return first + day - 1, good


def _dates(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    number = _little_endian(_gathered(places, data, 3))
    days, good = _days(number >> 9, number >> 5 & 15, number & 31)
    return _without(pl.Series(days.astype(np.int32)).cast(pl.Date), ~good)


def _fraction(gathered: Bytes) -> Integers:
    """Return microseconds."""
    width = gathered.shape[1]
    return _big_endian(gathered) * 10 ** (6 - 2 * width) if width else np.zeros(len(gathered), dtype=np.int64)


def _datetimes(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    raw = _gathered(places, data, wire.extent.width)
    number = _big_endian(raw[:, :5]) - (1 << 39)
    months = number >> 22 & 0x1FFFF
    days, good = _days(months // 13, months % 13, number >> 17 & 31)
    seconds = ((number >> 12 & 31) * 60 + (number >> 6 & 63)) * 60 + (number & 63)
    micros = (days * 86_400 + seconds) * 1_000_000 + _fraction(raw[:, 5:])
    return _without(pl.Series(micros).cast(pl.Datetime("us")), ~good)


def _timestamps(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    raw = _gathered(places, data, wire.extent.width)
    seconds, fraction = _big_endian(raw[:, :4]), _fraction(raw[:, 4:])
    micros = pl.Series(seconds * 1_000_000 + fraction).cast(pl.Datetime("us", "UTC"))
    return _without(micros, (seconds == 0) & (fraction == 0))


def _times(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    raw = _gathered(places, data, wire.extent.width)
    width = raw.shape[1] - 3
    number = _big_endian(raw) - (1 << 23 + 8 * width)
    positive = np.abs(number)
    whole = positive >> 8 * width
    seconds = ((whole >> 12 & 0x3FF) * 60 + (whole >> 6 & 63)) * 60 + (whole & 63)
    fraction = (positive & (1 << 8 * width) - 1) * (10 ** (6 - 2 * width) if width else 0)
    return pl.Series(np.sign(number) * (seconds * 1_000_000 + fraction)).cast(pl.Duration("us"))


# ----------------------------------------------------------------------------------------------------- texts and bytes


def _texts_of_column(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    if column.kind in _BINARIES or isinstance(column_type(column), pl.Binary):
        made = _slices(places, data, text=False)
        if column.kind != "binary":
            return made
        # The log leaves out zeros at the end; the column has them.
        size = wire.size
        return pl.Series([None if value is None else value.ljust(size, b"\0") for value in made], dtype=pl.Binary)
    if column.character_set in _UTF8:
        return _slices(places, data, text=True)
    decode = _decoder(column)
    values = _slices(places, data, text=False)
    return pl.Series([None if value is None else decode(value) for value in values], dtype=pl.String)


def _decoder(column: TableColumn) -> Callable[[bytes], str]:
    if column.character_set == "latin1":
        return _latin1
    codec = _CODECS.get(column.character_set)
    if codec is None:
        raise DataError(
            f"column {column.name!r} has the character set {column.character_set!r}, which cannot be decoded from the binary log",
            plugin="mysql",
            hint="leave the column out with columns=, or convert it to utf8mb4",
        )

    def decode(value: bytes) -> str:
        try:
            return value.decode(codec)
        except UnicodeDecodeError as error:
            raise DataError(
                f"column {column.name!r} holds bytes that are not {codec}: {error}", plugin="mysql"
            ) from error

    return decode


def _latin1(value: bytes) -> str:
    """Decode what MySQL calls latin1: Windows-1252, with control characters where that has none."""
    try:
        return value.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(
            chr(byte) if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([byte]).decode("cp1252") for byte in value
        )


def _slices(places: Places, data: Data, *, text: bool) -> pl.Series:
    """Return values as bytes, or as texts in UTF-8. Raises DataError for what is not UTF-8."""
    return series_of_slices(data.raw, places.starts, places.lengths, places.missing, text=text, plugin="mysql")


def _members(column: TableColumn) -> list[str]:
    """Return the texts of an ENUM or SET, of its type such as ``enum('a','it''s')``."""
    return [text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", column.full_type)]


def _enums(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    # 0 means the empty text of a value that was refused.
    number = _little_endian(_gathered(places, data, wire.size))
    texts = pl.Series(["", *_members(column)], dtype=pl.String)
    return texts.gather(np.where(places.missing, 0, number))


def _sets(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
    numbers, which = np.unique(_little_endian(_gathered(places, data, wire.size)), return_inverse=True)
    members = _members(column)
    texts = [",".join(text for place, text in enumerate(members) if number >> place & 1) for number in numbers.tolist()]
    return pl.Series(texts, dtype=pl.String).gather(which)


def _addresses(make: Callable[[bytes], str]) -> Callable[[TableColumn, WireColumn, Places, Data], pl.Series]:
    def made(column: TableColumn, wire: WireColumn, places: Places, data: Data) -> pl.Series:
        values = _slices(places, data, text=False)
        return pl.Series(
            [
                None if value is None or places.missing[row] else make(value.ljust(wire.size, b"\0"))
                for row, value in enumerate(values)
            ],
            dtype=pl.String,
        )

    return made


_MAKERS: Mapping[str, Callable[[TableColumn, WireColumn, Places, Data], pl.Series]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), _integers),
    "float": _floats, "double": _floats, "year": _years, "bit": _bits, "decimal": _decimals, "date": _dates,
    "datetime": _datetimes, "timestamp": _timestamps, "time": _times, "enum": _enums, "set": _sets,
    "uuid": _addresses(lambda value: str(uuid.UUID(bytes=value))),
    "inet6": _addresses(lambda value: socket.inet_ntop(socket.AF_INET6, value)),
    "inet4": _addresses(lambda value: socket.inet_ntop(socket.AF_INET, value)),
}  # fmt: skip
