"""Expressions of MATCH_RECOGNIZE as source text of Python, with SQL's logic of NULL.

A condition is asked for being true, so ``AND``, ``OR`` and ``NOT`` become those of Python around two questions: whether a part is
true and whether it is false. The text holds names that are made here, whole numbers, and nothing of the query: constants are
handed over by reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from headrace_sql.operators.match_values import AGGREGATED, BINARY, HELPERS, Node, constant

_COMPARED = {">": ">", ">=": ">=", "<": "<", "<=": "<=", "=": "==", "<>": "!="}
_CALCULATED = ("+", "-", "*", "/")
_FAMILIES: Mapping[type[Any], str] = {int: "int", float: "float", Decimal: "decimal"}
_LOGICAL = ("and", "or", "not", "null")


def leaves(node: Node) -> Iterator[Node]:
    """Yield the parts of an expression that read rows: (aggregate, variable, column, distance)."""
    if node[0] in AGGREGATED:
        yield node
        return
    for part in node[1:]:
        if isinstance(part, tuple):
            yield from leaves(part)


class Source:
    """Writes expressions. ``leaf``: the text of a part that reads rows, "None" when it is always NULL; ``kinds``: types of columns.

    ``names`` is what the text refers to: it is added to, and to be the globals of the text.
    """

    def __init__(
        self, leaf: Callable[[Node], str], kinds: Mapping[str, pl.DataType], names: dict[str, Any]
    ) -> None:  # fmt: skip
        self.leaf = leaf
        self._kinds = kinds
        self.names = names
        names.update(HELPERS)
        self._made = 0

    def value(self, node: Node) -> str:
        """Return the text of a value; NULL is None."""
        kind = node[0]
        if kind in AGGREGATED:
            return self.leaf(node)
        if kind == "value":
            return self._constant(node[1])
        if kind == "interval":
            return self._constant(timedelta(microseconds=node[1]))
        if kind == "call":
            return self._call(node)
        if kind == "case":
            text = self.value(node[-1])
            for at in range(len(node) - 3, 0, -2):
                text = f"({self.value(node[at + 1])} if {self.is_true(node[at])} else {text})"
            return text
        if kind == "null":
            return self.is_true(node)
        if kind in _LOGICAL:
            return f"(True if {self.is_true(node)} else False if {self.is_false(node)} else None)"
        checks, text = self._binary(node)
        return text if not checks else f"({text} if {' and '.join(checks)} else None)"

    def is_true(self, node: Node) -> str:
        """Return the text of a condition that holds when a value is true."""
        kind = node[0]
        if kind == "and":
            return f"({self.is_true(node[1])} and {self.is_true(node[2])})"
        if kind == "or":
            return f"({self.is_true(node[1])} or {self.is_true(node[2])})"
        if kind == "not":
            return self.is_false(node[1])
        if kind == "null":
            return "False" if self._is_never_null(node[1]) else f"({self.value(node[1])} is None)"
        if kind in _COMPARED:
            checks, text = self._binary(node)
            return "False" if text == "None" else f"({' and '.join([*checks, text])})"
        return f"({self.value(node)} is True)"

    def is_false(self, node: Node) -> str:
        """Return the text of a condition that holds when a value is false; not for NULL."""
        kind = node[0]
        if kind == "and":
            return f"({self.is_false(node[1])} or {self.is_false(node[2])})"
        if kind == "or":
            return f"({self.is_false(node[1])} and {self.is_false(node[2])})"
        if kind == "not":
            return self.is_true(node[1])
        if kind == "null":
            return "True" if self._is_never_null(node[1]) else f"({self.value(node[1])} is not None)"
        if kind in _COMPARED:
            checks, text = self._binary(node)
            return "False" if text == "None" else f"({' and '.join([*checks, f'not {text}'])})"
        return f"({self.value(node)} is False)"

    def _binary(self, node: Node) -> tuple[list[str], str]:
        """Return what must hold for an operator to have a value, and the text of that; "None" if it has never one."""
        checks, operands = [], []
        for part in node[1:]:
            text = self.value(part)
            if text == "None":
                return [], "None"
            if not self._is_never_null(part):
                name = self._new("x")
                checks.append(f"({name} := {text}) is not None")
                text = name
            operands.append(text)
        kind, families = node[0], {self.family(part) for part in node[1:]}
        if kind == "/" or "unknown" in families or {"decimal", "float"} <= families:
            name = f"operator_{list(BINARY).index(kind)}"
            self.names[name] = BINARY[kind]
            return checks, f"{name}({operands[0]}, {operands[1]})"
        return checks, f"({operands[0]} {_COMPARED.get(kind, kind)} {operands[1]})"

    @staticmethod
    def _is_never_null(node: Node) -> bool:
        return node[0] in ("interval", "null", "COUNT") or (node[0] == "value" and node[1] is not None)

    def family(self, node: Node) -> str:
        """Return which numbers an expression gives: "int", "float", "decimal", "other" for no numbers, or "unknown"."""
        kind = node[0]
        if kind == "COUNT":
            return "int"
        if kind in AGGREGATED:
            return _family(self._kinds[node[2]])
        if kind == "value":
            return "int" if isinstance(node[1], int) and not isinstance(node[1], bool) else "other"
        if kind == "call":
            known, value = constant(node)
            return _FAMILIES.get(type(value), "other") if known else "unknown"
        if kind == "case":
            return "unknown"
        if kind not in _CALCULATED:
            return "other"
        found = {self.family(part) for part in node[1:]}
        for wanted in ("unknown", "other", "float", "decimal"):
            if wanted in found:
                return wanted
        return "int"

    def _call(self, node: Node) -> str:
        _, text, kinds, *parts = node
        known, value = constant(node)
        if known:
            return self._constant(value)
        arguments = ", ".join(self.value(part) for part in parts)
        return f"called({self._constant(text)}, {self._constant(kinds)}, [{arguments}])"

    def _constant(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int):
            return repr(value)
        name = self._new("k")
        self.names[name] = value
        return name

    def _new(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"


def _family(kind: pl.DataType) -> str:
    if kind.is_integer():
        return "int"
    return "decimal" if isinstance(kind, pl.Decimal) else "float" if kind.is_float() else "other"


def made(name: str, lines: Sequence[str], names: dict[str, Any]) -> Any:
    """Return the function ``name`` of a source text that was written here."""
    text = "\n".join(lines)
    code = compile(text, f"<{name} of MATCH_RECOGNIZE>", "exec")
    exec(code, names)
    return names[name]
