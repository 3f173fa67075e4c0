"""``normalize_changes`` against a plain dict: repeated changes, changes without old rows, deletes of keys that are not there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
from headrace.flow.messages import ChangeKind, Tick
from headrace.flow.schema import Schema
from headrace.foundation.errors import PlanError
from headrace.interfaces.operator import Changes
from headrace_stateful.aggregates.normalize_changes import NormalizeChanges
from hypothesis import settings
from hypothesis import strategies as st

from tests.effort import examples

from .stateful_driver import Row, Run, batch_of, plain

ADD, UB, UA, D = ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE
SCHEMA = Schema.of({"k": "string", "j": "int64", "a": "float64", "l": "list<int64>"})
KEYS = ("k", "j")
ROWS = st.tuples(
    st.sampled_from([None, "x", "y"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 0.5, 1.0, float("nan")]),
    st.sampled_from([None, [], [1], [1, None]]),
)
#: (kind, row, what happens before it: 0 a batch ends, 1 and 2 the state is stored and read again)
STEPS = st.lists(st.tuples(st.sampled_from([ADD, UB, UA, D]), ROWS, st.integers(0, 8)), max_size=60)


def spec_of(ttl: str | None = None) -> NormalizeChanges:
    spec = NormalizeChanges(KEYS, ttl=ttl)
    spec.output_schema(SCHEMA)
    assert spec.changes(Changes(KEYS, before_images=False)) == Changes(KEYS)
    return spec


def hashable(row: Row) -> Row:
    return plain(tuple(tuple(value) if isinstance(value, list) else value for value in row))


class Driven(Run):
    def table(self, output: str = "") -> Counter[Row]:
        self.rows = [(where, hashable(row)) for where, row in self.rows]
        return super().table(output)


@settings(max_examples=examples(300), deadline=None)
@hypothesis.given(STEPS)
def test_it_gives_the_last_row_of_each_key(steps: list[tuple[int, Row, int]]) -> None:
    run = Driven(lambda: spec_of().open(SCHEMA))
    model: dict[Row, Row] = {}
    waiting: list[tuple[int, Row]] = []
    given = [0]

    def flush() -> None:
        if waiting:
            before = len(run.rows)
            was = Counter(model.values())
            for kind, row in waiting:
                if kind in (ADD, UA):
                    model[row[:2]] = hashable(row)
                else:
                    model.pop(row[:2], None)
            marks = range(given[0], given[0] + len(waiting))
            given[0] += len(waiting)
            kinds = [kind for kind, _ in waiting]
            run.give(batch_of([row for _, row in waiting], dict(SCHEMA), kinds=kinds, watermarks=marks))
            waiting.clear()
            # Nothing is said of keys that stay as they are.
            if was == Counter(model.values()):
                assert len(run.rows) == before
        assert run.table() == Counter(model.values())

    for kind, row, what in steps:
        if what == 0:
            flush()
        elif what in (1, 2):
            flush()
            run.store(whole=what == 2)
            run.restart()
        waiting.append((kind, row))
    flush()
    assert run.operator.state_rows() == len(model)
    run.check_watermarks()


def driven(*batches: list[tuple[int, Row]], ttl: str | None = None) -> Driven:
    run = Driven(lambda: spec_of(ttl).open(SCHEMA))
    for batch in batches:
        run.give(batch_of([row for _, row in batch], dict(SCHEMA), kinds=[kind for kind, _ in batch]))
    return run


def said(run: Driven) -> list[tuple[int, Any]]:
    return [(kind, row[2]) for kind, (_, row) in zip(run.kinds, run.rows, strict=True)]


def row(a: float | None, k: str | None = "x") -> Row:
    return (k, 1, a, None)


def test_an_update_gets_its_old_row() -> None:
    run = driven([(UA, row(1.0))], [(UA, row(2.0))], [(D, row(None))])
    assert said(run) == [(ADD, 1.0), (UB, 1.0), (UA, 2.0), (D, 2.0)]


def test_what_comes_again_is_left_out() -> None:
    run = driven(
        [(ADD, row(1.0))], [(ADD, row(1.0))], [(UB, row(1.0)), (UA, row(1.0))], [(D, row(1.0))], [(D, row(1.0))]
    )
    assert said(run) == [(ADD, 1.0), (D, 1.0)]


def test_a_delete_of_an_unknown_key_says_nothing() -> None:
    assert said(driven([(D, row(1.0))])) == []


def test_an_old_row_alone_deletes_until_the_new_one_comes() -> None:
    assert said(driven([(ADD, row(1.0))], [(UB, row(1.0))], [(UA, row(2.0))])) == [(ADD, 1.0), (D, 1.0), (ADD, 2.0)]


def test_old_and_new_row_stand_together() -> None:
    run = driven([(ADD, row(1.0)), (ADD, row(5.0, "y"))], [(UA, row(6.0, "y")), (UA, row(2.0))])
    assert said(run) == [(ADD, 1.0), (ADD, 5.0), (UB, 5.0), (UA, 6.0), (UB, 1.0), (UA, 2.0)]


def test_keys_are_forgotten() -> None:
    run = Driven(lambda: spec_of("10 s").open(SCHEMA))
    for second, what in ((0, row(1.0)), (5, row(1.0)), (12, row(2.0)), (30, row(3.0))):
        run.tell(Tick(second * 1_000_000))
        run.give(batch_of([what], dict(SCHEMA), kinds=[UA]))
    # With a time-to-live an equal row is told too: operators behind remember the key for as long.
    assert said(run) == [(ADD, 1.0), (UB, 1.0), (UA, 1.0), (UB, 1.0), (UA, 2.0), (ADD, 3.0)]
    run.tell(Tick(41_000_000))
    assert run.operator.state_rows() == 0


def test_rows_that_are_only_added_are_refused() -> None:
    with pytest.raises(PlanError, match="only added"):
        NormalizeChanges(KEYS).changes(None)


def test_the_key_must_be_columns() -> None:
    with pytest.raises(PlanError, match="unknown column 'kk'"):
        NormalizeChanges(("kk",)).output_schema(SCHEMA)
