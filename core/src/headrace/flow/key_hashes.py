"""The hash of a key, which decides the shard of its rows.

It is part of headrace's storage format: it is the same in every process, on every machine and in every
version, because shards keep state for their keys. It is made column by column from the stored values: integers,
instants and booleans by splitmix64's finalizer (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
2014), texts and bytes by a polynomial over their UTF-8 bytes modulo 2**64 before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from headrace.foundation.errors import PlanError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    #: Takes the bytes of all texts, and where each begins and the last one ends; returns the polynomial of each.
    TextSums = Callable[[NDArray[np.uint8], NDArray[np.int64]], NDArray[np.uint64]]

#: It gives the bytes of texts without a copy. Installed beside most packages, but core does not require it.
_HAS_ARROW = find_spec("pyarrow") is not None
_MULTIPLIER = 0x9E3779B97F4A7C15
#: Odd, so that it has an inverse modulo 2**64.
_BASE = 0x100000001B3
_NULL = 0x6A09E667F3BCC909
#: So few texts, with so few bytes in all, are hashed each by itself: more takes longer than the calls of polars and numpy for all.
_FEW = 16
_FEW_BYTES = 512
_MASK = 2**64 - 1
#: Texts are hashed in blocks of about so many bytes, whose terms (eight bytes for each) stay in a processor's cache.
_BLOCK_BYTES = 2**16
#: A block is hashed place by place if it has so many values, and the longest is at most so many times as long as they are on average.
_BY_PLACE_ROWS_MIN = 512
_BY_PLACE_LONGEST_MAX = 2


def key_hashes(frame: pl.DataFrame, keys: Sequence[str], sums: TextSums | None = None) -> NDArray[np.uint64]:
    """Return one 64-bit hash per row over the key columns. Equal keys have equal hashes; NULL equals NULL, NaN NaN.

    ``sums`` is a faster form of ``text_sums``. Callers above this room take ``interfaces.key_hashing``, which has it.
    Raises PlanError for a column of a type that cannot be a key.
    """
    import numpy as np

    result = np.zeros(frame.height, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in keys:
            result = _mixed(result * np.uint64(31) + _column_hashes(frame[name], sums or text_sums))
    return result


def _column_hashes(column: pl.Series, sums: TextSums) -> NDArray[np.uint64]:
    import numpy as np
    import polars as pl

    kind = column.dtype
    if kind in (pl.String, pl.Binary) and len(column) <= _FEW and column.estimated_size() <= _FEW_BYTES:
        hashes = _hashes_of_few(column.to_list())
    elif kind in (pl.String, pl.Binary, pl.Categorical, pl.Enum):
        hashes = _text_hashes(column if kind == pl.Binary else column.cast(pl.String).cast(pl.Binary), sums)
    elif kind in (pl.Float32, pl.Float64):
        values = column.cast(pl.Float64).fill_null(0.0).to_numpy()
        values = np.where(values == 0.0, 0.0, values)  # -0.0 is 0.0
        values = np.where(np.isnan(values), np.nan, values)  # one kind of NaN
        hashes = _mixed(np.ascontiguousarray(values).view(np.uint64))
    elif kind.is_integer() or kind.is_temporal() or kind == pl.Boolean:
        whole = column.cast(pl.Int64) if kind not in (pl.UInt64, pl.Int128) else column.cast(pl.String)
        if whole.dtype == pl.String:
            return _column_hashes(whole, sums)
        hashes = _mixed(whole.fill_null(0).to_numpy().astype(np.int64).view(np.uint64))
    elif kind == pl.Null:
        hashes = np.zeros(len(column), dtype=np.uint64)
    elif isinstance(kind, pl.Decimal | pl.Struct | pl.List | pl.Array):
        return _column_hashes(_as_text(column), sums)
    else:
        raise PlanError(f"column {column.name!r} of type {kind} cannot be a key")
    if column.null_count():
        hashes = np.where(column.is_null().to_numpy(), np.uint64(_NULL), hashes)
    return hashes


def _as_text(column: pl.Series) -> pl.Series:
    """Return values of nested and exact types as texts which are equal when the values are."""
    import polars as pl

    if isinstance(column.dtype, pl.Decimal):
        return column.cast(pl.String)
    return column.to_frame("v").select(pl.struct("v").struct.json_encode().alias(column.name)).to_series()


def _hashes_of_few(values: Sequence[str | bytes | None]) -> NDArray[np.uint64]:
    """Return what ``_text_hashes`` gives, of a few short values."""
    import numpy as np

    sums = np.empty(len(values), dtype=np.uint64)
    for row, value in enumerate(values):
        data = value.encode() if isinstance(value, str) else value or b""
        total = 0
        for byte in reversed(data):
            total = (total * _BASE + byte + 1) & _MASK
        sums[row] = (total + len(data) * _MULTIPLIER) & _MASK
    return _mixed(sums)


def _text_hashes(column: pl.Series, sums: TextSums) -> NDArray[np.uint64]:
    """Return a polynomial hash of each value's bytes: sum of byte[i] * BASE**i, and its length, then mixed."""
    import numpy as np

    count, first = len(column), column.first() if len(column) > _FEW else None
    if first is not None and first == column.last() and (column == column[:1]).all() and not column.null_count():
        return np.repeat(_text_hashes(column[:1], sums), count)  # the day of all rows, for example
    if count == 0:
        return np.zeros(0, dtype=np.uint64)
    lengths = column.bin.size().fill_null(0).to_numpy().astype(np.uint64)
    data, offsets = _bytes_of(column)
    return _mixed(lengths * np.uint64(_MULTIPLIER) + sums(data, offsets))


def text_sums(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the polynomial of each value: sum of (byte[i] + 1) * BASE**i modulo 2**64, made from prefix sums.

    ``offsets`` says where each value begins in ``data``, and where the last one ends.
    """
    import numpy as np

    count = len(offsets) - 1
    result = np.zeros(count, dtype=np.uint64)
    if count == 0:
        return result
    total = int(offsets[-1] - offsets[0])
    powers = _powers(int(np.diff(offsets).max()))  # behind NULL there may be bytes, too: of a decimal that was cast
    step = max(1, _BLOCK_BYTES * count // max(total, count))
    with np.errstate(over="ignore"):
        for begin in range(0, count, step):
            ends = offsets[begin : begin + step + 1]
            result[begin : begin + step] = _polynomials(data[ends[0] : ends[-1]], ends - ends[0], powers)
    return result


def _bytes_of(column: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all values behind each other, and where each value begins, and the last one ends: Arrow's layout."""
    import numpy as np

    if not _HAS_ARROW:
        values = column.fill_null(b"").to_list()
        ends = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(column.bin.size().fill_null(0).to_numpy(), out=ends[1:])
        return np.frombuffer(b"".join(values), dtype=np.uint8), ends
    array = column.rechunk().to_arrow(compat_level=_oldest())
    _, offsets_buffer, data_buffer = array.buffers()
    width = np.int64 if str(array.type).startswith("large") else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype=width)[array.offset : array.offset + len(column) + 1].astype(np.int64)
    has_bytes = offsets[-1] > offsets[0]
    return np.frombuffer(data_buffer, dtype=np.uint8) if has_bytes else np.zeros(0, dtype=np.uint8), offsets


def _polynomials(data: NDArray[np.uint8], ends: NDArray[np.int64], powers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the polynomial of each value. ``ends`` says where values end in ``data``; it begins with 0."""
    import numpy as np

    lengths = np.diff(ends)
    longest = int(lengths.max())
    if len(lengths) >= _BY_PLACE_ROWS_MIN and longest * len(lengths) <= _BY_PLACE_LONGEST_MAX * len(data):
        return _by_place(data, ends[:-1], lengths, powers[:longest])
    # The place of each byte within its value.
    places = np.arange(len(data), dtype=np.int64) - np.repeat(ends[:-1], lengths)
    terms = data.astype(np.uint64)
    terms += np.uint64(1)
    terms *= powers[places]
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum(terms, out=sums[1:])
    return sums[ends[1:]] - sums[ends[:-1]]


def _by_place(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], powers: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return the polynomial of each value. The first bytes of all values are taken together, then the second, and so
    on; for values of about the same length.
    """
    import numpy as np

    # What the 1 that is added to each byte comes to, by the length of a value.
    ones = np.zeros(len(powers) + 1, dtype=np.uint64)
    np.cumsum(powers, out=ones[1:])
    sums = ones[lengths]
    shortest = int(lengths.min())
    for place, power in enumerate(powers):
        terms = data.take(starts + place, mode="clip").astype(np.uint64)
        terms *= power
        if place >= shortest:
            terms *= lengths > place
        sums += terms
    return sums


def _oldest() -> pl.CompatLevel:
    import polars as pl

    return pl.CompatLevel.oldest()


def _powers(count: int) -> NDArray[np.uint64]:
    import numpy as np

    if count == 0:
        return np.ones(1, dtype=np.uint64)
    factors = np.full(count, _BASE, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Splitmix64's finalizer, over an increment so that 0 does not stay 0."""
    import numpy as np

    with np.errstate(over="ignore"):
        z = values + np.uint64(_MULTIPLIER)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
