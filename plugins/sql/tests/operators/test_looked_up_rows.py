"""Rows that change, looked up in a table that changes too: each row keeps what it was given."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
from headrace.flow.messages import CHANGE, Batch, ChangeKind, Queue
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes
from headrace_sql.operators.looked_up_rows import FOUND, TAG, LookedUpRows
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

LEFT = {"k": pl.String(), "v": pl.Int64()}
SCHEMA = Schema({**LEFT, TAG: pl.String(), "name": pl.String(), FOUND: pl.Int32()})

#: A row that comes, or the number of one that goes; the names that the table has for its key then; whether the batch ends.
STEPS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 2)) | st.integers(0, 20),
        st.lists(st.sampled_from(["x", "y", "z"]), max_size=2), st.booleans(),
    ), max_size=30,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, st.booleans(), st.booleans())
def test_each_row_keeps_what_it_was_given(steps: list[Any], inner: bool, restores: bool) -> None:
    spec = LookedUpRows(("k",), ("k", "v"), inner=inner)
    operator = spec.open(SCHEMA)
    live: list[tuple[tuple[Any, ...], list[Any]]] = []
    waiting: list[tuple[Any, ...]] = []
    table: list[tuple[Any, ...]] = []
    stored: list[bytes] = []
    for number, (step, names, ends) in enumerate([*steps, (0, [], True)]):
        names = [] if isinstance(step, tuple) and step[0] is None else names
        row: tuple[Any, ...] | None = None
        if isinstance(step, tuple):
            row, kind = step, ChangeKind.INSERT
            live.append((row, names))
        elif live:
            row, kind = live[step % len(live)][0], ChangeKind.DELETE
            # Of equal rows the oldest goes.
            live.remove(next(each for each in live if each[0] == row))
        if row is not None:
            found: list[tuple[Any, Any]] = [(name, 1) for name in names] or [(None, None)]
            waiting += [(*row, f"q/{number}/0", *each, kind) for each in found]
        if not ends or not waiting:
            continue
        frame = pl.DataFrame(waiting, schema={**SCHEMA, CHANGE: pl.Int8()}, orient="row")
        waiting = []
        for batch in operator.process(Batch(Queue("q"), frame)):
            assert isinstance(batch, Batch)
            for *values, change in batch.frame.select("k", "v", "name", CHANGE).rows():
                if change == ChangeKind.INSERT:
                    table.append(tuple(values))
                else:
                    table.remove(tuple(values))
        wanted = [(*row, name) for row, given in live for name in (given or ([] if inner else [None]))]
        assert sorted(table, key=repr) == sorted(wanted, key=repr)
        if restores:
            stored.append(operator.delta())
            operator = spec.open(SCHEMA)
            for state in filter(None, stored):
                operator.apply(state)


def test_the_key_of_the_rows_stays_where_each_has_one_partner() -> None:
    assert LookedUpRows(("k",), ("k", "v"), inner=True, unique=True).changes(Changes(("v",))) == Changes(("v", "k"))
    assert LookedUpRows(("k",), ("k", "v"), inner=True).changes(Changes(("v",))) == Changes(None)


def test_a_table_that_is_another_one_after_a_restart(tmp_path: Path) -> None:
    text = f"""
        CREATE TABLE t (k STRING, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/in', 'format' = 'json');
        CREATE TABLE d (n BIGINT PRIMARY KEY NOT ENFORCED, word STRING)
          WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/d.ndjson', 'format' = 'json');
        CREATE TABLE o (k STRING, n BIGINT, word STRING)
          WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'json', 'changes' = 'column');
        CREATE VIEW counted AS SELECT k, COUNT(*) AS n FROM t GROUP BY k;
        INSERT INTO o SELECT c.k, c.n, d.word FROM counted AS c JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON c.n = d.n;
    """
    (tmp_path / "in").mkdir()
    for number, (word, keys) in enumerate([("one", "ab"), ("ONE", "a")]):
        (tmp_path / "in" / f"{number}.ndjson").write_text("".join(json.dumps({"k": k}) + "\n" for k in keys))
        (tmp_path / "d.ndjson").write_text("".join(json.dumps({"n": n, "word": f"{word}{n}"}) + "\n" for n in (1, 2)))
        hr.sql(text).run("light", checkpoint=str(tmp_path / "checkpoint"), show_progress=False)
    lines = [line for each in sorted((tmp_path / "out").glob("part-*")) for line in each.read_text().splitlines()]
    assert [tuple(json.loads(line).values()) for line in lines] == [
        ("insert", "a", 1, "one1"), ("insert", "b", 1, "one1"), ("delete", "a", 1, "one1"), ("insert", "a", 2, "ONE2"),
    ]  # fmt: skip
