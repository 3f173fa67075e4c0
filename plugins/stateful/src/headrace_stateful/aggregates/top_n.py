"""``key_by("k").top_n(3, by="amount desc, ts")``: the rows of each key that come first in an order, as a changelog.

Rows that are equal in the order stand as they came: the earlier one first, or with ``keep="last"`` the later one. NULL is the
smallest value, NaN the greatest number. Where rows are only added, those that have left the first n are forgotten; where rows
are taken back, all are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import WATERMARK, Batch, ChangeKind, watermark_times
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace.interfaces.windows import Duration, microseconds

from headrace_stateful.joins.join_shape import Part, assembled
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import Places, equal_rows
from headrace_stateful.keys.kept_by_key import KeptByKey
from headrace_stateful.keys.kept_rows import TICK, KeptRowsWithTicks
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.slots import KeySlots
from headrace_stateful.keys.state_columns import kept_columns

_SLOT = "__hr_slot"
_PLACE = "__hr_place"
_TERM = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>\w+))(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*',
    re.I,
)


#: A comma outside of quoted names.
_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One column of an order."""

    column: str
    descending: bool
    nulls_last: bool


def order_terms(by: str | Sequence[str]) -> tuple[OrderTerm, ...]:
    """Parse ``"amount desc, ts"``; NULLs come first in ascending and last in descending order. Raises OptionError."""
    texts = [each for text in ([by] if isinstance(by, str) else by) for each in _COMMA.split(text)]
    terms = []
    for text in texts:
        found = _TERM.fullmatch(text)
        if found is None:
            raise OptionError(
                f"{text.strip()!r} is not a column with an order", option="by",
                hint='write columns: "amount desc, ts"; name expressions with with_columns() before',
            )  # fmt: skip
        descending = (found["direction"] or "asc").lower() == "desc"
        nulls_last = descending if found["nulls"] is None else found["nulls"].lower() == "last"
        name = found["plain"] or found["quoted"].replace('""', '"')
        terms.append(OrderTerm(name, descending, nulls_last))
    if not terms:
        raise OptionError("no order is given", option="by")
    return tuple(terms)


class TopN(KeptByKey):
    """The first ``n`` rows of each key. ``rank`` names a column for the place, from 1: then every row that shifts is updated.

    Without ``by`` rows are in the order of their arrival. ``ttl``: rows are removed so long (processing time) after their arrival.
    """

    name = "top_n"
    maps_state = True

    def __init__(
        self,
        keys: Sequence[str],
        n: int,
        *,
        by: str | Sequence[str] = (),
        rank: str | None = None,
        keep: Literal["first", "last"] = "first",
        ttl: Duration | None = None,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise OptionError(f"{n!r} is not a number of rows: it is a whole number from 1 on", option="n")
        if keep not in ("first", "last"):
            raise OptionError(f"{keep!r}: 'first' or 'last'", option="keep")
        self.keys = tuple(keys)
        self.n = n
        self.order = order_terms(by) if by else ()
        self.rank = rank
        self.keep = keep
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")
        #: Whether rows are taken back; found when the plan is checked.
        self.takes_back = False

    @property
    def is_settled(self) -> bool:
        """Whether a row that is once among the first stays there in its place. It does if the rows that came first are
        wanted and rows are only added.
        """
        return not self.order and self.keep == "first"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        keyed_rows.check_columns(columns, [*self.keys, *(term.column for term in self.order)])
        if self.rank is None:
            return columns
        if self.rank in columns:
            raise OptionError(f"there is a column {self.rank!r} already", option="rank")
        return Schema({**columns, self.rank: pl.Int64()}, json_columns=columns.json_columns)

    def changes(self, before: Changes | None) -> Changes | None:
        self.takes_back = before is not None
        if before is None and self.is_settled:
            return None
        if self.rank is not None:
            return Changes((*self.keys, self.rank))
        if self.n == 1:
            return Changes(self.keys)
        if before is None or before.key is None:
            return Changes(None)
        # With the columns of the key: a row that goes from one key to another must not overtake itself under one name.
        return Changes(tuple(dict.fromkeys([*before.key, *self.keys])))

    def definition(self, schema: Schema | None) -> StateDefinition:
        order = [
            f"{quoted(term.column)}{' desc' if term.descending else ''} nulls {'last' if term.nulls_last else 'first'}"
            for term in self.order
        ]
        settings = {"n": self.n, "order": order, "keep": self.keep, "numbered": self.rank is not None,
                    "takes rows back": self.takes_back}  # fmt: skip
        columns = kept_columns(keyed_rows.known(schema))
        return StateDefinition(self.name, settings, self.keys, columns, adjustable={"ttl_us": self.ttl_us})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningTopN(self, keyed_rows.known(schema))

    def describe(self) -> str:
        order = ", ".join(f"{term.column}{' desc' if term.descending else ''}" for term in self.order)
        return f"{self.n} by {order or 'arrival'} per {', '.join(self.keys) or 'all'}"


class Deduplicate(TopN):
    """One row per key: the first or the last that came, or with ``by="ts"`` the one of the least or greatest ``ts``.

    The first that came is append-only; the others are a changelog with the key of the rows.
    """

    name = "deduplicate"

    def __init__(
        self,
        keys: Sequence[str],
        *,
        keep: Literal["first", "last"] = "first",
        by: str | None = None,
        ttl: Duration | None = None,
    ) -> None:
        order = () if by is None else f'"{by}" desc' if keep == "last" else f'"{by}" asc nulls last'
        super().__init__(keys, 1, by=order, keep=keep, ttl=ttl)


class RunningTopN(KeptRowsWithTicks):
    """The running operator."""

    def __init__(self, spec: TopN, schema: Schema) -> None:
        super().__init__(RowLog(dict(schema), spec.keys, (TICK,)), spec.ttl_us)
        self._spec = spec
        self._columns = list(schema)
        self._takes_back = spec.takes_back
        self._with_change = spec.takes_back or not spec.is_settled
        #: Rows are replaced place by place where the place is part of the result's key.
        self._by_place = spec.rank is not None or spec.n == 1
        self._key_types = keyed_rows.key_types(schema, spec.keys)
        self._groups = keyed_rows.SlotGroups()

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame, log = batch.frame, self._log
        user = frame.select(self._columns)
        signs = changelog.signs(frame)
        keys, last, groups = self._keys_of(user)
        places, of_keys, before = self.take_in(user, signs, keys, groups, by_key=bool(self._spec.keys))
        old, new = self._first(places, of_keys, before)
        parts = self._changes(old, new, watermark_times(frame)[last])
        if not self._takes_back:
            log.remove(np.setdiff1d(places, new[_PLACE].to_numpy(), assume_unique=True))
        result = assembled(parts, with_watermark=WATERMARK in frame.columns, with_change=self._with_change)
        log.tidy()
        if result is not None:
            yield batch.with_frame(result)

    def _keys_of(self, user: pl.DataFrame) -> tuple[pl.DataFrame, Places, Places]:
        """Return the different keys of a batch, in the order of their last rows, those rows, and which key each row has."""
        index = KeySlots(self._key_types)
        keys = keyed_rows.keys_of(user, self._spec.keys)
        slots, _ = index.find_or_insert(keys)
        _, last, groups = self._groups.of(slots)
        return keys[last], last, groups

    def _first(self, places: Places, groups: Places, old: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the first rows of each group before and after the batch: columns slot (the group), place, and rank from 1.

        The first ``old`` places are those of rows that were there before.
        """
        spec = self._spec
        rows = self._log.take(places, [term.column for term in spec.order])
        rows = pl.DataFrame(
            {_SLOT: groups, _PLACE: places, "was": np.arange(places.size) < old, "now": self._log.is_live(places)}
        ).with_columns(rows.get_columns())
        ordered = rows.sort(
            [_SLOT, *(term.column for term in spec.order), _PLACE],
            descending=[False, *(term.descending for term in spec.order), spec.keep == "last"],
            nulls_last=[False, *(term.nulls_last for term in spec.order), False],
        )
        slots = ordered[_SLOT].to_numpy()
        found = []
        for when in ("was", "now"):
            there = ordered[when].to_numpy()
            passed = np.cumsum(there)
            begins = np.searchsorted(slots, slots)  # the first row of each row's group
            rank = passed - (passed[begins] - there[begins])
            given = there & (rank <= spec.n)
            found.append(ordered.select(_SLOT, _PLACE).with_columns(pl.Series("rank", rank)).filter(pl.Series(given)))
        return found[0], found[1]

    def _changes(self, old: pl.DataFrame, new: pl.DataFrame, watermarks: Places) -> list[Part]:
        """Return what changes from the old first rows to the new ones. Rows still lie where they were, removed or not."""
        join = [_SLOT, "rank"] if self._by_place else [_PLACE]
        both = old.join(new, on=join, how="full", suffix="_new", coalesce=False)
        places = [both[name].fill_null(-1).to_numpy() for name in (_PLACE, f"{_PLACE}_new")]
        slots = both[_SLOT].fill_null(both[f"{_SLOT}_new"]).to_numpy()
        ranks = both["rank"].fill_null(both["rank_new"]).to_numpy()
        was, now = places[0] >= 0, places[1] >= 0
        differs = np.ones(both.height, dtype=bool)
        same = places[0] == places[1]
        differs[same] = False
        pairs = np.flatnonzero(was & now & ~same)
        if pairs.size:
            one, other = (self._log.take(each[pairs]) for each in places)
            differs[pairs] = ~equal_rows(one, other, self._columns)
        # First all that goes, then all that comes, per key: with equal rows in a key nothing is then taken back twice.
        given = [np.flatnonzero((each >= 0) & differs) for each in places]
        rows, side = np.concatenate(given), np.repeat([0, 1], [each.size for each in given])
        order = (slots[rows] * (self._spec.n + 1) + ranks[rows]) * 2 + side
        if not self._by_place:
            order = (slots[rows] * 2 + side) * (self._spec.n + 1) + ranks[rows]
        # Put into order before rows are taken: wide rows are copied once.
        sequence = np.argsort(order, kind="stable")
        rows, side = rows[sequence], side[sequence]
        frame = self._log.take(np.where(side == 0, places[0][rows], places[1][rows]))
        if self._spec.rank is not None:
            frame = frame.with_columns(pl.Series(self._spec.rank, ranks[rows]))
        updates = np.where(side == 0, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER)
        kinds = np.where((was & now)[rows], updates, np.where(side == 0, ChangeKind.DELETE, ChangeKind.INSERT))
        return [Part(frame, order[sequence], watermarks[slots[rows]], kinds)]
