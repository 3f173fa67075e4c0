"""``TO_CHANGELOG`` and ``FROM_CHANGELOG`` in FROM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.foundation.errors import did_you_mean
from sqlglot import exp

from headrace_sql.binding.context import Context
from headrace_sql.binding.scope import Column, Relation, is_updating
from headrace_sql.operators.changelog_columns import KINDS, FromChangelog, ToChangelog
from headrace_sql.reading import nodes


def changelog_table(context: Context, node: nodes.ChangelogTable, relation: Relation) -> Relation:
    """Return the relation of such a call for the relation of its table. Raises ExpressionError."""
    op = _op(context, node)
    if node.name == "TO_CHANGELOG":
        return _to_changelog(context, node, relation, op)
    return _from_changelog(context, node, relation, op)


def _to_changelog(context: Context, node: exp.Expr, relation: Relation, op: str) -> Relation:
    codes: dict[int, str] = {}
    for names, code, place in _mapping(context, node) or [([name], name, node) for name in KINDS]:
        for name in names:
            kind = _kind(context, name, place)
            if kind in codes:
                raise context.error(place, f"the change {name!r} is mapped twice")
            codes[kind] = code
    if relation.find(op):
        raise context.error(node, f"the table has a column {op!r} already", "op => DESCRIPTOR(…) names another one")
    stream = relation.stream.apply(ToChangelog(op, codes))
    columns = [Column(each.name, each.physical, each.table, each.time) for each in relation.columns if not each.hidden]
    return Relation(stream, (Column(op, op), *columns))


def _from_changelog(context: Context, node: exp.Expr, relation: Relation, op: str) -> Relation:
    if is_updating(relation):
        raise context.error(node.args["input"], "FROM_CHANGELOG needs rows that are only added, and its input changes")
    found = relation.find(op)
    if not found:
        raise context.error(
            node, f"the table has no column {op!r}, from which FROM_CHANGELOG reads the kinds of changes",
            did_you_mean(op, [column.name for column in relation.columns], known="columns"),
        )  # fmt: skip
    kinds: dict[str, int] = {}
    for codes, name, place in _mapping(context, node) or [([name], name, node) for name in KINDS]:
        for code in codes:
            if code in kinds:
                raise context.error(place, f"the code {code!r} is mapped twice")
            kinds[code] = _kind(context, name, place)
    stream = relation.stream.apply(FromChangelog(found[0].physical, kinds))
    columns = tuple(
        Column(each.name, each.physical, each.table, each.time) for each in relation.columns if each is not found[0]
    )
    return Relation(stream, columns)


def _op(context: Context, node: exp.Expr) -> str:
    names = node.args.get("op") or []
    if len(names) > 1:
        raise context.error(names[1], "op => DESCRIPTOR(…) names exactly one column")
    return str(names[0].name) if names else "op"


def _kind(context: Context, name: str, place: Any) -> int:
    if name not in KINDS:
        raise context.error(place, f"unknown kind of change {name!r}", did_you_mean(name, list(KINDS), known="kinds"))
    return KINDS[name]


def _mapping(context: Context, node: exp.Expr) -> list[tuple[list[str], str, Any]]:
    """Return (names before, name behind, place) of ``MAP['a, b', 'x', …]``; before it stand one or more, with commas."""
    mapping = node.args.get("op_mapping")
    if mapping is None:
        return []
    return list(_entries(context, mapping))


def _entries(context: Context, mapping: exp.Expr) -> Iterator[tuple[list[str], str, Any]]:
    texts = [each for each in mapping.find_all(exp.Literal) if each.is_string]
    texts.sort(key=lambda each: each.meta.get("start", 0))
    if not texts or len(texts) % 2 or not _is_map(mapping):
        raise context.error(mapping, "op_mapping must be a map of texts", "MAP['INSERT', 'I', 'UPDATE_AFTER', 'U']")
    for before, behind in zip(texts[::2], texts[1::2], strict=True):
        yield [name.strip() for name in before.name.split(",")], behind.name, before


def _is_map(node: exp.Expr) -> bool:
    return node.sql(dialect="flink").upper().startswith("MAP")
