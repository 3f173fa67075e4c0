"""The verb ``grok``: ``stream.grok("%{COMBINEDAPACHELOG}", on="message")`` takes columns out of a column of log lines."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import get_args

import headrace as hr
import numpy as np
import polars as pl
from headrace.foundation.errors import did_you_mean

from headrace_grok.filtering import Engine
from headrace_grok.library import check_choice, definitions_of
from headrace_grok.matching import Matcher, MatchOptions
from headrace_grok.programs import compiled, schema_of

_SHOWN_PATTERNS = 3


class Grok(hr.OperatorSpec):
    """Adds the fields of the first pattern that fits a text, as columns. A NULL text gives NULL fields.

    A row goes to the dead letters if no pattern matches its text, or if a field cannot be converted to its type. With
    ``no_match="null"``, a row that no pattern matches has NULL fields instead.

    Args:
        patterns: one pattern, or several; the first that fits counts.
        on: the column of texts.
        pattern_definitions: patterns of the job's own, by name.
        pattern_files: files with patterns, or directories of such files. They are read when the job is built.
        break_on_match: False: every pattern that fits adds its fields; the first one that has something for a field gives it.
        keep_empty_captures: whether a capture without a character is an empty text; else it is NULL.
        names: ``"ecs"``: fields of the patterns that come with headrace are named by the Elastic Common Schema.
        overwrite: columns of the input that fields may replace, in the rows in which they have something.
        no_match: what happens to a row that no pattern matches: ``"dead letter"`` or ``"null"``.
        engine: ``"auto"``, ``"hyperscan"`` or ``"polars"``: the pre-filter; results do not depend on it.
    """

    name = "grok"

    def __init__(
        self,
        patterns: str | Sequence[str],
        *,
        on: str = "message",
        pattern_definitions: Mapping[str, str] | None = None,
        pattern_files: str | Sequence[str] = (),
        break_on_match: bool = True,
        keep_empty_captures: bool = False,
        names: str = "legacy",
        overwrite: str | Sequence[str] = (),
        no_match: str = "dead letter",
        engine: str = "auto",
    ) -> None:
        check_choice("no_match", no_match, ("dead letter", "null"))
        check_choice("engine", engine, get_args(Engine))
        self.patterns = _listed(patterns)
        self.on = on
        self.overwrite = _listed(overwrite)
        self._programs = compiled(self.patterns, definitions_of(pattern_definitions, _listed(pattern_files), names))
        self._fields = schema_of(self._programs)
        self._options = MatchOptions(break_on_match, keep_empty_captures, no_match == "null", engine)

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        """Return the columns before and the fields behind them. Raises PlanError if they do not fit together."""
        if schema is None:
            raise hr.PlanError(
                "the columns are not known when the job is built",
                plugin=self.name,
                hint="declare them: map(function, schema={…})",
            )
        if self.on not in schema:
            hint = did_you_mean(self.on, schema, known="columns") or 'name the column of texts: grok(…, on="line")'
            raise hr.PlanError(f"unknown column {self.on!r}", plugin=self.name, hint=hint)
        if schema[self.on] != pl.String():
            raise hr.PlanError(f"column {self.on!r} does not contain text", plugin=self.name, hint="cast it to string")
        unknown = [name for name in self.overwrite if name not in self._fields]
        if unknown:
            hint = did_you_mean(unknown[0], self._fields, known="fields")
            raise hr.PlanError(
                f"{unknown[0]!r} in overwrite is not a field of the patterns", plugin=self.name, hint=hint
            )
        taken = [name for name in self._fields if name in schema and name not in self.overwrite]
        if taken:
            raise hr.PlanError(
                f"field {taken[0]!r} of the patterns is a column already",
                plugin=self.name,
                hint=f"rename the column or the field, or replace the column: overwrite=[{taken[0]!r}]",
            )
        other = [name for name in self.overwrite if name in schema and schema[name] != self._fields[name]]
        if other:
            raise hr.PlanError(
                f"column {other[0]!r} cannot be replaced by a field of another type",
                plugin=self.name,
                hint="cast the column before, or give the field another name",
            )
        return hr.Schema({**schema, **self._fields})

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        """Return the column of texts, which decides which rows go on, and the wanted columns that are no fields."""
        if wanted is None:
            return None
        return [self.on, *(name for name in wanted if name in schema and name != self.on)]

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        return _Running(self.on, self._fields, Matcher(self._programs, self._options))

    def describe(self) -> str:
        """Return a text with everything on which the columns depend. ``explain`` shows it, and the definition of state
        behind this verb contains it.
        """
        shown = ", ".join(self.patterns[:_SHOWN_PATTERNS])
        more = len(self.patterns) - _SHOWN_PATTERNS
        return f"{self.on} by {shown}{f' and {more} more' if more > 0 else ''} ({self._digest()})"

    def _digest(self) -> str:
        """Return a digest of everything that can change the resulting rows: patterns are too long to be shown."""
        options = self._options
        what = [(each.python, dict(each.groups), dict(each.fields)) for each in self._programs]
        how = (options.break_on_match, options.keep_empty_captures, options.null_rows, self.overwrite)
        return hashlib.sha256(repr((what, how)).encode()).hexdigest()[:8]


class _Running(hr.Operator):
    """Runs in the lane of one queue."""

    def __init__(self, on: str, fields: hr.Schema, matcher: Matcher) -> None:
        self._on = on
        self._fields = fields
        self._matcher = matcher

    def process(self, batch: hr.Batch) -> Iterable[hr.Batch | hr.RejectedRows]:
        frame = batch.frame
        lines = frame[self._on]
        present = None
        if lines.null_count():
            present = np.flatnonzero(lines.is_not_null().to_numpy())
            lines = lines.drop_nulls()
        matched = self._matcher.match(lines)
        found, rows, bad_rows = matched.frame, matched.rows, np.array(matched.bad_rows, dtype=np.int64)
        if present is not None:
            # Rows whose text is NULL go on without fields.
            places = np.full(frame.height, found.height, dtype=np.int64)
            places[present[rows]] = np.arange(len(rows))
            bad_rows = present[bad_rows]
            good = np.ones(frame.height, dtype=np.bool_)
            good[bad_rows] = False
            rows = np.flatnonzero(good)
            found = pl.DataFrame([column.extend_constant(None, 1).gather(places[rows]) for column in found])
        kept = frame[rows] if len(bad_rows) else frame
        # A column that a field replaces keeps its value where the field is NULL.
        columns = [pl.coalesce(field, kept[field.name]) if field.name in kept.columns else field for field in found]
        out: list[hr.Batch | hr.RejectedRows] = [batch.with_frame(kept.with_columns(columns))]
        if len(bad_rows):
            out.append(hr.RejectedRows(frame[bad_rows], matched.reasons))
        return out


def _listed(values: str | Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)
