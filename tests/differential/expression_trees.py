"""Random expressions: every function of the table, operators, casts and special forms, over hostile columns.

Trees grow from the leaves: each step joins parts that are there already, so that their types are known, and compiles what
it has made. What the compiler refuses by an ExpressionError is left out; another exception is a bug.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar import registry
from headrace_columnar.expressions import CompiledExpression, compile_expression
from headrace_columnar.registry import Parameter

from tests.differential import expression_values as values

SCHEMA = Schema(values.SCHEMA)
T = TypeVar("T")


class Chance(Protocol):
    """What is taken of ``random.Random``."""

    def random(self) -> float: ...
    def randint(self, low: int, high: int, /) -> int: ...
    def choice(self, options: Sequence[T], /) -> T: ...


@dataclass(frozen=True)
class Part:
    """An expression: its text with the columns that it reads in braces, ``abs({i})``, and its type."""

    template: str
    data_type: pl.DataType
    columns: frozenset[str]
    #: For which oracle: the name of the operation, and its operands.
    operation: str = ""
    operands: tuple[Part, ...] = ()
    #: The operands with the constants among them, as written.
    arguments: tuple[Part | str, ...] = ()

    def text(self, instead: Callable[[str], str | None] = lambda name: None) -> str:
        """Return the SQL text; ``instead`` gives a text to put in a column's place."""
        out = self.template
        for name in self.columns:
            put = instead(name)
            out = out.replace("{" + name + "}", put if put is not None else name)
        return out

    @property
    def size(self) -> int:
        return 1 + sum(part.size for part in self.operands)


def column(name: str) -> Part:
    return Part("{" + name + "}", values.SCHEMA[name], frozenset([name]), "column")


#: What parameters that must be constant are given, by name.
_CONSTANTS = {
    "unit": ["'MONTH'", "'DAY'", "'HOUR'", "'YEAR'", "'SECOND'", "'WEEK'", "'QUARTER'"],
    "format": ["'yyyy-MM-dd HH:mm:ss'", "'dd.MM.yy'", "'EEE MMM d a hh:mm:ss.SSS'", "'yyyyMMdd'"],
    "path": ["'$.a'", "'$.a[*].b'", "'lax $'", "'$.a[0]'", "'$.c'"], "charset": ["'utf-8'", "'utf-16'", "'us-ascii'"],
    "digits": ["2", "0", "-2", "1", "9", "-18"],
    "part": ["'HOST'", "'QUERY'", "'FILE'", "'PROTOCOL'"], "zone": ["'Asia/Shanghai'", "'America/New_York'", "'UTC'"],
    "from": ["'Europe/Paris'"], "to": ["'UTC'", "'Asia/Tokyo'"], "bits": ["256", "512"], "precision": ["0", "3"],
    "from_base": ["16", "10"], "to_base": ["2", "36"], "weekday": ["'Mon'", "'sunday'"],
    "ascending": ["false", "true"], "name": ["'n'"], "between": ["','", "'&'"], "inside": ["'='", "'1'"],
}  # fmt: skip

_KINDS: dict[str, Callable[[pl.DataType], bool]] = {
    "string": lambda kind: isinstance(kind, pl.String),
    "text": lambda kind: not kind.is_nested(),
    "integer": lambda kind: kind.is_integer(),
    "number": lambda kind: kind.is_numeric(),
    "double": lambda kind: kind.is_numeric(),
    "boolean": lambda kind: isinstance(kind, pl.Boolean),
    "bytes": lambda kind: isinstance(kind, pl.Binary | pl.String),
    "date": lambda kind: isinstance(kind, pl.Date | pl.Datetime | pl.String),
    "timestamp": lambda kind: isinstance(kind, pl.Date | pl.Datetime | pl.String),
    "datetime": lambda kind: isinstance(kind, pl.Date | pl.Datetime),
    "time": lambda kind: isinstance(kind, pl.Time | pl.Datetime),
    "scalar": lambda kind: not kind.is_nested(),
    "any": lambda kind: True,
    "T": lambda kind: True,
    "array": lambda kind: isinstance(kind, pl.List),
    "array<T>": lambda kind: isinstance(kind, pl.List),
    "array<string>": lambda kind: isinstance(kind, pl.List) and isinstance(kind.inner, pl.String),
    "struct": lambda kind: isinstance(kind, pl.Struct),
    "map": lambda kind: kind == values.SCHEMA["m"],
}
_BINARY = ["+", "-", "*", "/", "%", "DIV", "=", "<>", "<", "<=", ">", ">=", "<=>", "IS DISTINCT FROM", "||", "&", "|", "^", "<<", ">>",
           "LIKE", "ILIKE", "RLIKE", "SIMILAR TO", "AND", "OR"]  # fmt: skip
_UNARY = ["- {}", "~ {}", "NOT {}", "{} IS NULL", "{} IS NOT NULL", "{} IS TRUE", "{} IS NOT FALSE", "{} IS UNKNOWN"]
_CASTS = ["STRING", "VARCHAR(3)", "TINYINT", "SMALLINT", "INT", "BIGINT", "float32", "DOUBLE", "BOOLEAN", "DECIMAL(10, 2)",
          "DECIMAL(38, 0)", "DECIMAL(38, 18)", "DECIMAL(38, 37)", "DECIMAL(5, 0)", "DATE", "TIME", "TIMESTAMP", "timestamp_ntz", "BINARY",
          "array<string>", "array<int64>", "array<decimal(38, 37)>"]  # fmt: skip
_FORMS = ["CASE WHEN {} THEN {} ELSE {} END", "CASE WHEN {} THEN {} END", "CASE {} WHEN {} THEN {} WHEN {} THEN {} END", "COALESCE({}, {})",
          "IF({}, {}, {})", "{} IN ({}, {})", "{} NOT IN ({}, NULL)", "{} BETWEEN {} AND {}", "{}[{}]", "{} + INTERVAL '1' MONTH",
          "{} - INTERVAL '25:00:00' HOUR TO SECOND", "EXTRACT(YEAR FROM {})", "EXTRACT(EPOCH FROM {})", "TRIM(LEADING {} FROM {})",
          "SUBSTRING({} FROM {} FOR {})", "POSITION({} IN {})", "OVERLAY({} PLACING {} FROM {} FOR {})", "{} LIKE {} ESCAPE '!'",
          "{} AT TIME ZONE 'Europe/Paris'", "ARRAY[{}, {}]", "JSON_VALUE({}, '$.a' DEFAULT {} ON EMPTY)"]  # fmt: skip


class Grower:
    """Makes the parts of one seed."""

    def __init__(self, chance: Chance, functions: list[str] | None = None) -> None:
        self._chance = chance
        self._functions = functions or sorted(registry.load())
        self.parts = [column(name) for name in values.SCHEMA]
        self._leaves = list(self.parts)

    def grow(self) -> Iterator[tuple[Part, CompiledExpression]]:
        """Yield new parts without end."""
        while True:
            made = self._step()
            if made is not None:
                yield made

    def call(self, name: str) -> tuple[Part, CompiledExpression] | None:
        """Return a call of this function, None if the compiler refused what chance put in."""
        declared = registry.load()[name]
        signature = self._chance.choice(declared.signatures)
        most = signature.most if signature.most is not None else len(signature.parameters) + 2
        count = self._chance.randint(signature.least, most)
        arguments: list[Part | str] = []
        generic: pl.DataType | None = None
        for index in range(count):
            parameter = signature.parameter(index)
            argument = self._argument(parameter, generic)
            if isinstance(argument, Part) and parameter.kind in ("T", "array<T>") and generic is None:
                kind = argument.data_type
                inner = kind.inner if isinstance(kind, pl.List) else kind
                generic = kind if parameter.kind == "T" else (inner if isinstance(inner, pl.DataType) else inner())
            arguments.append(argument)
        spelled = self._chance.choice((name, *declared.aliases))
        return self._made(f"{spelled}({', '.join(['{}'] * count)})", arguments, name)

    def _argument(self, parameter: Parameter, generic: pl.DataType | None) -> Part | str:
        if parameter.constant:
            return self._chance.choice(_CONSTANTS.get(parameter.name, ["1", "'a'"]))
        if self._chance.random() < 0.03:
            return "NULL"
        fits = _KINDS[parameter.kind]
        if generic is not None and parameter.kind == "T":
            return self._pick(lambda kind: kind == generic)
        if generic is not None and parameter.kind == "array<T>":
            return self._pick(lambda kind: isinstance(kind, pl.List) and kind.inner == generic)
        if parameter.kind in ("T", "text", "any") and self._chance.random() < 0.5:
            return self._pick(lambda kind: not kind.is_nested())
        return self._pick(fits)

    def _pick(self, fits: Callable[[pl.DataType], bool]) -> Part | str:
        # Leaves twice: deep trees hide what is within them behind NULL.
        pool = self._leaves if self._chance.random() < 0.6 else self.parts
        found = [part for part in pool if fits(part.data_type) and part.size < 12]
        return self._chance.choice(found) if found else "NULL"

    def _step(self) -> tuple[Part, CompiledExpression] | None:
        kind = self._chance.random()
        if kind < 0.55:
            return self.call(self._chance.choice(self._functions))
        if kind < 0.72:
            word = self._chance.choice(_BINARY)
            left = self._pick(lambda kind: not kind.is_nested())
            alike = isinstance(left, Part) and self._chance.random() < 0.5
            right = self._pick((lambda kind: kind == left.data_type) if alike else (lambda kind: not kind.is_nested()))  # type: ignore[union-attr]
            return self._made(f"({{}} {word} {{}})", [left, right], word)
        if kind < 0.84:
            word, target = self._chance.choice(["CAST", "TRY_CAST"]), self._chance.choice(_CASTS)
            return self._made(f"{word}({{}} AS {target})", [self._pick(lambda kind: True)], f"{word} {target}")
        if kind < 0.88:
            form = self._chance.choice(_UNARY)
            return self._made(f"({form})", [self._pick(lambda kind: True)], form)
        form = self._chance.choice(_FORMS)
        return self._made(f"({form})", self._operands_of(form), form)

    def _operands_of(self, form: str) -> list[Part | str]:
        count = form.count("{}")
        first = self._pick(lambda kind: True)
        alike = first.data_type if isinstance(first, Part) else pl.String()
        boolean = form.startswith(("CASE WHEN", "IF"))
        operands: list[Part | str] = [self._pick(lambda kind: isinstance(kind, pl.Boolean)) if boolean else first]
        text = form.startswith(("TRIM", "SUBSTRING", "POSITION", "OVERLAY", "JSON")) or "ESCAPE" in form
        if text:
            operands = [self._pick(lambda kind: isinstance(kind, pl.String))]
        elif form == "{}[{}]":
            operands = [self._pick(lambda kind: isinstance(kind, pl.List))]
        for place in range(1, count):
            if (
                form == "{}[{}]"
                or (form.startswith("SUBSTRING") and place)
                or (form.startswith("OVERLAY") and place > 1)
            ):
                operands.append(self._pick(lambda kind: kind.is_integer()))
            elif text:
                operands.append(self._pick(lambda kind: isinstance(kind, pl.String)))
            else:
                operands.append(self._pick(lambda kind: kind == alike))
        return operands

    def _made(self, form: str, arguments: list[Part | str], operation: str) -> tuple[Part, CompiledExpression] | None:
        texts = [each.template if isinstance(each, Part) else each for each in arguments]
        pieces = form.split("{}")
        template = "".join(itertools.chain.from_iterable(zip(pieces, [*texts, ""], strict=True)))
        operands = tuple(each for each in arguments if isinstance(each, Part))
        columns = frozenset().union(*(each.columns for each in operands)) if operands else frozenset()
        part = Part(template, pl.Null(), columns, operation, operands)
        try:
            compiled = compile_expression(part.text(), SCHEMA)
        except ExpressionError:
            return None
        part = Part(template, compiled.data_type, columns, operation, operands, tuple(arguments))
        if not isinstance(compiled.data_type, pl.Null):
            self.parts.append(part)
        return part, compiled
