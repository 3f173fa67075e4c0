"""Conditions as Python functions of one row, for the few rows in which a rule's trigger was found.

Most of these functions have their constants as defaults of arguments. A closure would need three or four more objects,
which the garbage collector has to visit, for each of thousands of rules.

A condition becomes such a function only if it means exactly the same in Python as in headrace_columnar: comparisons of
texts, whole numbers and booleans, IN, LIKE and ILIKE without ``_``, IS, AND, OR, NOT, with three-valued logic. Texts and numbers
that functions compute (``lower(cmdline)``), and the lower case that ILIKE compares, are computed for all those rows at once and read
like one more column.
headrace_columnar evaluates all other conditions (``NotNativeError``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace_columnar import regular_expressions
from headrace_columnar.expressions import compile_node
from headrace_columnar.functions.web import Networks, is_network
from sqlglot import exp

from headrace_rules.slots import NotNativeError, Slots
from headrace_rules.text_conditions import Condition, contains, ends, equals, like, like_any, listed, starts
from headrace_rules.triggers import is_cast_to_text, operands

_Value = Callable[[Sequence[Any]], Any]
_Comparison = Callable[[Any, Any], bool]

_COMPUTED = frozenset({
    "lower", "lcase", "upper", "ucase", "trim", "btrim", "ltrim", "rtrim", "length", "char_length", "character_length",
    "left", "right", "substring", "substr", "octet_length",
})  # fmt: skip
_COMPARISONS: Mapping[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt,
    exp.GTE: operator.ge,
}  # fmt: skip


def native_condition(
    node: Any, slots: Slots, schema: Schema, functions: Mapping[str, Any], text: str
) -> tuple[Condition, int, frozenset[int]]:
    """Return a condition as a function of a row, a rough cost, and the slots that it reads.

    Raises NotNativeError for any other condition, also for every condition that headrace_columnar would refuse.
    """
    try:
        builder = _Builder(slots, schema, functions, text)
        condition, cost = builder.condition(node)
        return condition, cost, frozenset(builder.read)
    except regular_expressions.PatternError as error:
        raise NotNativeError from error


class _Builder:
    def __init__(self, slots: Slots, schema: Schema, functions: Mapping[str, Any], text: str) -> None:
        self._slots = slots
        self._schema = schema
        self._functions = functions
        self._text = text
        #: The slots that the condition reads.
        self.read: set[int] = set()

    def condition(self, node: Any) -> tuple[Condition, int]:
        if isinstance(node, exp.Paren):
            return self.condition(node.this)
        if isinstance(node, exp.Or):
            return self._any_of(operands(node))
        if isinstance(node, exp.And):
            parts = sorted((self.condition(part) for part in operands(node)), key=lambda part: part[1])
            return _all([part[0] for part in parts]), sum(part[1] for part in parts)
        if isinstance(node, exp.Not):
            inner, cost = self.condition(node.this)
            return _not(inner), cost + 1
        if isinstance(node, exp.Boolean):
            value = bool(node.this)
            return (lambda row, value=value: value), 0
        if node.args.get("negate"):
            return self._negated(node)
        if type(node) in _COMPARISONS:
            return self._comparison(node), 2
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            return handler(self, node)
        if isinstance(node, exp.Column | exp.Identifier):
            read, kind, _ = self._value(node)
            if kind != "boolean":
                raise NotNativeError
            return read, 1
        raise NotNativeError

    def _negated(self, node: Any) -> tuple[Condition, int]:
        if not isinstance(node, exp.In | exp.Like | exp.ILike) or isinstance(
            node.args.get("expression"), exp.Any | exp.All
        ):
            raise NotNativeError
        inner, cost = _HANDLERS[type(node)](self, node)
        return _not(inner), cost

    # ------------------------------------------------------------------------------------------------- values

    def _value(self, node: Any) -> tuple[_Value, str, int]:
        """Return how to read a value, what kind it is (text, integer, boolean), and its slot."""
        node = self._bare(node)
        if isinstance(node, exp.Identifier) or (isinstance(node, exp.Column) and len(node.parts) == 1):
            if node.name not in self._schema:
                raise NotNativeError
            slot, kind = self._slots.column(node.name, self._schema[node.name])
        elif isinstance(node, exp.Column) or self._is_computed(node):
            slot, kind = self._computed(node)
        else:
            raise NotNativeError
        self.read.add(slot)
        return operator.itemgetter(slot), kind, slot

    def _bare(self, node: Any) -> Any:
        """Return a value without brackets, and without a cast of a column of texts to text."""
        while isinstance(node, exp.Paren) or is_cast_to_text(node):
            inside = node.this
            while isinstance(inside, exp.Paren):
                inside = inside.this
            if isinstance(node, exp.Cast) and not self._is_text_column(inside):
                return node
            node = inside
        return node

    def _is_text_column(self, node: Any) -> bool:
        is_column = isinstance(node, exp.Identifier) or (isinstance(node, exp.Column) and len(node.parts) == 1)
        return is_column and isinstance(self._schema.get(node.name), pl.String)

    def _text_slot(self, node: Any, lowered: bool) -> int:
        """Return the slot of a text, or of its lower case."""
        if not lowered:
            _, kind, slot = self._value(node)
            if kind != "text":
                raise NotNativeError
            return slot
        node = self._bare(node)
        key = f"lower case of {node!r}"
        found = self._slots.find(key)
        if found is None:
            compiled = compile_node(node, self._text, self._schema, self._functions)
            if compiled.can_fail or not compiled.deterministic or not isinstance(compiled.data_type, pl.String):
                raise NotNativeError
            if not compiled.columns:
                raise NotNativeError
            found = self._slots.lowered(key, compiled)
        self.read.add(found[0])
        return found[0]

    def _computed(self, node: exp.Expr) -> tuple[int, str]:
        key = repr(node)
        found = self._slots.find(key)
        if found is not None:
            return found
        compiled = compile_node(node, self._text, self._schema, self._functions)
        if compiled.can_fail or not compiled.deterministic:
            raise NotNativeError
        return self._slots.computed(key, compiled)

    def _is_computed(self, node: Any) -> bool:
        if isinstance(node, exp.Trim | exp.Substring | exp.Cast):
            return True
        if not isinstance(node, exp.Anonymous):
            return False
        name = (node.this if isinstance(node.this, str) else node.this.name).lower()
        return name in _COMPUTED and name not in self._functions

    def _constant(self, node: Any, kind: str) -> Any:
        """Return the value of a literal of that kind. Raises NotNativeError for anything else."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Literal):
            if node.is_string and kind == "text":
                return str(node.this)
            if not node.is_string and kind == "integer" and str(node.this).isdigit() and int(node.this) < 2**63:
                return int(node.this)
        if isinstance(node, exp.Neg) and kind == "integer":
            return -self._constant(node.this, kind)
        if isinstance(node, exp.Boolean) and kind == "boolean":
            return bool(node.this)
        raise NotNativeError

    # --------------------------------------------------------------------------------------------- conditions

    def _comparison(self, node: exp.Binary) -> Condition:
        compare = _COMPARISONS[type(node)]
        left, right = node.left, node.right
        try:
            _, kind, slot = self._value(left)
            constant = self._constant(right, kind)
        except NotNativeError:
            try:
                _, kind, slot = self._value(right)
                constant = self._constant(left, kind)
            except NotNativeError:
                return self._comparison_of_columns(compare, left, right)
            compare = _MIRRORED[compare]
        return _compared_with_constant(compare, slot, constant)

    def _comparison_of_columns(self, compare: _Comparison, left: Any, right: Any) -> Condition:
        first, first_kind, _ = self._value(left)
        second, second_kind, _ = self._value(right)
        if first_kind != second_kind:
            raise NotNativeError

        def compared(
            row: Sequence[Any], first: _Value = first, second: _Value = second, compare: _Comparison = compare
        ) -> bool | None:
            one, other = first(row), second(row)
            return None if one is None or other is None else compare(one, other)

        return compared

    def _between(self, node: exp.Between) -> tuple[Condition, int]:
        if node.args.get("symmetric"):
            raise NotNativeError
        _, kind, slot = self._value(node.this)
        low, high = self._constant(node.args["low"], kind), self._constant(node.args["high"], kind)

        def within(row: Sequence[Any], slot: int = slot, low: Any = low, high: Any = high) -> bool | None:
            value = row[slot]
            return None if value is None else low <= value <= high

        return within, 2

    def _in(self, node: exp.In) -> tuple[Condition, int]:
        if not node.expressions:
            raise NotNativeError
        _, kind, slot = self._value(node.this)
        known = [item for item in node.expressions if not isinstance(item, exp.Null)]
        items = frozenset(self._constant(item, kind) for item in known)
        elsewhere = None if len(known) < len(node.expressions) else False

        return listed(slot, items, elsewhere), 2

    def _is(self, node: exp.Is) -> tuple[Condition, int]:
        if isinstance(node.expression, exp.Null):
            read, _, _ = self._value(node.this)
            return (lambda row, read=read: read(row) is None), 1
        if isinstance(node.expression, exp.Boolean):
            inner, cost = self.condition(node.this)
            wanted = bool(node.expression.this)
            return (lambda row, inner=inner, wanted=wanted: inner(row) is wanted), cost
        raise NotNativeError

    def _escaped(self, node: exp.Escape) -> tuple[Condition, int]:
        inner = node.this
        if not isinstance(inner, exp.Like | exp.ILike):
            raise NotNativeError
        escape = self._constant(node.expression, "text")
        if not inner.args.get("negate"):
            return self._like(inner, escape)
        if isinstance(inner.expression, exp.Any | exp.All):
            raise NotNativeError
        condition, cost = self._like(inner, escape)
        return _not(condition), cost

    def _like(self, node: exp.Expr, escape: str | None = None) -> tuple[Condition, int]:
        lowered = isinstance(node, exp.ILike)
        if isinstance(node.expression, exp.Any | exp.All):
            return self._like_quantified(node, escape, lowered)
        made = like(
            self._text_slot(node.this, lowered), self._constant(node.expression, "text"), escape, lowered=lowered
        )
        if made is None:
            raise NotNativeError
        return made, 3

    def _like_quantified(self, node: exp.Expr, escape: str | None, lowered: bool) -> tuple[Condition, int]:
        quantified = node.expression
        items = quantified.this.expressions if isinstance(quantified.this, exp.Tuple) else [quantified.this.unnest()]
        slot = self._text_slot(node.this, lowered)
        given = [self._constant(item, "text") for item in items]
        if isinstance(quantified, exp.All):
            every = [like(slot, pattern, escape, lowered=lowered) for pattern in given]
            found = [one for one in every if one is not None]
            if len(found) < len(every):
                raise NotNativeError
            return _all(found), 3 * len(found)
        some = like_any(slot, given, escape, lowered=lowered)
        if some is None:
            raise NotNativeError
        return _any(some), 3 * len(some)

    def _in_networks(self, address: Any, networks: Sequence[Any]) -> tuple[Condition, int]:
        wanted = [self._constant(network, "text") for network in networks]
        if not all(map(is_network, wanted)):
            raise NotNativeError
        return _compared_with_networks(self._text_slot(address, lowered=False), wanted), 4

    def _any_of(self, parts: Sequence[Any]) -> tuple[Condition, int]:
        """Return OR as a function. Tests of one address for several networks are one."""
        networks: dict[str, list[Any]] = {}
        others = []
        for part in parts:
            if self._is_in_network(part):
                networks.setdefault(repr(part.expressions[0]), []).append(part)
            else:
                others.append(part)
        found = [self.condition(part) for part in others]
        for calls in networks.values():
            found.append(self._in_networks(calls[0].expressions[0], [call.expressions[1] for call in calls]))
        found.sort(key=lambda one: one[1])
        return _any([one[0] for one in found]), sum(one[1] for one in found)

    def _is_in_network(self, node: Any) -> bool:
        if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2:
            return False
        name = (node.this if isinstance(node.this, str) else node.this.name).lower()
        return name in _IN_NETWORK and name not in self._functions

    def _call(self, node: exp.Anonymous) -> tuple[Condition, int]:
        name = (node.this if isinstance(node.this, str) else node.this.name).lower()
        if name in self._functions or len(node.expressions) != 2:
            raise NotNativeError
        if name in _IN_NETWORK:
            return self._in_networks(node.expressions[0], node.expressions[1:])
        make = _SEARCHES.get(name)
        if make is None:
            raise NotNativeError
        _, kind, slot = self._value(node.expressions[0])
        if kind != "text":
            raise NotNativeError
        return make(slot, self._constant(node.expressions[1], "text")), 3


def _compared_with_networks(slot: int, networks: Sequence[str]) -> Condition:
    made = Networks(networks)

    def within(row: Sequence[Any], slot: int = slot, hold: Callable[[str], bool | None] = made.hold) -> bool | None:
        value = row[slot]
        return None if value is None else hold(value)

    return within


def _compared_with_constant(compare: _Comparison, slot: int, constant: Any) -> Condition:
    if compare is operator.eq:
        return equals(slot, constant)

    def compared(
        row: Sequence[Any], slot: int = slot, compare: _Comparison = compare, constant: Any = constant
    ) -> bool | None:
        value = row[slot]
        return None if value is None else compare(value, constant)

    return compared


_IN_NETWORK = frozenset({"ip_in_cidr", "cidr_match"})
_MIRRORED: Mapping[Callable[[Any, Any], bool], Callable[[Any, Any], bool]] = {
    operator.eq: operator.eq, operator.ne: operator.ne, operator.lt: operator.gt, operator.le: operator.ge,
    operator.gt: operator.lt, operator.ge: operator.le,
}  # fmt: skip


def _all(parts: Sequence[Condition]) -> Condition:
    if len(parts) == 1:
        return parts[0]

    def every(row: Sequence[Any], parts: Sequence[Condition] = parts) -> bool | None:
        unknown = False
        for part in parts:
            found = part(row)
            if found is None:
                unknown = True
            elif not found:
                return False
        return None if unknown else True

    return every


def _any(parts: Sequence[Condition]) -> Condition:
    if len(parts) == 1:
        return parts[0]

    def some(row: Sequence[Any], parts: Sequence[Condition] = parts) -> bool | None:
        unknown = False
        for part in parts:
            found = part(row)
            if found:
                return True
            if found is None:
                unknown = True
        return None if unknown else False

    return some


def _not(inner: Condition) -> Condition:
    def negated(row: Sequence[Any], inner: Condition = inner) -> bool | None:
        found = inner(row)
        return None if found is None else not found

    return negated


_SEARCHES: Mapping[str, Callable[[int, str], Condition]] = {
    "contains": contains, "startswith": starts, "starts_with": starts, "endswith": ends, "ends_with": ends,
}  # fmt: skip
_HANDLERS: Mapping[type[exp.Expr], Callable[[_Builder, Any], tuple[Condition, int]]] = {
    exp.Between: _Builder._between, exp.In: _Builder._in, exp.Is: _Builder._is, exp.Like: _Builder._like,
    exp.ILike: _Builder._like,
    exp.Escape: _Builder._escaped, exp.Anonymous: _Builder._call,
}  # fmt: skip
