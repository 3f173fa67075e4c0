"""Pairs of Linux's audit system: ``pid=12 exe="/bin/su" msg='op=login acct="root" res=success'``."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Pair:
    """A key of pairs that becomes a column."""

    #: One key, or several between ``|``.
    key: str
    ecs: str
    type: str = "string"
    #: Whether the value may be written in hexadecimal digits, as texts with blanks, quotes and the like are.
    encoded: bool = False
    #: Only texts that begin so have encoded values: the arguments of a call of the system are numbers in hexadecimal digits themselves.
    encoded_behind: str = ""


#: What stands for a value that is not known; an identity that is not set is the largest number.
_MISSING = ("?", "(null)", "(none)", "unset", "4294967295")


def pair_column(texts: pl.Series, pair: Pair) -> pl.Series:
    """Return the value of a key in each text; of a key that comes twice the first. NULL where there is none."""
    # Quoted values have no blanks, but may have apostrophes.
    found = texts.str.extract_groups(
        rf"""(?:^|[ \x1d])(?:msg=')?(?:{pair.key})=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^ '"\x1d]*))"""
    ).struct.unnest()
    # Old versions put pairs into parentheses, with commas between.
    plain = found["plain"].str.strip_chars_end(",").str.replace(r"^([^(]*)\)$", "$1")
    plain = pl.select(pl.when(~plain.is_in(["", *_MISSING])).then(plain)).to_series()
    if pair.encoded:
        # Only values without quotes are written so. Bytes that are no UTF-8 are left as they are written.
        encoded = plain.str.contains(r"^(?:[0-9A-F]{2})+$") & texts.str.starts_with(pair.encoded_behind)
        digits = pl.select(pl.when(encoded).then(plain)).to_series()
        if digits.null_count() < len(digits):
            plain = _decoded(digits).fill_null(plain)
    return found["quoted"].fill_null(plain)


def _decoded(digits: pl.Series) -> pl.Series:
    """Return what hexadecimal digits say; the arguments of a command line have NUL between them."""
    decoded = digits.str.decode("hex", strict=False).cast(pl.String, strict=False)
    return decoded.str.strip_chars_end("\0").str.replace_all("\0", " ", literal=True)
