"""Partial results of aggregates: columns which are made from rows, and merged with one another.

A partial is a row of such columns for some rows of a group. Merging the partials of parts of a group, in the order in
which the rows came, gives the partial of the whole group, wherever the parts are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import polars as pl
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, DataError, RetriableError
from headrace.interfaces.functions import AggregateFunction
from headrace.runtime.waiting import until_answered

from headrace_stateful.aggregates import state_bytes
from headrace_stateful.aggregates.aggregate_numbers import greatest_codes

#: How two partials become one: added (``sum``), the least or greatest (NaN is the greatest), the first or last that is not NULL,
#: lists one behind the other, lists without repetition, the greatest codes of a sketch, or a user's ``merge``.
PartialKind = Literal["sum", "min", "max", "nan_max", "first", "last", "concat", "distinct", "sketch", "user"]


@dataclass(frozen=True)
class PartialColumn:
    """One column of partials.

    ``value`` is a row's own contribution (NULL: none) and ``rows`` aggregates contributions, in a column of the partial's name, or
    where ``is_lifted`` is false the inputs themselves, within a group. ``signed`` aggregates contributions of which some are
    taken back (``None`` where they cannot be).
    """

    name: str
    kind: PartialKind
    data_type: pl.DataType
    value: pl.Expr
    rows: pl.Expr
    is_lifted: bool
    function: AggregateFunction | None = None
    #: The column that holds 1 or -1 per row, in ``signed``.
    _sign: str = field(default="__hr_sign", repr=False)

    @property
    def signed(self) -> pl.Expr | None:
        """The aggregation of rows of which some are taken back, by the column ``__hr_sign`` (1 or -1, Int8)."""
        if self.kind != "sum":
            return None
        column = pl.col(self.name)
        # polars does not negate Int128.
        negative = pl.lit(0, dtype=pl.Int128) - column if self.data_type == pl.Int128() else -column
        value = pl.when(pl.col(self._sign) < 0).then(negative).otherwise(column)
        return value.sum().cast(self.data_type).alias(self.name)

    @property
    def merged(self) -> pl.Expr:
        """The aggregation of partials within a group."""
        column = pl.col(self.name)
        if self.kind in ("concat", "distinct", "sketch"):
            flat = column.explode(empty_as_null=False, keep_nulls=False)
            if self.kind == "concat":
                return flat
            return flat.unique(maintain_order=True) if self.kind == "distinct" else greatest_codes(flat)
        return grouped(self.kind, column)

    def fold_rows(self, lists: pl.Series) -> pl.Series:
        """Return the states of a user aggregate: of the lists of arguments that ``rows`` has made."""
        assert self.function is not None
        user = UserFold(self.function)
        return pl.Series(lists.name, [user.added(rows) for rows in lists.to_list()], dtype=pl.Binary)

    def fold_partials(self, lists: pl.Series) -> pl.Series:
        """Return the merged states of a user aggregate, of lists of states."""
        assert self.function is not None
        user = UserFold(self.function)
        return pl.Series(lists.name, [user.merged(states) for states in lists.to_list()], dtype=pl.Binary)

    @property
    def result_name(self) -> str:
        """The column of the results of a user aggregate."""
        return f"{self.name}_result"

    def results(self, states: pl.Series) -> pl.Series:
        """Return the results of a user aggregate: made here and not within polars, whose threads do not wait for servers."""
        assert self.function is not None
        user = UserFold(self.function)
        made = [user.result(state) for state in states.to_list()]
        return pl.Series(self.result_name, made, dtype=self.function.return_type)


def grouped(kind: PartialKind, values: pl.Expr) -> pl.Expr:
    """Return the aggregation of single values or of simple partials within a group."""
    made: dict[PartialKind, Callable[[], pl.Expr]] = {
        "sum": values.sum,
        "min": values.min,
        "max": values.max,
        "nan_max": values.nan_max,
        "first": lambda: values.first(ignore_nulls=True),
        "last": lambda: values.last(ignore_nulls=True),
        "sketch": lambda: greatest_codes(values.drop_nulls()),
        "user": lambda: values,
    }
    return made[kind]()


class PartialColumns:
    """Collects the partial columns that the aggregates of a query need; what two of them need is kept once."""

    def __init__(self) -> None:
        self.columns: list[PartialColumn] = []
        #: What each column is, and of which inputs; in the order of ``columns``.
        self.tags: list[Sequence[Hashable]] = []
        self._by_tag: dict[Hashable, PartialColumn] = {}

    def add(
        self,
        tag: Sequence[Hashable],
        kind: PartialKind,
        data_type: pl.DataType,
        value: pl.Expr,
        rows: pl.Expr | None = None,
        function: AggregateFunction | None = None,
    ) -> pl.Expr:
        """Return the column of that tag (its kind and its inputs); it is created if it does not exist."""
        key = (*tag, kind)
        found = self._by_tag.get(key)
        if found is None:
            name = f"__hr_p{len(self.columns)}"
            made = (grouped(kind, pl.col(name)) if rows is None else rows).alias(name)
            found = PartialColumn(name, kind, data_type, value.alias(name), made, rows is None, function)
            self.columns.append(found)
            self.tags.append(tuple(tag))
            self._by_tag[key] = found
        return pl.col(found.name)

    def found(self, tag: Sequence[Hashable], kind: PartialKind) -> PartialColumn:
        """Return the column of a tag that has been added."""
        return self._by_tag[(*tag, kind)]


class UserFold:
    """Runs a user aggregate. Its state is MessagePack between any two calls for other rows.

    Where a call raises RetriableError it is made again (``until_answered``), with the state as it was before the call: what the
    call has changed of it is thrown away. Nobody pays for that before a call has failed: then the states so far are made anew,
    and from there on kept packed after each call.
    """

    def __init__(self, function: AggregateFunction) -> None:
        self._name = function.name
        self._made = until_answered(function)

    def added(self, rows: Sequence[dict[str, Any]]) -> bytes:
        try:
            state = self._made.create()
            for row in rows:
                state = self._add(state, row)
        except RetriableError:
            packed = until_answered(lambda: self._packed(self._made.create()))
            for row in rows:
                packed = until_answered(partial(self._step, self._add, packed, row))
            return packed
        return self._packed(state)

    def extended(self, packed: bytes | None, rows: Sequence[dict[str, Any]]) -> bytes:
        """Return a state with more rows in it; None: the state before the first."""
        if packed is None:
            return self.added(rows)
        for row in rows:
            packed = until_answered(partial(self._step, self._add, packed, row))
        return packed

    def merged(self, states: Sequence[bytes]) -> bytes:
        if len(states) == 1:
            return states[0]
        try:
            state = state_bytes.unpacked(states[0])
            for other in states[1:]:
                state = self._merge(state, other)
        except RetriableError:
            packed = states[0]
            for other in states[1:]:
                packed = until_answered(partial(self._step, self._merge, packed, other))
            return packed
        return self._packed(state)

    def result(self, state: bytes | None) -> Any:
        return until_answered(partial(self._result, state))

    def _step(self, call: Callable[[Any, Any], Any], packed: bytes, given: Any) -> bytes:
        return self._packed(call(state_bytes.unpacked(packed), given))

    def _add(self, state: Any, row: dict[str, Any]) -> Any:
        try:
            return self._made.add(state, *row.values())
        except NOT_THE_FAULT_OF_A_ROW:
            raise
        except Exception as error:
            raise DataError(
                f"aggregate function {self._name!r} failed in add({', '.join(map(repr, row.values()))}): "
                f"{type(error).__name__}: {error}",
                hint="make add() accept every value, or remove such rows with a where() before it",
            ) from error

    def _merge(self, state: Any, other: bytes) -> Any:
        try:
            return self._made.merge(state, state_bytes.unpacked(other))
        except NOT_THE_FAULT_OF_A_ROW:
            raise
        except Exception as error:
            raise DataError(
                f"aggregate function {self._name!r} failed in merge(): {type(error).__name__}: {error}"
            ) from error

    def _result(self, state: bytes | None) -> Any:
        made = self._made.create() if state is None else state_bytes.unpacked(state)
        try:
            return self._made.result(made)
        except NOT_THE_FAULT_OF_A_ROW:
            raise
        except Exception as error:
            raise DataError(
                f"aggregate function {self._name!r} failed in result(): {type(error).__name__}: {error}"
            ) from error

    def _packed(self, state: Any) -> bytes:
        try:
            return state_bytes.packed(state)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"the state of aggregate function {self._name!r} cannot be stored: {error}",
                hint="use only numbers, texts, bytes, lists and dicts in it",
            ) from error
