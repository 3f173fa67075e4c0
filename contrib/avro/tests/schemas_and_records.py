"""Schemas and records of them, drawn by hypothesis."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

Drawn = st.SearchStrategy[Any]
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string", "null")


@st.composite
def schemas(draw: st.DrawFn, *, unions: bool = True) -> dict[str, Any]:
    """Return a record with up to six fields. ``unions``: among them unions of several types and maps."""
    counter = iter(range(1_000))
    return _record(draw, 2, counter, unions, low=1, high=6)


def _record(draw: st.DrawFn, depth: int, counter: Any, unions: bool, *, low: int, high: int) -> dict[str, Any]:
    count = draw(st.integers(low, high))
    fields = [{"name": f"f{number}", "type": _type(draw, depth, counter, unions)} for number in range(count)]
    return {"type": "record", "name": f"r{next(counter)}", "fields": fields}


def _type(draw: st.DrawFn, depth: int, counter: Any, unions: bool) -> Any:
    kinds = ["primitive", "primitive", "nullable", "enum", "fixed"]
    if depth:
        kinds += ["array", "record", *(["union", "map"] if unions else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "nullable":
        other = _type(draw, depth, counter, unions)
        if isinstance(other, list) or other == "null":
            return other
        return draw(st.sampled_from([["null", other], [other, "null"]]))
    if kind == "enum":
        return {"type": "enum", "name": f"e{next(counter)}", "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
    if kind == "fixed":
        return {"type": "fixed", "name": f"x{next(counter)}", "size": draw(st.integers(0, 17))}
    if kind == "array":
        return {"type": "array", "items": _type(draw, depth - 1, counter, unions)}
    if kind == "map":
        return {"type": "map", "values": _type(draw, depth - 1, counter, unions)}
    if kind == "record":
        return _record(draw, depth - 1, counter, unions, low=1, high=3)
    if kind == "union":
        return ["null", "long", "string"]
    # A column of nothing but NULLs within another has no type.
    return draw(st.sampled_from(_PRIMITIVES if depth == 2 else _PRIMITIVES[:-1]))


def values(schema: Any) -> Drawn:
    """Return values of a type, as fastavro writes them."""
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    simple: dict[str, Drawn] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-70, 70)),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=20),
        "string": st.text(max_size=20),
    }
    return simple[kind]


def promoted(kind: Any) -> Drawn:
    """Return types that values of a type can be read as."""
    wider = {
        "int": ["int", "long", "float", "double"],
        "long": ["long", "float", "double"],
        "float": ["float", "double"],
        "string": ["string", "bytes"],
        "bytes": ["bytes", "string"],
    }
    if isinstance(kind, str):
        return st.sampled_from(wider.get(kind, [kind])).flatmap(
            lambda each: st.sampled_from([each] if each == "null" else [each, ["null", each]])
        )
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        return st.sampled_from([kind, kind[::-1], kind[0] if kind[1] == "null" else kind[1]])
    return st.just(kind)


def same(one: Any, other: Any) -> bool:
    """Return whether two decoded values are the same; NaN is itself."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other) and type(one) is type(other)
