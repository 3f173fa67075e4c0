"""Bodies as they are to frames, and texts cut by a regular expression."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.codecs.body_checks import decoded_rows, invalid_text_rows, other_rows, oversized_rows
from headrace.codecs.text_columns import UNEXPLAINED, TextColumn, either, shown
from headrace.flow.messages import Bodies
from headrace.flow.schema import RESERVED_PREFIX, type_name
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import Decoded, Decoder
from headrace.interfaces.format_parts import not_utf8, too_large

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DIALECT = "https://docs.rs/regex/latest/regex/#syntax"


def named_groups(pattern: str) -> tuple[str, ...]:
    """Return the names of a pattern's groups. Raises OptionError for a pattern that Rust's regex crate does not know."""
    try:
        groups = pl.Series([""]).str.extract_groups(pattern).struct.fields
    except pl.exceptions.PolarsError as error:
        looks = re.search(r"\(\?(<?[=!])|\\[1-9]|\(\?P=|\(\?>|[*+?}]\+", pattern)
        raise OptionError(
            f"unusable pattern: {error}",
            plugin="raw",
            option="pattern",
            hint=f"the dialect is {_DIALECT}"
            + (f"; it has no look-around, back-references or possessive repetition ({looks[0]!r})" if looks else ""),
        ) from error
    names = tuple(name for name in groups if not name.isdecimal())
    if not names:
        raise OptionError(
            "the pattern has no named group",
            plugin="raw",
            option="pattern",
            hint="a group (?P<host>[^ ]+) makes the column 'host'",
        )
    for name in names:
        if name.startswith(RESERVED_PREFIX):
            raise OptionError(
                f"group name {name!r} begins with {RESERVED_PREFIX!r}, which is reserved",
                plugin="raw",
                option="pattern",
            )
    return names


class _RawDecoder(Decoder):
    """What raw decoders share: bodies that are too large or no text are bad, then rows whose columns are."""

    def __init__(self, max_body_bytes: int, *, texts: bool = True) -> None:
        self._max_body_bytes = max_body_bytes
        self._texts = texts

    @abstractmethod
    def columns(self, values: pl.Series) -> tuple[list[pl.Series], NDArray[np.bool_] | None]:
        """Return the wanted columns of bodies (texts or bytes) and which rows are bad."""

    @abstractmethod
    def fault(self, value: pl.Series) -> str:
        """Return the reason why a text is bad."""

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        unfit = oversized_rows(bodies, self._max_body_bytes)
        if self._texts:
            unfit = np.concatenate([unfit, invalid_text_rows(bodies)])
        rows = other_rows(len(bodies), unfit)
        columns, bad = self.columns(self._series(bodies.take(rows) if len(unfit) else bodies))
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))
        return decoded_rows(bodies, frame, rows, bad, self._reason)

    def _series(self, bodies: Sequence[bytes]) -> pl.Series:
        values = pl.Series(list(bodies), dtype=pl.Binary)
        return values.cast(pl.String) if self._texts else values

    def _reason(self, body: bytes) -> str:
        if len(body) > self._max_body_bytes:
            return too_large(len(body), self._max_body_bytes)
        try:
            body.decode()
        except UnicodeDecodeError as error:
            return not_utf8(error)
        return self.fault(self._series([body]))


class BinaryDecoder(_RawDecoder):
    """Gives the bytes of a body; no body is bad but for its size."""

    def __init__(self, name: str, wanted: Sequence[str], max_body_bytes: int) -> None:
        super().__init__(max_body_bytes, texts=False)
        self._name = name
        self._wanted = wanted

    def columns(self, values: pl.Series) -> tuple[list[pl.Series], NDArray[np.bool_] | None]:
        return ([values.alias(self._name)] if self._wanted else []), None

    def fault(self, value: pl.Series) -> str:
        return UNEXPLAINED


class TextDecoder(_RawDecoder):
    """Returns the text of a body, or its value in the column's type."""

    def __init__(self, name: str, column: TextColumn, wanted: Sequence[str], max_body_bytes: int) -> None:
        super().__init__(max_body_bytes)
        self._name = name
        self._column = column
        self._wanted = wanted

    def columns(self, values: pl.Series) -> tuple[list[pl.Series], NDArray[np.bool_] | None]:
        if not self._wanted:
            return [], None
        converted, bad = self._column.convert(values)
        return [converted.alias(self._name)], bad

    def fault(self, value: pl.Series) -> str:
        advice = self._column.advice(value[0])
        return f"column {self._name!r}: expected {type_name(self._column.data_type)}, found {shown(value[0])}{advice}"


class PatternDecoder(_RawDecoder):
    """Gives the named groups of the first place in the body where the pattern fits."""

    def __init__(
        self,
        pattern: str,
        columns: Mapping[str, TextColumn],
        *,
        max_body_bytes: int,
        null_value: str | None,
        null_rows: bool,
    ) -> None:
        super().__init__(max_body_bytes)
        self._pattern = pattern
        self._columns = columns
        self._null_value = null_value
        self._null_rows = null_rows

    def columns(self, values: pl.Series) -> tuple[list[pl.Series], NDArray[np.bool_] | None]:
        groups = values.str.extract_groups(self._pattern).struct.unnest()
        bad: NDArray[np.bool_] | None = None
        if not self._null_rows:
            # Groups that took no part in a match are NULL too, so only rows of NULLs have to be searched again.
            empty = groups.select(pl.all_horizontal(pl.all().is_null())).to_series()
            if empty.any():
                unmatched = empty & ~values.str.contains(self._pattern)
                bad = unmatched.to_numpy() if unmatched.any() else None
        series: list[pl.Series] = []
        for name, column in self._columns.items():
            texts = groups[name]
            if self._null_value is not None:
                texts = texts.set(texts == self._null_value, None)
            converted, bad_here = column.convert(texts)
            series.append(converted.alias(name))
            bad = either(bad, bad_here)
        return series, bad

    def fault(self, value: pl.Series) -> str:
        if not value.str.contains(self._pattern)[0]:
            return f"the pattern is not found in {shown(value[0])}"
        groups = value.str.extract_groups(self._pattern).struct.unnest()
        for name, column in self._columns.items():
            text = groups[name]
            if self._null_value is None or text[0] != self._null_value:
                _, bad = column.convert(text)
                if bad is not None:
                    expected = type_name(column.data_type)
                    return f"column {name!r}: expected {expected}, found {shown(text[0])}{column.advice(text[0])}"
        return UNEXPLAINED
