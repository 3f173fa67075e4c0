"""Results that change: what is there in the end, computed from what the inputs come to in the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.differential.streams.interpreter.joins import joined
from tests.differential.streams.interpreter.machine import rows_of
from tests.differential.streams.interpreter.values import aggregate, key_of
from tests.differential.streams.interpreter.windows import first_rows
from tests.differential.streams.plan import (
    Distinct,
    FlatMap,
    Grouped,
    Join,
    Node,
    Row,
    Select,
    Split,
    TopN,
    Union,
    Where,
)


def table_of(node: Node, moved: Mapping[int, list[Row]], made: dict[int, list[Row]], *, sql: bool) -> list[Row]:
    """Return the rows that a verb comes to. ``moved``: what verbs over rows that are only added have given."""
    if id(node) in moved:
        return moved[id(node)]
    if id(node) not in made:
        inputs = [table_of(each, moved, made, sql=sql) for each in node.inputs]
        made[id(node)] = _table(node, inputs, sql=sql)
    return made[id(node)]


def _table(node: Node, inputs: list[list[Row]], *, sql: bool) -> list[Row]:
    if isinstance(node, Union):
        return [row for rows in inputs for row in rows]
    if isinstance(node, Where | Select | Split | FlatMap):
        return [made for row in inputs[0] for made in rows_of(node, row)]
    if isinstance(node, Grouped):
        return _grouped(node, inputs[0], sql=sql)
    if isinstance(node, TopN):
        return first_rows(node, inputs[0])
    if isinstance(node, Distinct):
        first: dict[Any, Row] = {}
        for row in inputs[0]:
            first.setdefault(key_of(row, node.keys), row)
        return list(first.values())
    assert isinstance(node, Join)
    return joined(node, *inputs)


def _grouped(node: Grouped, rows: list[Row], *, sql: bool) -> list[Row]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key_of(row, node.keys), []).append(row)
    made = []
    for key, members in groups.items():
        results = {name: aggregate(what, members, sql=sql) for name, what in node.aggregates.items()}
        made.append({**dict(zip(node.keys, key, strict=True)), **results})
    return made
