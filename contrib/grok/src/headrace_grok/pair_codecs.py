"""The formats ``logfmt``, ``cef`` and ``leef``: the columns of the schema are keys of pairs, or fields of the head of the event."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import headrace as hr
import numpy as np
import polars as pl
from headrace.interfaces.format_parts import MaxBodyBytes, ReadOnlyCodec, texts_of
from numpy.typing import NDArray

from headrace_grok.bodies import MAX_BODY_BYTES, LineColumn, TimestampFormat, check_type, decoded
from headrace_grok.library import definitions_of
from headrace_grok.matching import Matcher
from headrace_grok.pairs import QuotedPairs, cef_faults, cef_header, cef_pairs, leef_pairs
from headrace_grok.programs import compiled, schema_of
from headrace_grok.values import typed_columns

#: The columns as texts, for the lines without a fault, and what is wrong with the other lines, by line number.
Texts = tuple[Mapping[str, pl.Series], NDArray[np.int64], dict[int, str]]


class PairSettings(hr.Settings, frozen=True, kw_only=True):
    """Options that the formats of pairs share."""

    line_column: LineColumn = None
    timestamp_format: TimestampFormat = None
    max_body_bytes: MaxBodyBytes = MAX_BODY_BYTES


class LogfmtSettings(PairSettings, frozen=True, kw_only=True):
    """Options of the format ``logfmt``."""

    pair_separator: Annotated[
        str, hr.option("What stands between pairs, beside blanks.", min_length=1, max_length=1)
    ] = " "
    key_separator: Annotated[str, hr.option("What stands between key and value.", min_length=1, max_length=1)] = "="

    def validate(self) -> None:
        """Check that the separators can separate keys from values."""
        for option in ("pair_separator", "key_separator"):
            given = getattr(self, option)
            if given in ('"', "\\") or self.pair_separator == self.key_separator:
                raise hr.OptionError(
                    f"{given!r} has a special meaning",
                    plugin="logfmt",
                    option=option,
                    hint='take two different characters for both separators, neither of them " nor a backslash',
                )


class _PairCodec(ReadOnlyCodec):
    """What the formats of pairs share: they take any column."""

    Settings: ClassVar[type[hr.Settings]] = PairSettings

    @abstractmethod
    def texts(self, lines: pl.Series, wanted: Sequence[str]) -> Texts:
        """Return the wanted columns of lines as texts."""

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for a type to which texts cannot be converted."""
        options = self.settings
        for name, kind in schema.items():
            check_type(self.name, name, kind, options.timestamp_format, is_line=name == options.line_column)
        return _PairDecoder(self, {name: schema[name] for name in (schema if columns is None else columns)})


class _PairDecoder(hr.Decoder):
    def __init__(self, codec: _PairCodec, wanted: dict[str, pl.DataType]) -> None:
        self._codec = codec
        self._wanted = wanted
        options = codec.settings
        self._line = options.line_column if options.line_column in wanted else None
        self._timestamp_format = options.timestamp_format
        self._max_body_bytes = options.max_body_bytes

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        lines, rows, bad = texts_of(bodies, self._max_body_bytes)
        texts, good, faults = self._codec.texts(lines, [name for name in self._wanted if name != self._line])
        by_name = dict(texts)
        if self._line is not None:
            by_name[self._line] = lines[good].alias(self._line)
        columns, wrong = typed_columns(
            [(by_name[name], kind) for name, kind in self._wanted.items()], self._timestamp_format
        )
        if wrong:
            faults.update({int(good[row]): reason for row, reason in wrong.items()})
            kept = np.setdiff1d(np.arange(len(good)), list(wrong), assume_unique=True)
            good, columns = good[kept], [column[kept] for column in columns]
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(good))
        return decoded(bodies, frame, good, rows, bad, faults)


class LogfmtCodec(_PairCodec):
    """Lines such as ``level=info msg="two words" retry``."""

    Settings: ClassVar[type[hr.Settings]] = LogfmtSettings
    name = "logfmt"

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._pairs = QuotedPairs(self.settings.pair_separator, self.settings.key_separator)

    def texts(self, lines: pl.Series, wanted: Sequence[str]) -> Texts:
        rows, reasons = self._pairs.faults(lines)
        good = np.setdiff1d(np.arange(len(lines)), rows, assume_unique=True)
        pairs = self._pairs.pairs(lines[good])
        columns = {name: pairs.column(name, len(good)) for name in wanted}
        return columns, good, dict(zip(rows.tolist(), reasons, strict=True))


class _EventCodec(_PairCodec):
    """Events with a head of fixed fields."""

    pattern: ClassVar[str]
    extension: ClassVar[str]

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._programs = compiled([self.pattern], definitions_of())
        self._head = schema_of(self._programs)

    def default_schema(self) -> hr.Schema:
        """Return the fields of the head, and the pairs as one text."""
        return self._head

    def head(self, lines: pl.Series) -> tuple[Mapping[str, pl.Series], NDArray[np.int64], dict[int, str]]:
        """Return the fields of the head as texts."""
        matched = Matcher(self._programs, columns=dict.fromkeys(self._head, pl.String())).match(lines)
        faults = dict(zip(matched.bad_rows, matched.reasons, strict=True))
        return {column.name: column for column in matched.frame}, matched.rows, faults


class CefCodec(_EventCodec):
    """The Common Event Format: ``CEF:0|vendor|product|version|id|name|severity|src=10.0.0.1 msg=two words``."""

    name = "cef"
    pattern = "%{CEF}"
    extension = "extension"

    def texts(self, lines: pl.Series, wanted: Sequence[str]) -> Texts:
        head, good, faults = self.head(lines)
        extension = head[self.extension].fill_null("")
        wrong, reasons = cef_faults(extension)
        if len(wrong):
            faults.update(zip(good[wrong].tolist(), reasons, strict=True))
            kept = np.setdiff1d(np.arange(len(good)), wrong, assume_unique=True)
            head, good, extension = {name: each[kept] for name, each in head.items()}, good[kept], extension[kept]
        pairs = cef_pairs(extension)
        columns = {}
        for name in wanted:
            in_head = name in head and name != self.extension
            columns[name] = (
                cef_header(head[name]) if in_head else head[name] if name in head else pairs.column(name, len(good))
            )
        return columns, good, faults


class LeefCodec(_EventCodec):
    """The Log Event Extended Format: ``LEEF:1.0|vendor|product|version|id|`` and pairs between tabs."""

    name = "leef"
    pattern = "%{LEEF}"
    extension = "attributes"

    def texts(self, lines: pl.Series, wanted: Sequence[str]) -> Texts:
        head, good, faults = self.head(lines)
        pairs, wrong = leef_pairs(head[self.extension].fill_null(""), head["leef_delimiter"])
        columns = {name: head[name] if name in head else pairs.column(name, len(good)) for name in wanted}
        if wrong:
            faults.update({int(good[row]): reason for row, reason in wrong.items()})
            kept = np.setdiff1d(np.arange(len(good)), list(wrong), assume_unique=True)
            columns, good = {name: each[kept] for name, each in columns.items()}, good[kept]
        return columns, good, faults
