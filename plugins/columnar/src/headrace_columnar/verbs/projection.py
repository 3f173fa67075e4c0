"""Verbs that choose, compute, drop and rename columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, ROW
from headrace.flow.schema import RESERVED_PREFIX, Schema, per_schema
from headrace.foundation.errors import ExpressionError, OptionError, did_you_mean
from headrace.interfaces.functions import UserFunction
from headrace.interfaces.operator import Changes, Derivation
from headrace.interfaces.state_definition import quoted
from headrace_columnar.evaluation import evaluate_all
from headrace_columnar.expressions import CompiledExpression, compile_expression, output_name
from headrace_columnar.normal_form import derivation_of
from headrace_columnar.verbs.base import BoundVerb, Results, VerbSpec, rejected_of, without_failed

_CAST = re.compile(r"(?is)CAST\((?P<column>.+?) AS [\w(), ]+\)")


def _column_of(source: str | pl.Expr) -> str | None:
    """Return the name of the column that an item is as it stands, or in another type; None for a computed one."""
    if isinstance(source, pl.Expr):
        return source.meta.output_name() if source.meta.is_column() else None
    text = source.strip()
    cast = _CAST.fullmatch(text)
    text = text if cast is None else cast["column"].strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"') if '"' not in text[1:-1].replace('""', "") else None
    return text if text.isidentifier() else None


def _under_new_names(before: Changes | None, names: Mapping[str, str]) -> Changes | None:
    """Return changes whose key columns are called otherwise; without a key where one of them is gone."""
    if before is None or before.key is None:
        return before
    key = tuple(names[name] for name in before.key) if set(before.key) <= set(names) else None
    return Changes(key, before.before_images)


class _Computed(VerbSpec):
    """Common to select and with_columns: named expressions over the input's columns."""

    def __init__(
        self,
        *columns: str | pl.Expr,
        functions: Mapping[str, UserFunction] | None = None,
        **named: str | pl.Expr,
    ) -> None:
        self.functions = functions
        self.items: dict[str, str | pl.Expr] = {}
        for source in columns:
            self._add(output_name(source), source)
        for name, source in named.items():
            self._add(name, source)
        if not self.items:
            raise OptionError(f"{self.name} needs at least one column", plugin=self.name)

    def _add(self, name: str, source: str | pl.Expr) -> None:
        if name in self.items:
            raise OptionError(f"column {name!r} is given twice", plugin=self.name, option=name)
        if name.startswith(RESERVED_PREFIX):
            raise OptionError(
                f"column name {name!r} begins with {RESERVED_PREFIX!r}, which is reserved", plugin=self.name
            )
        self.items[name] = source

    @per_schema
    def compiled(self, schema: Schema) -> Mapping[str, CompiledExpression]:
        """Return the compiled items by name."""
        return {
            name: compile_expression(source, schema, self.functions)  # type: ignore[arg-type]
            for name, source in self.items.items()
        }

    def describe(self) -> str:
        return ", ".join(
            name if isinstance(source, str) and source.strip() == name else f"{name} = {source}"
            for name, source in self.items.items()
        )


class Select(_Computed):
    """Keeps only the named columns and expressions."""

    name: ClassVar[str] = "select"
    takes_upserts = True

    def changes(self, before: Changes | None) -> Changes | None:
        columns = {_column_of(source): name for name, source in reversed(self.items.items())}
        return _under_new_names(before, {old: new for old, new in columns.items() if old is not None})

    def bind(self, schema: Schema) -> BoundVerb:
        compiled = self.compiled(schema)
        return _BoundComputed(Schema({name: one.data_type for name, one in compiled.items()}), compiled, keep=())

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        # What fails in a column nobody wants still rejects its row, so every expression counts.
        return {column for one in self.compiled(schema).values() for column in one.columns}

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        return derivation_of(schema, self.items, only=True)


class WithColumns(_Computed):
    """Adds or replaces columns."""

    name: ClassVar[str] = "with_columns"
    takes_upserts = True

    def changes(self, before: Changes | None) -> Changes | None:
        if before is None or before.key is None:
            return before
        kept = {name: name for name in before.key if name not in self.items or _column_of(self.items[name]) == name}
        return _under_new_names(before, kept)

    def bind(self, schema: Schema) -> BoundVerb:
        compiled = self.compiled(schema)
        types = {**schema, **{name: one.data_type for name, one in compiled.items()}}
        return _BoundComputed(Schema(types), compiled, keep=[name for name in schema if name not in compiled])

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        compiled = self.compiled(schema)
        read = {column for one in compiled.values() for column in one.columns}
        return read | {name for name in wanted if name not in compiled}

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        return derivation_of(schema, self.items)


class _BoundComputed(BoundVerb):
    def __init__(self, schema: Schema, compiled: Mapping[str, CompiledExpression], keep: Sequence[str]) -> None:
        self.schemas = {"": schema}
        self._names = list(compiled)
        self._compiled = list(compiled.values())
        self._keep = set(keep)
        self._order = list(schema)

    def process(self, frame: pl.DataFrame) -> Results:
        present = [name for name in frame.columns if name in self._keep]
        header = [name for name in (*HEADER_COLUMNS, ROW) if name in frame.columns]
        computed, failures = evaluate_all(self._compiled, frame, self._names)
        made = pl.concat([frame.select([*header, *present]), computed], how="horizontal")
        return [("", self._ordered(without_failed(made, failures), header))], rejected_of(frame, failures)

    def _ordered(self, frame: pl.DataFrame, header: Sequence[str]) -> pl.DataFrame:
        present = frame.columns
        wanted = [*header, *(name for name in self._order if name in present)]
        return frame if wanted == present else frame.select(wanted)


class Drop(VerbSpec):
    """Leaves columns out."""

    name: ClassVar[str] = "drop"
    takes_upserts = True
    takes_functions = False

    def __init__(self, *columns: str) -> None:
        if not columns:
            raise OptionError("drop needs at least one column", plugin="drop")
        self.columns = columns

    def bind(self, schema: Schema) -> BoundVerb:
        for name in self.columns:
            _check_known(name, schema)
        left = {name: kind for name, kind in schema.items() if name not in self.columns}
        if not left:
            raise OptionError("drop would leave no column", plugin="drop")
        return _BoundRename(Schema(left), {name: name for name in left})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return [name for name in schema if name not in self.columns] if wanted is None else wanted

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        if schema is None:
            return super().derivation(schema, output)
        return Derivation({name: quoted(name) for name in schema if name not in self.columns})

    def describe(self) -> str:
        return ", ".join(self.columns)


class Rename(VerbSpec):
    """Renames columns."""

    name: ClassVar[str] = "rename"
    takes_upserts = True
    takes_functions = False

    def __init__(self, names: Mapping[str, str]) -> None:
        if not names:
            raise OptionError("rename needs at least one column", plugin="rename")
        self.names = dict(names)

    def bind(self, schema: Schema) -> BoundVerb:
        for name in self.names:
            _check_known(name, schema)
        renamed = {name: self.names.get(name, name) for name in schema}
        if len(set(renamed.values())) != len(renamed):
            twice = sorted({name for name in renamed.values() if list(renamed.values()).count(name) > 1})
            raise OptionError(f"rename would give the column {twice[0]!r} twice", plugin="rename", option=twice[0])
        return _BoundRename(Schema({renamed[name]: kind for name, kind in schema.items()}), renamed)

    def changes(self, before: Changes | None) -> Changes | None:
        if before is None or before.key is None:
            return before
        return _under_new_names(before, {name: self.names.get(name, name) for name in before.key})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        before = {new: old for old, new in self.names.items()}
        return {before.get(name, name) for name in wanted}

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        if schema is None:
            return super().derivation(schema, output)
        return Derivation({self.names.get(name, name): quoted(name) for name in schema})

    def describe(self) -> str:
        return ", ".join(f"{old} → {new}" for old, new in self.names.items())


class _BoundRename(BoundVerb):
    def __init__(self, schema: Schema, names: Mapping[str, str]) -> None:
        self.schemas = {"": schema}
        self._names = names

    def process(self, frame: pl.DataFrame) -> Results:
        header = [name for name in (*HEADER_COLUMNS, ROW) if name in frame.columns]
        kept = [pl.col(old).alias(new) for old, new in self._names.items() if old in frame.columns]
        return [("", frame.select([*header, *kept]))], None


def _check_known(name: str, schema: Schema) -> None:
    if name not in schema:
        raise ExpressionError(
            f"unknown column {name!r}", text=name, position=0, length=len(name),
            hint=did_you_mean(name, schema, known="columns"),
        )  # fmt: skip
