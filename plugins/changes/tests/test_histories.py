"""A random history of a table, written in each format: what is decoded from it gives the table, however it is cut into batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, Bodies, ChangeKind
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Codec
from headrace.interfaces.registry import default_registry
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = Schema.of({"id": "int64", "name": "string", "n": "float64"})
Row = dict[str, Any]
#: An old row and a new one; None: there is none.
Change = tuple[Row | None, Row | None]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from([None, "a", "é\n", '"']), st.sampled_from([None, 0.0, 1.5]), st.booleans()
    ),
    max_size=30,
)


def history(steps: Sequence[tuple[int, str | None, float | None, bool]]) -> tuple[list[Change], dict[int, Row]]:
    """Return changes of a table, and the table after them."""
    table: dict[int, Row] = {}
    changes: list[Change] = []
    for id, name, n, deletes in steps:
        old = table.get(id)
        if deletes and old is None:
            continue
        new = None if deletes else {"id": id, "name": name, "n": n}
        changes.append((old, new))
        table.pop(id, None)
        if new is not None:
            table[id] = new
    return changes, table


def debezium(changes: Sequence[Change], operation: str = "op", names: str = "cud") -> Iterator[Any]:
    for old, new in changes:
        yield {
            "before": old,
            "after": new,
            operation: names[0] if old is None else names[2] if new is None else names[1],
        }


def ogg(changes: Sequence[Change]) -> Iterator[Any]:
    return debezium(changes, "op_type", "IUD")


def canal(changes: Sequence[Change]) -> Iterator[Any]:
    """Neighbours of one kind are one body."""

    def texts(row: Row) -> Row:
        return {name: None if value is None else str(value) for name, value in row.items()}

    kinds = ["INSERT" if old is None else "DELETE" if new is None else "UPDATE" for old, new in changes]
    at = 0
    while at < len(changes):
        end = at + 1
        while end < len(changes) and kinds[end] == kinds[at] and end - at < 3:
            end += 1
        part = [(old, new) for old, new in changes[at:end]]
        body: Row = {"type": kinds[at], "data": [texts(new or old or {}) for old, new in part], "old": None}
        if kinds[at] == "UPDATE":
            body["old"] = [texts({k: v for k, v in (old or {}).items() if v != (new or {})[k]}) for old, new in part]
        yield body
        at = end


def maxwell(changes: Sequence[Change]) -> Iterator[Any]:
    for old, new in changes:
        kind = "insert" if old is None else "delete" if new is None else "update"
        body = {"type": kind, "data": new or old}
        if old is not None and new is not None:
            body["old"] = {name: value for name, value in old.items() if value != new[name]}
        yield body


def changelog(changes: Sequence[Change]) -> Iterator[Any]:
    for old, new in changes:
        if old is not None:
            yield {"op": "-D" if new is None else "-U", "data": old}
        if new is not None:
            yield {"op": "+I" if old is None else "+U", "data": new}


WRITERS: dict[str, Callable[[Sequence[Change]], Iterator[Any]]] = {
    "debezium-json": debezium, "canal-json": canal, "maxwell-json": maxwell, "ogg-json": ogg, "changelog-json": changelog,
}  # fmt: skip


def codec_of(format: str, **options: Any) -> Codec:
    kind = default_registry().find("codec", format)
    codec: Codec = kind(kind.Settings.of(options, plugin=format))
    return codec


def decoded(codec: Codec, bodies: Sequence[bytes], cut: int) -> list[tuple[int, Row]]:
    decoder = codec.record_decoder(SCHEMA)
    found: list[tuple[int, Row]] = []
    for at in range(0, len(bodies), cut):
        part = decoder.decode(Bodies.of(bodies[at : at + cut]))
        assert not part.bad
        kinds = part.frame[CHANGE].to_list()
        found += zip(kinds, part.frame.drop(CHANGE).to_dicts(), strict=True)
    return found


def applied(changes: Sequence[tuple[int, Row]]) -> Counter[str]:
    """Apply a changelog; a row that is taken back must be there."""
    table: Counter[str] = Counter()
    for kind, row in changes:
        table[repr(row)] += 1 if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER) else -1
        assert table[repr(row)] >= 0
    return +table


@pytest.mark.parametrize("format", WRITERS)
@hypothesis.given(STEPS, st.integers(1, 8))
@hypothesis.settings(max_examples=examples(60, least=5), deadline=None)
def test_a_history_gives_its_table(format: str, steps: Any, cut: int) -> None:
    changes, table = history(steps)
    bodies = [json.dumps(body).encode() for body in WRITERS[format](changes)]
    found = decoded(codec_of(format), bodies, cut)
    assert applied(found) == Counter(repr(row) for row in table.values())
    assert found == decoded(codec_of(format), bodies, 1)


@pytest.mark.parametrize("format", WRITERS)
@hypothesis.given(STEPS)
@hypothesis.settings(max_examples=examples(60, least=5), deadline=None)
def test_a_history_without_old_rows_gives_the_last_row_of_each_key(format: str, steps: Any) -> None:
    changes, table = history(steps)
    bodies = [json.dumps(body).encode() for body in WRITERS[format](changes)]
    last: dict[int, Row] = {}
    for kind, row in decoded(codec_of(format, changelog_mode="upsert"), bodies, 4):
        assert kind != ChangeKind.UPDATE_BEFORE
        last.pop(row["id"], None)
        if kind != ChangeKind.DELETE:
            last[row["id"]] = row
    assert last == table


@pytest.mark.parametrize("format", WRITERS)
@hypothesis.given(STEPS)
@hypothesis.settings(max_examples=examples(60, least=5), deadline=None)
def test_what_is_written_is_read_again(format: str, steps: Any) -> None:
    changes, table = history(steps)
    rows = [
        (kind, row)
        for old, new in changes
        for kind, row in (
            (ChangeKind.DELETE if new is None else ChangeKind.UPDATE_BEFORE, old),
            (ChangeKind.INSERT if old is None else ChangeKind.UPDATE_AFTER, new),
        )
        if row is not None
    ]
    frame = pl.DataFrame([row for _, row in rows], schema=dict(SCHEMA), orient="row")
    frame = frame.with_columns(pl.Series(CHANGE, [kind for kind, _ in rows], dtype=pl.Int8))
    codec = codec_of(format)
    bodies = codec.encoder(SCHEMA).encode(frame)
    found = decoded(codec, list(bodies), 5)
    assert [row for _, row in found] == [row for _, row in rows]
    assert applied(found) == Counter(repr(row) for row in table.values())
    if format == "changelog-json":
        assert [kind for kind, _ in found] == [kind for kind, _ in rows]
