"""The verb ``parse_w3c``: logs in the W3C extended format, in which lines ``#Fields: …`` name the columns of the
following lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import headrace as hr
import polars as pl
from headrace.foundation.errors import CheckpointError, did_you_mean
from headrace.interfaces.operator import RejectedRows, StatefulOperator, StatefulSpec

if TYPE_CHECKING:
    from headrace.interfaces.key_shares import KeyShare

_DIRECTIVE = "#Fields:"
#: Made of the fields ``date`` and ``time``, which are in UTC.
_TIMESTAMP = "timestamp"
_TYPES = ("string", "int64", "float64")
_SHOWN = 80
_PLAIN = r"[^ \t\r]+"
#: A value in quotes, in which a quote comes twice, or one without them.
_VALUE = r'"(?:[^"]|"")*"|[^" \t\r][^ \t\r]*'


class ParseW3c(StatefulSpec):
    """Takes columns out of lines: ``key_by("path").parse_w3c(on="line", schema={"c-ip": "string", "sc-status":
    "int64"})``.

    The key identifies the file. The lines of a file must arrive in order; its last ``#Fields`` is kept. Columns that
    the file does not have are NULL.

    Args:
        schema: the wanted fields and their types: string, int64, float64; ``timestamp`` is made of ``date`` and
            ``time``.
        on: the column of lines. It is left out of the result.
    """

    name = "parse_w3c"

    def __init__(self, keys: Sequence[str], schema: Mapping[str, Any], *, on: str = "line") -> None:
        if len(keys) != 1:
            raise hr.PlanError(
                "parse_w3c needs key_by() with one column, which names the file of each line",
                plugin=self.name,
                hint='key_by("path")',
            )
        self.keys = tuple(keys)
        self.on = on
        self.fields = hr.Schema.of(schema)
        allowed = hr.Schema.of({name: name for name in _TYPES})
        for name, kind in self.fields.items():
            wanted = [hr.Schema.of({"t": "timestamp"})["t"]] if name == _TIMESTAMP else list(allowed.values())
            if kind not in wanted:
                expected = "timestamp" if name == _TIMESTAMP else ", ".join(_TYPES)
                raise hr.OptionError(f"column {name!r}: expected {expected}", plugin=self.name, option="schema")

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        """Return the other columns of the input and the fields. Raises PlanError if they do not fit together."""
        if schema is None:
            raise hr.PlanError("the columns are not known when the job is built", plugin=self.name, hint="declare them")
        for name in (self.on, *self.keys):
            if name not in schema or schema[name] != pl.String():
                hint = did_you_mean(name, schema, known="columns")
                raise hr.PlanError(f"there is no column {name!r} of type string", plugin=self.name, hint=hint)
        kept = {name: kind for name, kind in schema.items() if name != self.on}
        for name in self.fields:
            if name in kept:
                raise hr.PlanError(
                    f"there is a column {name!r} already", plugin=self.name, hint="rename it before this verb"
                )
        return hr.Schema({**kept, **self.fields}, json_columns=schema.json_columns - {self.on})

    def describe(self) -> str:
        """Return what explain shows."""
        return f"{self.on} by {self.keys[0]}: {', '.join(self.fields)}"

    def open(self, schema: hr.Schema | None) -> StatefulOperator:
        """Return a running operator."""
        return _Running(self, [name for name in schema or () if name != self.on])


class _Running(StatefulOperator):
    """Keeps the last ``#Fields`` of each file."""

    def __init__(self, spec: ParseW3c, kept: Sequence[str]) -> None:
        self._key, self._on, self._fields = spec.keys[0], spec.on, spec.fields
        self._kept = list(kept)
        self._known: dict[str | None, str] = {}
        self._changed: set[str | None] = set()

    def process(self, batch: hr.Batch) -> Iterable[hr.Batch | RejectedRows]:
        """Parse lines. The result of a line depends on the earlier lines of its file, not on batches."""
        key, on = self._key, self._on
        told = pl.when(pl.col(on).str.starts_with(_DIRECTIVE)).then(
            pl.col(on).str.slice(len(_DIRECTIVE)).str.strip_chars()
        )
        frame = batch.frame.with_row_index("__row").with_columns(told.forward_fill().over(key).alias("__told"))
        self._learn(frame)
        before = pl.DataFrame(
            {key: list(self._before), "__before": list(self._before.values())},
            schema={key: pl.String, "__before": pl.String},
        )
        frame = frame.join(before, on=key, how="left", nulls_equal=True, maintain_order="left")
        frame = frame.with_columns(pl.coalesce("__told", "__before").alias("__fields"))
        lines = frame.filter(~pl.col(on).str.starts_with("#") & (pl.col(on).str.strip_chars() != ""))
        parts = [self._parsed(part) for part in lines.partition_by("__fields", maintain_order=True)]
        bad = pl.concat([part for _, part in parts]).sort("__row") if parts else None
        if parts:
            good = pl.concat([part for part, _ in parts]).sort("__row")
            yield batch.with_frame(good.select(*self._kept, *self._fields))
        if bad is not None and bad.height:
            yield RejectedRows(batch.frame[bad["__row"].to_list()], bad["__reason"].to_list())

    def _learn(self, frame: pl.DataFrame) -> None:
        """Store the last ``#Fields`` of each file; ``_before`` has the ones before this batch."""
        self._before = {value: self._known[value] for value in frame[self._key].unique() if value in self._known}
        newest = frame.drop_nulls("__told").group_by(self._key).agg(pl.col("__told").last()).rows()
        for value, told in newest:
            if self._known.get(value) != told:
                self._known[value] = told
                self._changed.add(value)

    def _parsed(self, lines: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows of lines with the same fields, and the bad lines, with the column ``__reason``."""
        told = lines["__fields"][0]
        names = [] if told is None else told.split()
        values = _values(lines[self._on], len(names))
        columns = {"__count": values.list.len()}
        for name in {*self._fields, "date", "time"}:
            at = names.index(name) if name in names else None
            text = (
                pl.repeat(None, lines.height, dtype=pl.String, eager=True)
                if at is None
                else values.list.get(at, null_on_oob=True)
            )
            quoted = text.str.starts_with('"') & text.str.ends_with('"')
            inside = text.str.slice(1, text.str.len_chars().clip(2) - 2).str.replace_all('""', '"', literal=True)
            plain = pl.select(pl.when(quoted).then(inside).otherwise(text)).to_series()
            columns[f"__text {name}"] = plain.set(plain.fill_null("") == "-", None)
        texts = pl.DataFrame([column.alias(name) for name, column in columns.items()])
        made, wrong = [], pl.lit(None, dtype=pl.String)
        for name, kind in self._fields.items():
            written = pl.col(f"__text {name}")
            if name == _TIMESTAMP:
                written = pl.concat_str("__text date", "__text time", separator=" ")
                value = written.str.to_datetime(
                    "%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone="UTC", strict=False
                ).cast(kind)
            else:
                value = written.cast(kind, strict=False)
            made.append(value.alias(name))
            reason = pl.format("field '{}': {} is none of its type", pl.lit(name), written)
            wrong = pl.coalesce(wrong, pl.when(written.is_not_null() & value.is_null()).then(reason))
        shown = (
            pl.lit("no line #Fields came before it")
            if told is None
            else pl.format("expected {} values as in #Fields, found {}", pl.lit(len(names)), pl.col("__count"))
        )
        fault = pl.when(pl.col("__count") != (len(names) if told is not None else -1)).then(shown)
        found = lines.hstack(texts.select(*made, pl.coalesce(fault, wrong).str.slice(0, 2 * _SHOWN).alias("__reason")))
        is_good = found["__reason"].is_null()
        return found.filter(is_good), found.filter(~is_good)

    def delta(self) -> bytes:
        """Return the files whose fields have changed."""
        changed, self._changed = self._changed, set()
        return _written({value: self._known[value] for value in changed}) if changed else b""

    def snapshot(self) -> bytes:
        """Return the fields of all files."""
        self._changed = set()
        return _written(self._known)

    def apply(self, state: bytes) -> None:
        """Load a snapshot or a delta."""
        self._known.update(_read(state))

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        """Return the files of one shard."""
        known = {value: told for state in states for value, told in _read(state).items()}
        keys = pl.DataFrame({self._key: list(known)}, schema={self._key: pl.String})
        return _written({value: known[value] for value in keys.filter(pl.Series(share.holds(keys)))[self._key]})

    def state_rows(self) -> int:
        """Return the number of files."""
        return len(self._known)


def _values(lines: pl.Series, count: int) -> pl.Series:
    """Return the values of lines. Quotes hold a value with blanks together only where they must for ``count`` values.

    IIS writes quotes of a client as they are, and ``+`` for blanks: quotes of one value and those of another must not make one value.
    """
    plain = lines.str.extract_all(_PLAIN)
    odd = plain.list.len() != count
    if not odd.any():
        return plain
    quoted = lines.str.contains(f"^(?:{_VALUE})(?:[ \\t]+(?:{_VALUE}))*[ \\t\\r]*$")
    return lines.str.extract_all(_VALUE).zip_with(odd & quoted, plain)


def _written(known: Mapping[str | None, str]) -> bytes:
    return json.dumps(sorted(known.items(), key=lambda pair: (pair[0] is not None, pair[0] or ""))).encode()


def _read(state: bytes) -> dict[str | None, str]:
    try:
        return {value: str(told) for value, told in json.loads(state)}
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"the state of parse_w3c cannot be read: {error}") from error
