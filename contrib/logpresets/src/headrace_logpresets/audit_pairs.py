"""Pairs of Linux's audit system: ``pid=12 exe="/bin/su" msg='op=login acct="root" res=success'``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl


@dataclass(frozen=True, slots=True)
class Pair:
    """A key of pairs that becomes a column."""

    #: One key, or several between ``|``.
    key: str
    ecs: str
    type: str = "string"
    #: Whether the value may be written in hexadecimal digits, as for texts with blanks or quotes.
    encoded: bool = False
    #: Only texts that begin so have encoded values: the arguments of a call of the system are numbers in hexadecimal
    #: digits themselves.
    encoded_behind: str = ""


#: What stands for a value that is not known; an identity that is not set is the largest number.
_MISSING = ("?", "(null)", "(none)", "unset", "4294967295")


#: A pair after a blank, or after the separator of the enriched form of a record. Quoted values have no blanks, but may
#: have apostrophes.
_PAIR = r"""(?:^|[ \x1d])(?:msg=')?[0-9A-Za-z_-]+=(?:"[^"]*"|[^ '"\x1d]*)"""


def pair_columns(texts: pl.Series, pairs: Mapping[str, Pair]) -> dict[str, pl.Series]:
    """Return the values of keys in texts, by the name of the column: the first value if a key is repeated, NULL if it
    is missing.
    """
    columns = {key: number for number, pair in enumerate(pairs.values()) for key in pair.key.split("|")}
    # Each text is searched once from its beginning, so text within a quoted value is never taken for a pair.
    found = texts.str.extract_all(_PAIR)
    counts = found.list.len().fill_null(0).to_numpy()
    tokens = found.filter(pl.Series(counts > 0)).explode()
    parts = tokens.str.strip_chars_start(" \x1d").str.strip_prefix("msg='").str.splitn("=", 2).struct.unnest()
    codes = parts["field_0"].cast(pl.Enum(list(columns)), strict=False).to_physical()
    known = np.flatnonzero(codes.is_not_null().to_numpy())
    rows = np.repeat(np.arange(len(texts)), counts)[known]
    numbers = np.array(list(columns.values()), dtype=np.int64)[codes.drop_nulls().to_numpy()]
    values = parts["field_1"].gather(known)
    # If a key is repeated, the last assignment stays. So values are assigned in reverse order, and the first value of a
    # text wins.
    places = np.full((len(pairs), len(texts)), len(values), dtype=np.uint32)
    places[numbers[::-1], rows[::-1]] = np.arange(len(values), dtype=np.uint32)[::-1]
    quoted = values.str.starts_with('"')
    values = values.str.strip_prefix('"').str.strip_suffix('"')
    plain = _plain(pl.select(pl.when(~quoted).then(values)).to_series())
    values = pl.select(pl.when(quoted).then(values).otherwise(plain)).to_series().extend_constant(None, 1)
    plain = plain.extend_constant(None, 1)
    made = {}
    for number, (name, pair) in enumerate(pairs.items()):
        at = pl.Series(places[number])
        column = values.gather(at)
        if pair.encoded:
            # Only values without quotes are written so.
            column = _decoded(plain.gather(at), texts, pair.encoded_behind).fill_null(column)
        made[name] = column
    return made


def _plain(values: pl.Series) -> pl.Series:
    """Return values that are written without quotes; NULL for values that mean "not known"."""
    # Old versions write pairs in parentheses, with commas between them.
    values = values.str.strip_chars_end(",")
    if values.str.ends_with(")").any():
        values = values.str.replace(r"^([^(]*)\)$", "$1")
    return pl.select(pl.when(~values.is_in(["", *_MISSING])).then(values)).to_series()


def _decoded(plain: pl.Series, texts: pl.Series, behind: str) -> pl.Series:
    """Return what hexadecimal digits say, NULL for other values. Bytes that are no UTF-8 are left as they are written;
    the arguments of a command line have NUL between them.
    """
    encoded = plain.str.contains(r"^(?:[0-9A-F]{2})+$") & texts.str.starts_with(behind)
    digits = pl.select(pl.when(encoded).then(plain)).to_series()
    if digits.null_count() == len(digits):
        return digits
    decoded = digits.str.decode("hex", strict=False).cast(pl.String, strict=False)
    return decoded.str.strip_chars_end("\0").str.replace_all("\0", " ", literal=True)
