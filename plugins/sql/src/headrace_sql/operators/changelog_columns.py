"""Changes as rows with a column for their kind, and back: ``TO_CHANGELOG`` and ``FROM_CHANGELOG``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

import polars as pl
from headrace.flow.changelog import KIND_NAMES
from headrace.flow.messages import CHANGE, Batch, ChangeKind
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import Changes, Operator, OperatorSpec, RejectedRows
from headrace_stateful.keys import keyed_rows

#: The kinds of changes, as texts have them.
KINDS: Mapping[str, int] = {name.upper(): kind for kind, name in KIND_NAMES.items()}


class ToChangelog(OperatorSpec):
    """Turns each change into a row of an append-only stream. ``codes``: the value of the column ``op`` for each kind of
    change.

    Changes of other kinds are left out.
    """

    name: ClassVar[str] = "to_changelog"

    def __init__(self, op: str, codes: Mapping[int, str]) -> None:
        self.op = op
        self.codes = dict(codes)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        if self.op in columns:
            raise PlanError(f"there is a column {self.op!r} already", hint="op => DESCRIPTOR(…) names another one")
        return Schema({self.op: pl.String(), **columns}, json_columns=columns.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {name for name in wanted if name != self.op}

    def changes(self, before: Changes | None) -> Changes | None:
        return None

    def open(self, schema: Schema | None) -> Operator:
        return _Told(self)

    def describe(self) -> str:
        return f"{self.op}: {_described(self.codes)}"


class _Told(Operator):
    def __init__(self, spec: ToChangelog) -> None:
        self._spec = spec

    def process(self, batch: Batch) -> Iterable[Batch]:
        frame = batch.frame
        kinds = frame[CHANGE].fill_null(ChangeKind.INSERT) if CHANGE in frame.columns else None
        if kinds is None:
            kinds = pl.repeat(ChangeKind.INSERT, frame.height, dtype=pl.Int8, eager=True)
        codes = kinds.cast(pl.Int64).replace_strict(self._spec.codes, default=None, return_dtype=pl.String)
        told = frame.drop(CHANGE, strict=False).select(codes.alias(self._spec.op), pl.all())
        yield batch.with_frame(told if not codes.null_count() else told.filter(codes.is_not_null()))


class FromChangelog(OperatorSpec):
    """Takes rows as the changes that a column of theirs says. ``kinds``: the kind of change for each code in the column ``op``.

    A row with another code, or none, is rejected.
    """

    name: ClassVar[str] = "from_changelog"

    def __init__(self, op: str, kinds: Mapping[str, int]) -> None:
        self.op = op
        self.kinds = dict(kinds)

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, [self.op])
        kept = {name: kind for name, kind in columns.items() if name != self.op}
        return Schema(kept, json_columns=columns.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None  # the whole row tells which one is taken back

    def changes(self, before: Changes | None) -> Changes | None:
        if before is not None:
            raise PlanError("FROM_CHANGELOG needs rows that are only added, and its input changes")
        return Changes(None)

    def open(self, schema: Schema | None) -> Operator:
        return _Taken(self)

    def describe(self) -> str:
        return f"{self.op}: {_described({kind: code for code, kind in self.kinds.items()})}"


class _Taken(Operator):
    def __init__(self, spec: FromChangelog) -> None:
        self._spec = spec

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        codes = frame[self._spec.op]
        kinds = codes.replace_strict(self._spec.kinds, default=None, return_dtype=pl.Int8)
        unknown = kinds.is_null()
        if unknown.any():
            reasons = [self._reason(code) for code in codes.filter(unknown)]
            yield RejectedRows(frame.filter(unknown), reasons)
            frame, kinds = frame.filter(~unknown), kinds.filter(~unknown)
        if frame.height:
            yield batch.with_frame(frame.drop(self._spec.op).with_columns(kinds.alias(CHANGE)))

    def _reason(self, code: str | None) -> str:
        given = "no code" if code is None else f"{code!r}, which is no code"
        return f"the column {self._spec.op!r} has {given} of a change"


def _described(codes: Mapping[int, str]) -> str:
    return ", ".join(f"{KIND_NAMES[kind]} = {code!r}" for kind, code in sorted(codes.items()))
