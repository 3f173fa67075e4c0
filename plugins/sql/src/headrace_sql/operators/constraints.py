"""What the columns of a sink's table ask of their values: NOT NULL, and the lengths of CHAR, VARCHAR, BINARY and VARBINARY."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl
from headrace.flow.messages import Batch
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows

Text = Literal["CHAR", "VARCHAR", "BINARY", "VARBINARY"]


@dataclass(frozen=True)
class Limits:
    """What one value has to be, and the values in it that are checked, too."""

    not_null: bool = False
    #: The type of the text and its length; None: any length.
    text: tuple[Text, int] | None = None
    #: Of a row its fields; of an array its elements as the field ``""``. Of a map, the fields ``key`` and ``value`` of these.
    inner: tuple[tuple[str, Limits], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.not_null and self.text is None and all(each.is_empty for _, each in self.inner)


@dataclass(frozen=True)
class Policy:
    """What happens to rows that do not fit. ``lengths``: "IGNORE", "TRIM_PAD" or "ERROR"."""

    drops_nulls: bool = False
    lengths: str = "IGNORE"


class Constraints(OperatorSpec):
    """Keeps the rows whose values fit, rejects the others or makes them fit. Texts have characters, BINARY has bytes."""

    name: ClassVar[str] = "constraints"

    def __init__(self, columns: Mapping[str, Limits], policy: Policy) -> None:
        self.columns = {name: each for name, each in columns.items() if not each.is_empty}
        self.policy = policy

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return schema

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return None if wanted is None else {*wanted, *self.columns}

    def open(self, schema: Schema | None) -> Operator:
        return _Running(self)

    def describe(self) -> str:
        checks = [f"{name} {what}" for column, each in self.columns.items() for name, what in _named(column, each)]
        policy = f"nulls {'dropped' if self.policy.drops_nulls else 'rejected'}, lengths {self.policy.lengths}"
        return f"{', '.join(checks)}; {policy}"


class _Running(Operator):
    def __init__(self, spec: Constraints) -> None:
        policy = spec.policy
        self._changed = [
            _fitted(pl.col(name), each).alias(name) for name, each in spec.columns.items() if _has_text(each)
        ]
        if policy.lengths != "TRIM_PAD":
            self._changed = []
        found = [each for name, limits in spec.columns.items() for each in _broken(pl.col(name), name, limits)]
        self._nulls = [
            (flag, f"column {path} is NOT NULL, but the value is NULL")
            for flag, path, what in found
            if what == "NOT NULL"
        ]
        self._lengths = [
            (flag, f"column {path} is {what}, but the value has another length")
            for flag, path, what in found
            if what != "NOT NULL" and policy.lengths == "ERROR"
        ]
        self._drops_nulls = policy.drops_nulls

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame
        dropped, checks = [], [*self._lengths]
        if self._drops_nulls:
            dropped = [flag for flag, _ in self._nulls]
        else:
            checks = [*self._nulls, *checks]
        if dropped:
            frame = frame.filter(~pl.any_horizontal([flag.fill_null(False) for flag in dropped]))
        if checks:
            reason = pl.coalesce([pl.when(flag).then(pl.lit(text)) for flag, text in checks])
            reasons = frame.select(reason.alias("reason"))["reason"]
            wrong = reasons.is_not_null()
            if wrong.any():
                yield RejectedRows(frame.filter(wrong), reasons.filter(wrong).to_list())
                frame = frame.filter(~wrong)
        if frame.height:
            yield batch.with_frame(frame.with_columns(self._changed) if self._changed else frame)


def _has_text(limits: Limits) -> bool:
    return limits.text is not None or any(_has_text(each) for _, each in limits.inner)


def _named(path: str, limits: Limits) -> Iterator[tuple[str, str]]:
    """Return (value, constraint) for a value and the values in it."""
    if limits.not_null:
        yield path, "NOT NULL"
    if limits.text is not None:
        yield path, f"{limits.text[0]}({limits.text[1]})"
    for name, each in limits.inner:
        yield from _named(_path(path, name), each)


def _path(path: str, name: str) -> str:
    return f"{path}.{name}" if name else f"{path}[…]"


def _broken(value: pl.Expr, path: str, limits: Limits) -> list[tuple[pl.Expr, str, str]]:
    """Return (whether a row breaks it, value, constraint) for all constraints. NULL: the row does not break it."""
    made = [(value.is_null(), path, "NOT NULL")] if limits.not_null else []
    if limits.text is not None:
        made.append((_has_other_length(value, *limits.text), path, f"{limits.text[0]}({limits.text[1]})"))
    for name, each in limits.inner:
        if name:
            inner = _broken(value.struct.field(name), _path(path, name), each)
            made += [(flag & value.is_not_null(), where, what) for flag, where, what in inner]
        else:
            inner = _broken(pl.element(), _path(path, ""), each)
            made += [(value.list.eval(flag).list.any(), where, what) for flag, where, what in inner]
    return made


def _has_other_length(value: pl.Expr, kind: Text, length: int) -> pl.Expr:
    have = value.bin.size() if kind.endswith("BINARY") else value.str.len_chars()
    return have > length if kind.startswith("VAR") else have != length


def _fitted(value: pl.Expr, limits: Limits) -> pl.Expr:
    """Return a value with its texts, and those of its fields, cut and filled up."""
    if limits.text is not None:
        kind, length = limits.text
        if kind.endswith("BINARY"):
            digits = value.bin.encode("hex")
            digits = digits if kind == "VARBINARY" else digits.str.pad_end(2 * length, "0")
            return digits.str.head(2 * length).str.decode("hex")
        return (value if kind == "VARCHAR" else value.str.pad_end(length)).str.head(length)
    changed = [
        _fitted(value.struct.field(name), each).alias(name) for name, each in limits.inner if name and _has_text(each)
    ]
    return pl.when(value.is_not_null()).then(value.struct.with_fields(changed)) if changed else value
