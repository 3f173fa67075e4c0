"""``correlation_events``: from rows that rules have tagged to the events of correlations, one for each group that a row belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import polars as pl
from headrace.flow.messages import INDEX, OFFSET, Batch
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError, did_you_mean
from headrace.interfaces.operator import Derivation, Operator, OperatorSpec, RejectedRows, renumber
from headrace_rules.model import Rejection, RulesError

from headrace_detection.correlations import RULE, Correlation
from headrace_detection.reliance import CorrelationsReliance

RULE_IDS = "rule_ids"
#: What ``rules`` has added to rows: an alert has columns of these names that say of the correlation.
OF_RULES = (RULE_IDS, "rule_severity", "rule_labels")
VERSION = "correlation_version"
KEY = "correlation_key"
MASK = "correlation_mask"
VALUE = "correlation_value"
ADDED: Mapping[str, pl.DataType] = {VERSION: pl.String(), KEY: pl.String(), MASK: pl.Int64(), VALUE: pl.String()}
_ROW = "__hr_row"
_BIT = "__hr_bit"
_PROJECTION = "__hr_projection"
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')


def column_expression(text: str, schema: Mapping[str, pl.DataType]) -> pl.Expr | None:
    """Return a column as a text, or a field in columns of structs (``a.b``); None if it is not there or is nested itself."""
    parts = [text] if text in schema else [(one or two).replace('""', '"') for one, two in _PART.findall(text)]
    if not parts or parts[0] not in schema:
        return None
    found, kind = pl.col(parts[0]), schema[parts[0]]
    for part in parts[1:]:
        kinds = {each.name: each.dtype for each in kind.fields} if isinstance(kind, pl.Struct) else {}
        if part not in kinds:
            return None
        found, kind = found.struct.field(part), kinds[part]  # type: ignore[assignment]
    return None if kind.is_nested() else found.cast(pl.String())


class CorrelationEvents(OperatorSpec):
    """Gives for each row that a rule of a correlation has matched an event of the correlation, with its group.

    A part of ``correlate``, which makes it. A row without a value for a field of ``group-by`` belongs to no group and gives no event; one
    without an event time goes to the dead letters.
    """

    name: ClassVar[str] = "correlation_events"

    def __init__(self, correlations: Sequence[Correlation], *, on: str) -> None:
        self.correlations = tuple(correlations)
        self.on = on

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        if schema is None:
            raise PlanError(
                "the columns are not known when the job is built",
                hint="give the map() before it an option schema={...}",
            )
        if schema.get(RULE_IDS) != pl.List(pl.String()):
            raise PlanError(
                f"there is no column {RULE_IDS!r} with the ids of the rules that match",
                hint='put rules(…) before this verb, with output="matches" or "tag"',
            )
        if not isinstance(schema.get(self.on), pl.Datetime):
            raise PlanError(
                f"{self.on!r} is not a column of times", hint=did_you_mean(self.on, list(schema), known="columns")
            )
        for name in (*ADDED, "rule_id"):
            if name in schema:
                raise PlanError(f"there is a column {name!r} already", hint=f"rename({name}='…') before correlate")
        rejections = []
        for one in self.correlations:
            missing = sorted({name for each in (*one.keys, *one.values) for name in each
                              if column_expression(name, schema) is None})  # fmt: skip
            for name in missing:
                hint = did_you_mean(name, list(schema), known="columns")
                rejections.append(
                    Rejection(one.id, f"there is no column {name!r} of texts or numbers; {hint}", one.place)
                )
        if rejections:
            raise RulesError(rejections, total=len(self.correlations))
        return Schema({**{name: kind for name, kind in schema.items() if name not in OF_RULES}, **ADDED})

    def open(self, schema: Schema | None) -> Operator:
        assert schema is not None
        return _Events(self, schema)

    def describe(self) -> str:
        return f"{sum(one.kind != RULE for one in self.correlations)} correlations"

    def reliance(self) -> CorrelationsReliance:
        return CorrelationsReliance(self.correlations)

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        # The versions of correlations are a part of their keys: when one changes, the state of the others stays valid.
        return Derivation(None, step=f"{self.name} on {self.on}")


class _Events(Operator):
    """The running operator."""

    def __init__(self, spec: CorrelationEvents, schema: Schema) -> None:
        self._on = spec.on
        self._kept = [name for name in schema if name not in OF_RULES]
        #: Which columns give the group and the value: the same for most rules of a correlation.
        self._projections: list[tuple[Correlation, tuple[str, ...], tuple[str, ...]]] = []
        numbers: dict[tuple[str, tuple[str, ...], tuple[str, ...]], int] = {}
        rows: list[tuple[str, int, int]] = []
        for one in spec.correlations:
            empty: tuple[tuple[str, ...], ...] = ((),) * len(one.rules)
            for place, (rule, keys, values) in enumerate(
                zip(one.rules, one.keys or empty, one.values or empty, strict=True)
            ):
                known = (one.version, keys, values)
                if known not in numbers:
                    numbers[known] = len(self._projections)
                    self._projections.append((one, keys, values))
                rows.append((rule, numbers[known], 1 << place))
        self._rules = pl.DataFrame(
            rows, schema={RULE_IDS: pl.String(), _PROJECTION: pl.Int64(), _BIT: pl.Int64()}, orient="row"
        )
        self._wanted = self._rules[RULE_IDS].unique().implode()
        self._schema = schema

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        matched = (
            frame.select(pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW), RULE_IDS)
            .filter(pl.col(RULE_IDS).list.len() > 0)
            .explode(RULE_IDS)
            .filter(pl.col(RULE_IDS).is_in(self._wanted))
        )
        if matched.is_empty():
            return
        events = (
            matched.unique()
            .join(self._rules, on=RULE_IDS)
            .group_by(_ROW, _PROJECTION)
            .agg(pl.col(_BIT).sum().alias(MASK))
        )
        timeless = frame[self._on].is_null()
        if timeless.any():
            rows = events.select(_ROW).unique().sort(_ROW)[_ROW]
            rows = rows.filter(timeless.gather(rows))
            events = events.filter(~pl.col(_ROW).is_in(rows.implode()))
            if len(rows):
                yield RejectedRows(frame[rows], [f"no time in {self._on!r} to correlate the row by"] * len(rows))
        parts = [
            self._of(frame, int(number), own)
            for (number,), own in events.partition_by(_PROJECTION, as_dict=True).items()
        ]
        made = pl.concat(parts) if parts else None
        if made is None or made.is_empty():
            return
        # Two rules of a correlation can find the same group in different columns: it is one event all the same.
        made = made.group_by(_ROW, VERSION, KEY).agg(pl.col(MASK).sum(), pl.col(VALUE).drop_nulls().first())
        made = made.sort(_ROW, VERSION, KEY)
        header = [name for name in frame.columns if name not in self._schema]
        result = frame.select(*header, *self._kept)[made[_ROW]].with_columns(made[name] for name in ADDED)
        yield batch.with_frame(renumber(result) if {OFFSET, INDEX} <= set(result.columns) else result)

    def _of(self, frame: pl.DataFrame, number: int, events: pl.DataFrame) -> pl.DataFrame:
        one, keys, values = self._projections[number]
        rows = frame[events[_ROW]]
        named = list(zip(one.groups, keys, strict=True)) if keys else []
        key = _together([self._expression(column).alias(field) for field, column in named])
        value = _together([self._expression(column).alias(str(place)) for place, column in enumerate(values)])
        return events.select(_ROW, MASK).with_columns(
            pl.lit(one.version).alias(VERSION),
            rows.select(key.alias(KEY))[KEY] if keys else pl.lit("{}").alias(KEY),
            rows.select(value.alias(VALUE))[VALUE] if values else pl.lit(None, dtype=pl.String).alias(VALUE),
        ).filter(pl.col(KEY).is_not_null())  # fmt: skip

    def _expression(self, column: str) -> pl.Expr:
        found = column_expression(column, self._schema)
        assert found is not None, "columns are checked when the job is built"
        return found


def _together(columns: Sequence[pl.Expr]) -> pl.Expr:
    """Return columns as the text of one JSON object; NULL if one of them is NULL."""
    if not columns:
        return pl.lit("{}")
    known = pl.all_horizontal([each.is_not_null() for each in columns])
    return pl.when(known).then(pl.struct(columns).struct.json_encode())
