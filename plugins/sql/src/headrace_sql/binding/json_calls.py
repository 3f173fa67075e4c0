"""JSON_OBJECT, JSON_ARRAY and their aggregates, as functions of headrace-columnar."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from headrace_sql.binding import types
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
            node, f"{node.name} is an aggregate function, which is not allowed here", "aggregate in SELECT or HAVING"
        )
    keeps_nulls = node.args["nulls"] == "NULL"
    if node.name == "JSON_ARRAY":
        values = [_or_null(json_of(self, each), keeps_nulls) for each in node.expressions]
        made = call("json_join", _text("[]"), *values)
    else:
        made = _object(self, node.expressions, keeps_nulls)
    made.meta.update(node.meta)
    return made


def _object(self: Translator, parts: list[Any], keeps_nulls: bool) -> exp.Expr:
    """Return an object with its keys in order; of equal keys the last counts, and where NULL is left out, the last that is not."""
    keys = [_key(self, each) for each in parts[::2]]
    values = [_or_null(json_of(self, each), keeps_nulls) for each in parts[1::2]]
    if not all(isinstance(key, exp.Literal) for key in keys):
        entries = [_entry(key, value) for key, value in zip(keys, values, strict=True)]
        return call("json_entries", call("array", *entries), exp.Boolean(this=keeps_nulls))
    found: dict[str, list[exp.Expr]] = {}
    for key, value in zip(keys, values, strict=True):
        found.setdefault(key.name, []).insert(0, value)
    pairs = []
    for name in sorted(found, key=lambda each: each.encode("utf-16-be")):  # as Java compares texts
        value = found[name][0] if keeps_nulls or len(found[name]) == 1 else call("coalesce", *found[name])
        before = _text(json.dumps(name, ensure_ascii=False) + ":")
        pairs.append(exp.DPipe(this=before, expression=value, safe=True))
    return call("json_join", _text("{}"), *pairs)


def _key(self: Translator, node: Any) -> exp.Expr:
    """Return a key of JSON_OBJECT: a literal if it is constant. Raises ExpressionError for a key that is not a text."""
    kind = self.type_of(node)
    if not isinstance(kind, pl.String):
        raise _no_text(self, node, "JSON_OBJECT", kind)
    made: exp.Expr = self.folded(self.translate(node))
    return made


def _no_text(self: Translator, node: Any, name: str, kind: pl.DataType) -> Exception:
    return self.error(node, f"{name}: a key must be text, not {types.word_for(kind) or kind}", "CAST(… AS STRING)")


def _entry(key: exp.Expr, value: exp.Expr) -> exp.Expr:
    return call("named_struct", _text("key"), call("json_key", key), _text("value"), value)


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
    kind = self.type_of(key)
    if isinstance(kind, pl.Boolean):  # true, or TRUE as CAST writes it?
        raise _no_text(self, key, node.name, kind)
    entry = _entry(self.translate(key), json_of(self, value))
    return entry, ("json_entries(", f", {'true' if keeps_nulls else 'false'})")
