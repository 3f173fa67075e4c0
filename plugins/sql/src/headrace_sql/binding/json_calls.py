"""JSON_OBJECT, JSON_ARRAY and their aggregates, as functions of headrace-columnar."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace_sql.binding.trees import call
from headrace_sql.reading import nodes

if TYPE_CHECKING:
    from headrace_sql.binding.expressions import Translator


def _text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def json_of(self: Translator, node: Any) -> exp.Expr:
    """Return the JSON of a value: a call of these functions, and JSON('…'), is JSON already."""
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(inner, nodes.JsonCall):
        return json_call(self, inner)
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "JSON" and len(inner.expressions) == 1:
        return call("json_raw", self.translate(inner.expressions[0]))
    return call("json_string", self.translate(node))


def json_call(self: Translator, node: nodes.JsonCall) -> exp.Expr:
    """Translate JSON_OBJECT and JSON_ARRAY. Raises ExpressionError."""
    if node.is_aggregate:
        raise self.error(
            node, f"{node.name} is an aggregate function and cannot stand here", "aggregate in SELECT or HAVING"
        )
    keeps_nulls = node.args["nulls"] == "NULL"
    if node.name == "JSON_ARRAY":
        values = [_or_null(json_of(self, each), keeps_nulls) for each in node.expressions]
        made = call("json_join", _text("[]"), *values)
    else:
        made = call("json_join", _text("{}"), *_pairs(self, node.expressions, keeps_nulls))
    made.meta.update(node.meta)
    return made


def _pairs(self: Translator, parts: list[Any], keeps_nulls: bool) -> list[exp.Expr]:
    made: list[exp.Expr] = []
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        name = self.folded(self.translate(key))
        if not isinstance(name, exp.Literal) or not name.is_string:
            raise self.error(key, "JSON_OBJECT: a key must be a constant text")
        before = _text(json.dumps(name.name, ensure_ascii=False) + ":")
        made.append(exp.DPipe(this=before, expression=_or_null(json_of(self, value), keeps_nulls), safe=True))
    return made


def _or_null(made: exp.Expr, keeps_nulls: bool) -> exp.Expr:
    return call("coalesce", made, _text("null")) if keeps_nulls else made


def aggregated_json(self: Translator, node: nodes.JsonCall) -> tuple[exp.Expr, tuple[str, str]]:
    """Return what JSON_ARRAYAGG or JSON_OBJECTAGG collects of a row, and the texts to write around the collected."""
    keeps_nulls = node.args["nulls"] == "NULL"
    if node.name == "JSON_ARRAYAGG":
        if len(node.expressions) != 1:
            raise self.error(node, f"{node.name} takes one value, not {len(node.expressions)}")
        return _or_null(json_of(self, node.expressions[0]), keeps_nulls), ("json_join('[]', ", ")")
    if len(node.expressions) != 2:
        raise self.error(node, f"{node.name} takes one key and one value")
    key, value = node.expressions
    entry = call(
        "named_struct", _text("key"), call("json_key", self.translate(key)), _text("value"), json_of(self, value)
    )
    return entry, ("json_entries(", f", {'true' if keeps_nulls else 'false'})")
