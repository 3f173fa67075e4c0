"""Finds the triggers of a condition in its syntax tree: texts that a row must contain so that the condition can be true.

See ``atoms`` for the parts of a trigger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace_columnar import patterns, regular_expressions
from sqlglot import exp

from headrace_rules.atoms import Atoms, Need, Source, TextAtom, Union, ValueAtom, choice, shared_source
from headrace_rules.letter_case import changed_candidates, has_one_case
from headrace_rules.literals import (
    Candidate,
    Fold,
    any_of,
    literal_candidates,
    regex_candidates,
)

#: Functions whose result is a part of their first argument.
_PARTS = frozenset({"trim", "btrim", "ltrim", "rtrim", "substring", "substr", "mid", "left", "right"})
_LOWER = frozenset({"lower", "lcase"})
_UPPER = frozenset({"upper", "ucase"})
_SEARCHES = frozenset({"contains", "startswith", "starts_with", "endswith", "ends_with"})
_REGEX_SEARCHES = frozenset({"regexp_like", "regexp", "rlike"})


def need_of(node: exp.Expr, schema: Schema, functions: Mapping[str, Any]) -> Need | None:
    """Return the need of a condition; None if none is found, for example because the condition does not compile."""
    try:
        return _Finder(schema, functions).find(node)
    except regular_expressions.PatternError:
        return None


def equality_of(node: exp.Expr, schema: Schema, functions: Mapping[str, Any]) -> ValueAtom | None:
    """Return the atom that is equivalent to a condition ``column = constant``; None for any other condition."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.EQ):
        return None
    finder = _Finder(schema, functions)
    left: Any = node.left
    right: Any = node.right
    return finder.equality(left, right) or finder.equality(right, left)


@dataclass(frozen=True, slots=True)
class _Text:
    """A value that comes of a text column: how the case of its letters was changed, and whether it is the whole text."""

    source: Source
    fold: Fold = Fold.EXACT
    whole: bool = True


class _Finder:
    def __init__(self, schema: Schema, functions: Mapping[str, Any]) -> None:
        self._schema = schema
        self._functions = functions

    def find(self, node: Any) -> Need | None:
        if isinstance(node, exp.Paren):
            return self.find(node.this)
        if isinstance(node, exp.And):
            return choice([need for part in operands(node) if (need := self.find(part)) is not None])
        if isinstance(node, exp.Or):
            needs = [self.find(part) for part in operands(node)]
            found = [need for need in needs if need is not None]
            return Union(tuple(found)) if len(found) == len(needs) else None
        if node.args.get("negate"):
            return None
        if isinstance(node, exp.EQ | exp.NullSafeEQ):
            return self._equality(node)
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Escape):
            return self._pattern(node.this, _text_of(node.expression))
        if isinstance(node, exp.Like | exp.ILike | exp.SimilarTo | exp.RegexpLike):
            return self._pattern(node, None)
        if isinstance(node, exp.Anonymous):
            return self._call(node)
        return None

    # ---------------------------------------------------------------------------------------------- comparisons

    def _equality(self, node: exp.Binary) -> Need | None:
        for value, constant in ((node.left, node.right), (node.right, node.left)):
            need = self._equals(value, constant)
            if need is not None:
                return need
        return None

    def _equals(self, value: Any, constant: Any) -> Need | None:
        atom = self.equality(value, constant)
        if atom is not None:
            return Atoms(frozenset({atom}))
        text = _text_of(constant)
        return None if text is None else self._contains(value, text, first=True, last=True)

    def equality(self, value: Any, constant: Any) -> ValueAtom | None:
        """Return the atom that is equivalent to ``value = constant``, for a column and a constant of its type; else None.

        The value may be a column of whole numbers that is cast to text, the constant a text of digits.
        """
        while isinstance(value, exp.Paren):
            value = value.this
        cast = is_cast_to_text(value)
        found = self._path(value.this if cast else value)
        if found is None:
            return None
        source, kind = found
        text, number = _text_of(constant), _whole_number_of(constant)
        if cast and text is not None and kind.is_integer():
            number = _written_number(text)
        if text is not None and isinstance(kind, pl.String):
            return ValueAtom(source, text)
        if number is not None and kind.is_integer():
            return ValueAtom(source, number)
        return None

    def _in(self, node: exp.In) -> Need | None:
        if not node.expressions or len(node.expressions) > 1000:
            return None
        # If NULL is one of the items, the condition is NULL instead of FALSE where no item is equal: it has no trigger.
        needs = [self._equals(node.this, item) for item in node.expressions]
        found = [need for need in needs if need is not None]
        return Union(tuple(found)) if len(found) == len(needs) else None

    # ------------------------------------------------------------------------------------------------- patterns

    def _pattern(self, node: Any, escape: str | None) -> Need | None:
        right = node.expression
        if node.args.get("negate"):
            return None
        if not isinstance(right, exp.Any | exp.All):
            pattern = _text_of(right)
            return None if pattern is None else self._matches(type(node), node.this, pattern, escape)
        items = right.this.expressions if isinstance(right.this, exp.Tuple) else [right.this.unnest()]
        texts = [_text_of(item) for item in items]
        needs = [None if text is None else self._matches(type(node), node.this, text, escape) for text in texts]
        found = [need for need in needs if need is not None]
        if isinstance(right, exp.All):
            return choice(found)
        return Union(tuple(found)) if found and len(found) == len(needs) else None

    def _matches(self, kind: type[exp.Expr], value: Any, pattern: str, escape: str | None) -> Need | None:
        source = self._text_source(value)
        if source is None:
            return None
        if kind in (exp.Like, exp.ILike):
            return self._like(source, patterns.split_like(pattern, escape), ignores_case=kind is exp.ILike)
        regex = patterns.similar_regex(pattern, escape) if kind is exp.SimilarTo else pattern
        return self._regex(source, regex)

    def _like(self, source: _Text, parts: list[str | None], *, ignores_case: bool) -> Need | None:
        if ignores_case:
            if source.fold is Fold.UPPER:
                return None  # upper() and then lower(): both sets of special characters would be needed
            source = replace(source, fold=Fold.LOWER)
            parts = [patterns.lower(part) if part else part for part in parts]
        texts = [part for part in parts if part]
        if parts == texts and source.whole:
            text = "".join(texts)
            if source.fold is Fold.EXACT or has_one_case(text, source.fold):
                return Atoms(frozenset({ValueAtom(source.source, text)}))
        candidates: list[Candidate] = []
        for place, part in enumerate(parts):
            if part:
                first, last = place == 0 and source.whole, place == len(parts) - 1 and source.whole
                candidates += _candidates(part, source.fold, first=first, last=last)
        return self._atoms(source, candidates)

    def _regex(self, source: _Text, pattern: str) -> Need | None:
        candidates = regex_candidates(pattern, python=regular_expressions.engine(pattern) == "backtracking")
        if source.fold is not Fold.EXACT:
            folded = []
            for candidate in candidates:
                # Of each literal its longest part that can be folded is looked for; every literal must have such a part.
                found = any_of([literal_candidates(literal.text, folded=True)[:1] for literal in candidate])
                folded += found
            candidates = folded
        return self._atoms(source, candidates, folded_by_pattern=True)

    def _contains(self, value: Any, text: str, *, first: bool = False, last: bool = False) -> Need | None:
        source = self._text_source(value)
        if source is None:
            return None
        first, last = first and source.whole, last and source.whole
        return self._atoms(source, _candidates(text, source.fold, first=first, last=last))

    def _atoms(self, source: _Text, candidates: list[Candidate], *, folded_by_pattern: bool = False) -> Need | None:
        place, fold = source.source, source.fold
        needs: list[Need] = []
        for candidate in candidates:
            atoms = set()
            for literal in candidate:
                if literal.folded and fold is Fold.UPPER and folded_by_pattern:
                    return None  # upper() and then a comparison without regard to case would need both sets of special characters
                kind = (Fold.ANY if folded_by_pattern else fold) if literal.folded else Fold.EXACT
                atoms.add(TextAtom(place, literal.text, kind, literal.first, literal.last))
            needs.append(Atoms(frozenset(atoms)))
        return choice(needs)

    # -------------------------------------------------------------------------------------------------- sources

    def _call(self, node: exp.Anonymous) -> Need | None:
        name = self._name(node)
        arguments = node.expressions
        if name in _SEARCHES and len(arguments) == 2:
            text = _text_of(arguments[1])
            first, last = name.startswith("starts"), name.startswith("ends")
            return None if text is None else self._contains(arguments[0], text, first=first, last=last)
        if name in _REGEX_SEARCHES and len(arguments) == 2:
            pattern = _text_of(arguments[1])
            source = self._text_source(arguments[0])
            return None if pattern is None or source is None else self._regex(source, pattern)
        return None

    def _name(self, node: Any) -> str:
        """Return the name of a built-in function; "" for a user function, which may have the name of a built-in one."""
        name = (node.this if isinstance(node.this, str) else node.this.name).lower()
        return "" if name in self._functions else name

    def _text_source(self, node: Any) -> _Text | None:
        """Return the text column of which a value is a part."""
        if isinstance(node, exp.Paren):
            return self._text_source(node.this)
        if isinstance(node, exp.Anonymous) and node.expressions:
            name = self._name(node)
            inner = self._text_source(node.expressions[0])
            if inner is None:
                return None
            if name in _PARTS:
                # Whether the text is cut before or after a change of case, the part that is left is contained in the source.
                return replace(inner, whole=False)
            fold = Fold.LOWER if name in _LOWER else Fold.UPPER if name in _UPPER else None
            if fold is None or len(node.expressions) != 1 or inner.fold not in (Fold.EXACT, fold):
                return None
            return replace(inner, fold=fold)
        if is_cast_to_text(node):
            return self._text_source(node.this)  # of a cast the source is a column of texts: any other gives none
        if isinstance(node, exp.Trim | exp.Substring):
            inner = self._text_source(node.this)
            return None if inner is None else replace(inner, whole=False)
        found = self._path(node)
        return None if found is None or not isinstance(found[1], pl.String) else _Text(found[0])

    def _path(self, node: Any) -> tuple[Source, pl.DataType] | None:
        """Return the column or field that a node names, and its type."""
        if isinstance(node, exp.Paren):
            return self._path(node.this)
        if isinstance(node, exp.Identifier):
            names = [node.name]
        elif isinstance(node, exp.Column):
            names = [part.name for part in node.parts]
        else:
            return None
        kind: Any = self._schema.get(names[0])
        for name in names[1:]:
            if not isinstance(kind, pl.Struct):
                return None
            kind = next((field.dtype for field in kind.fields if field.name == name), None)
        if kind is None:
            return None
        return shared_source(*names), kind if isinstance(kind, pl.DataType) else kind()


def _candidates(text: str, fold: Fold, *, first: bool, last: bool) -> list[Candidate]:
    if fold is Fold.EXACT:
        return literal_candidates(text, first=first, last=last)
    return changed_candidates(text, fold, first=first, last=last)


def operands(node: exp.Binary) -> list[exp.Expr]:
    """Return the operands of a chain ``a AND b AND c …`` in order, however long; without brackets around chains."""
    found: list[exp.Expr] = []
    waiting: list[Any] = [node]
    while waiting:
        one = waiting.pop()
        inside = one
        while isinstance(inside, exp.Paren):
            inside = inside.this
        if type(inside) is type(node):
            waiting += [inside.right, inside.left]
        else:
            found.append(one)
    return found


def _text_of(node: Any) -> str | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def is_cast_to_text(node: Any) -> bool:
    """Return whether a node is a cast to text of any length."""
    return isinstance(node, exp.Cast) and node.to.this is exp.DType.TEXT and not node.to.expressions


def _written_number(text: str) -> int | None:
    """Return the whole number that a cast to text writes as this text; None if there is none."""
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 19:
        return None
    value = int(text)
    return value if str(value) == text and -(2**63) <= value < 2**63 else None


def _whole_number_of(node: Any) -> int | None:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Neg):
        inner = _whole_number_of(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Literal) or node.is_string or not str(node.this).isdigit():
        return None
    value = int(node.this)
    return value if value < 2**63 else None
