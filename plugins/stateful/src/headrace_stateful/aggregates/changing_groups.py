"""Aggregates of groups whose rows may be taken back before the group gives a result: windows over rows that change have such groups.

Where every aggregate can be subtracted, a group has its partials and the number of its rows. Else it has the rows themselves. A row that is
taken back cancels the oldest equal row; aggregates are made of the rows that are left when the group gives its result.

Which of several equal rows goes matters to aggregates that depend on the order of rows, as ``array_agg``. For those, rows that came in the
middle of a group do not cancel each other: an older equal row may have come before. ``settled`` cancels what came from the beginning.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import polars as pl
from headrace.flow import changelog
from headrace_columnar.evaluation import RowFailure

from headrace_stateful.aggregates.aggregates import SIGN, AggregatePlan
from headrace_stateful.aggregates.grouping import Aggregation, expressions_of

#: How many rows a group has, in its partial result.
_COUNT = "__hr_count"
_ROWS = "__hr_kept"
_GROUP = "__hr_group_at"
_PLACE = "__hr_nth"


class ChangingGroups(AggregatePlan):
    """A plan whose rows carry a sign. Made by ``changing_groups``; used by windows that give each result once."""

    def __init__(self, plan: AggregatePlan) -> None:
        # All properties are those of the inner plan; only the state differs.
        self.__dict__.update(plan.__dict__)
        self._plan = plan
        self.input_schema = {**plan.input_schema, SIGN: pl.Int8()}

    def inputs(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        made, failures = self._plan.inputs(frame)
        signs = pl.Series(SIGN, changelog.signs(frame), dtype=pl.Int8)
        return (made.with_columns(signs) if self._plan.input_schema else signs.to_frame()), failures

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Leave out rows that are taken back. ``partials``: at most one per group, with all of its rows up to some moment."""
        return partials

    @abstractmethod
    def has_rows(self, partials: pl.DataFrame) -> pl.Series:
        """Return which groups have rows. Called before ``finish``, which is given those only."""


class _Counted(ChangingGroups):
    """Signed partials and a number of rows."""

    def __init__(self, plan: AggregatePlan) -> None:
        super().__init__(plan)
        self.partial_schema = {**plan.partial_schema, _COUNT: pl.Int64()}
        self.meanings = {**plan.meanings, _COUNT: "rows that are left", SIGN: "signs"}

    def partial(
        self, rows: pl.DataFrame, by: Sequence[str], *, signed: bool = False, others: Sequence[Aggregation] = ()
    ) -> pl.DataFrame:
        count = pl.col(SIGN).cast(pl.Int64).sum().alias(_COUNT)
        return _counted(self._plan.partial(rows, by, signed=True, others=[*others, count]))

    def merge(
        self, partials: pl.DataFrame, by: Sequence[str], *, others: Sequence[Aggregation] = (),
        without: frozenset[str] = frozenset(),
    ) -> pl.DataFrame:  # fmt: skip
        return _counted(self._plan.merge(partials, by, others=[*others, pl.col(_COUNT).sum()], without=without))

    def has_rows(self, partials: pl.DataFrame) -> pl.Series:
        return partials[_COUNT] > 0


class _Kept(ChangingGroups):
    """The rows themselves, as a list per group."""

    def __init__(self, plan: AggregatePlan) -> None:
        super().__init__(plan)
        self._row = pl.Struct(dict(self.input_schema))
        self.partial_schema = {_ROWS: pl.List(self._row)}
        self.meanings = {_ROWS: "rows that are left of " + ", ".join(sorted(plan.meanings.values()))}
        self.meanings |= {name: text for name, text in plan.meanings.items() if name in plan.input_schema}
        self.meanings[SIGN] = "signs"
        self.order_sensitive = True

    def partial(
        self, rows: pl.DataFrame, by: Sequence[str], *, signed: bool = False, others: Sequence[Aggregation] = ()
    ) -> pl.DataFrame:
        row = pl.struct(list(self.input_schema)).alias(_ROWS)
        return self._collected(rows.select(*by, row, *_columns_of(others)), by, others)

    def merge(
        self, partials: pl.DataFrame, by: Sequence[str], *, others: Sequence[Aggregation] = (),
        without: frozenset[str] = frozenset(),
    ) -> pl.DataFrame:  # fmt: skip
        return self._collected(partials.explode(_ROWS), by, others)

    def has_rows(self, partials: pl.DataFrame) -> pl.Series:
        return partials[_ROWS].list.eval(pl.element().struct.field(SIGN).cast(pl.Int64)).list.sum() > 0

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        return self._settled(partials) if self._plan.order_sensitive else partials

    def finish(self, partials: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        partials = self.settled(partials)
        keys = partials.drop(_ROWS)
        rows = partials.select(_ROWS).with_row_index(_GROUP).explode(_ROWS).unnest(_ROWS)
        added = rows.filter(pl.col(SIGN) > 0)
        made = self._plan.partial(added, [_GROUP])
        if added.height < rows.height:
            made = made.with_columns(self._subtracted(rows))
        return self._plan.finish(pl.concat([keys, made.drop(_GROUP)], how="horizontal"))

    def _subtracted(self, rows: pl.DataFrame) -> list[pl.Series]:
        """Return counts and sums from which the rows that go and never came are subtracted, as if they had been kept as
        such. Other aggregates ignore these rows.

        In windows over processing time a row goes in another window than it came in.
        """
        columns = [(column.value, column.signed) for column in self._plan.partials]
        lifted = rows.with_columns(value for value, signed in columns if signed is not None)
        made = lifted.group_by(_GROUP, maintain_order=True).agg(signed for _, signed in columns if signed is not None)
        return made.drop(_GROUP).get_columns()

    def _collected(self, rows: pl.DataFrame, by: Sequence[str], others: Sequence[Aggregation]) -> pl.DataFrame:
        """Return one row per group, with the rows that are left in a list."""
        # A group of which all rows were taken back has an empty list, which stands here as NULL.
        is_row = pl.col(_ROWS).struct.field(SIGN).is_not_null()
        found = rows.group_by(list(by), maintain_order=True).agg(*expressions_of(others), pl.col(_ROWS).filter(is_row))
        return found if self._plan.order_sensitive else self._settled(found)

    def _settled(self, found: pl.DataFrame) -> pl.DataFrame:
        # The NULL that stands for an empty list has no sign, and does not count here.
        if (found[_ROWS].explode().struct.field(SIGN) > 0).all():
            return found
        rows = found.select(_ROWS).with_row_index(_GROUP).explode(_ROWS).unnest(_ROWS)
        left = self._cancelled(rows.filter(pl.col(SIGN).is_not_null()))
        lists = left.select(_GROUP, pl.struct(list(self.input_schema)).alias(_ROWS))
        lists = lists.group_by(_GROUP, maintain_order=True).agg(_ROWS)
        columns = found.columns
        made = found.drop(_ROWS).with_row_index(_GROUP).join(lists, on=_GROUP, how="left", maintain_order="left")
        return made.with_columns(pl.col(_ROWS).fill_null(pl.lit([], dtype=self.partial_schema[_ROWS]))).select(columns)

    def _cancelled(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Leave out each row that is taken back, with the oldest equal one."""
        same = [_GROUP, *self._plan.input_schema]
        nth = pl.int_range(pl.len(), dtype=pl.Int64).over([*same, SIGN]).alias(_PLACE)
        counted = rows.with_columns(
            nth,
            (pl.col(SIGN) > 0).sum().over(same).alias("__hr_more"),
            (pl.col(SIGN) < 0).sum().over(same).alias("__hr_back"),
        )
        left = pl.when(pl.col(SIGN) > 0).then(pl.col("__hr_back")).otherwise(pl.col("__hr_more"))
        return counted.filter(pl.col(_PLACE) >= left).drop(_PLACE, "__hr_more", "__hr_back")


def changing_groups(plan: AggregatePlan) -> ChangingGroups:
    """Return the plan for rows that carry a sign. It must have been compiled with ``retracts``."""
    return _Counted(plan) if plan.takes_back_by_sign else _Kept(plan)


def _counted(made: pl.DataFrame) -> pl.DataFrame:
    """Return partials with the number of rows as the last column."""
    return made.select(pl.exclude(_COUNT), _COUNT)


def _columns_of(aggregations: Sequence[Aggregation]) -> list[str]:
    return list(dict.fromkeys(name for each in expressions_of(aggregations) for name in each.meta.root_names()))
