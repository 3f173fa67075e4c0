"""The table of SQL functions: what each is called, takes, gives, and an example whose answer is known.

A function is declared once, by the ``function`` decorator on its builder. The compiler, the documentation page and the
tests all read this table. Nothing here imports sqlglot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.flow.schema import data_type
from headrace_columnar.sql_types import (
    Typed,
    common_type,
    entry_types,
    in_calendar,
    inner_type,
    is_integer,
    is_number,
    is_scalar,
    is_text,
    shown,
    widen,
)

if TYPE_CHECKING:
    from headrace.foundation.errors import ExpressionError
    from headrace_columnar.compiler import Compiler

#: Modules that declare functions, in the order of the documentation.
_MODULES = (
    "conditional", "strings", "encodings", "patterns", "numbers", "dates", "date_arithmetic", "json", "json_making", "arrays", "maps",
    "formatting", "hashes", "web", "environment",
)  # fmt: skip

#: The kinds of parameters, and the types that each accepts. ``T`` is any type, the same for all parameters that say so.
KINDS: Mapping[str, str] = {
    "string": "text",
    "text": "a value of any simple type, taken as its text",
    "integer": "a whole number",
    "number": "a number of any type",
    "double": "a number, taken as float64",
    "boolean": "true or false",
    "bytes": "binary, or a string taken as its UTF-8 bytes",
    "date": "a date, a timestamp (its day), or text such as '2024-05-06'",
    "timestamp": "a timestamp, a date (its midnight), or text such as '2024-05-06 07:08:09'",
    "datetime": "a timestamp or a date",
    "time": "a time of day or a timestamp",
    "scalar": "a value of any simple type",
    "any": "a value of any type",
    "T": "a value; all T of a call become one common type",
    "array": "an array",
    "array<T>": "an array",
    "array<string>": "an array of strings",
    "struct": "a struct",
    "map": "a map: an array of entries with the fields key and value",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: ``constant`` ones must be known when the job is built, ``variadic`` ones may repeat."""

    name: str
    kind: str
    optional: bool = False
    variadic: bool = False
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives. ``result`` is a type word, ``T``, ``array<T>`` or ``?`` (the builder says)."""

    parameters: tuple[Parameter, ...]
    result: str

    @property
    def least(self) -> int:
        return sum(1 for parameter in self.parameters if not parameter.optional)

    @property
    def most(self) -> int | None:
        return None if any(parameter.variadic for parameter in self.parameters) else len(self.parameters)

    def parameter(self, index: int) -> Parameter:
        return self.parameters[min(index, len(self.parameters) - 1)]

    def takes(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)

    def text(self, name: str) -> str:
        shown_parameters = []
        for parameter in self.parameters:
            text = f"{parameter.name}: {'constant ' if parameter.constant else ''}{parameter.kind}"
            if parameter.variadic:
                text += ", …"
            shown_parameters.append(f"[{text}]" if parameter.optional else text)
        return f"{name}({', '.join(shown_parameters)}) → {self.result if self.result != '?' else 'see text'}"


@dataclass(frozen=True, slots=True)
class Function:
    """One SQL function. ``examples`` are pairs of SQL text and the answer as a Python value."""

    name: str
    aliases: tuple[str, ...]
    signatures: tuple[Signature, ...]
    category: str
    summary: str
    examples: tuple[tuple[str, Any], ...]
    build: Callable[[Call], pl.Expr | Typed]
    deterministic: bool = True
    #: Whether the function may be something else than NULL when an argument is NULL.
    answers_null: bool = False


_functions: dict[str, Function] = {}
_by_name: dict[str, Function] = {}


def function(
    *names: str,
    signature: str | Sequence[str],
    summary: str,
    examples: Iterable[tuple[str, Any]],
    deterministic: bool = True,
    answers_null: bool = False,
) -> Callable[[Callable[[Call], pl.Expr | Typed]], Callable[[Call], pl.Expr | Typed]]:
    """Declare a SQL function: the decorated builder makes its polars expression from typed arguments.

    A signature reads ``"text string, start integer, [length integer] -> string"``; ``...`` behind a parameter lets it
    repeat, ``constant`` before its kind asks for a value known when the job is built.
    """

    def declare(build: Callable[[Call], pl.Expr | Typed]) -> Callable[[Call], pl.Expr | Typed]:
        texts = [signature] if isinstance(signature, str) else list(signature)
        category = build.__module__.rpartition(".")[2]
        made = Function(
            names[0],
            names[1:],
            tuple(map(parse_signature, texts)),
            category,
            summary,
            tuple(examples),
            build,
            deterministic,
            answers_null,
        )
        for name in names:
            if name in _by_name:
                raise ValueError(f"SQL function {name!r} is declared twice")
            _by_name[name] = made
        _functions[names[0]] = made
        return build

    return declare


def parse_signature(text: str) -> Signature:
    """Read a signature as written for ``function``."""
    parameters_text, _, result = text.partition("->")
    parameters = []
    for part in filter(None, (piece.strip() for piece in parameters_text.split(","))):
        found = re.fullmatch(r"(\[?)(\w+) (constant )?([\w<>]+)(\.\.\.)?(\]?)", part)
        if found is None or found[4] not in KINDS:
            raise ValueError(f"signature {text!r}: cannot read {part!r}")
        parameters.append(Parameter(found[2], found[4], bool(found[1]), bool(found[5]), bool(found[3])))
    return Signature(tuple(parameters), result.strip())


@cache
def load() -> Mapping[str, Function]:
    """Import every module of functions and return the functions by their first name. Called at the first compile."""
    for module in _MODULES:
        import_module(f"headrace_columnar.functions.{module}")
    return _functions


def find(name: str) -> Function | None:
    """Return the function of that name or alias, ignoring case."""
    load()
    return _by_name.get(name.lower())


def names() -> list[str]:
    """Return every name and alias."""
    load()
    return list(_by_name)


class UserFunctions:
    """The user functions that an expression may name, ignoring case.

    ``given`` is a mapping by name. A catalogue of a job gives, beside what it lists, functions of installed plug-ins: it looks
    for them only for a name that nothing else has, so that no plug-in is loaded for ``lower``.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        #: The names of those that were given or decorated, by lower-case name. They go before functions of the table. The functions
        #: themselves are taken when an expression names them: a catalogue sends what was taken to other processes.
        self.listed: dict[str, str] = {name.lower(): name for name in given}

    def find(self, name: str) -> Any | None:
        """Return the function, None if there is none or the table has one of this name."""
        listed = self.listed.get(name.lower())
        if listed is not None:
            return self._given[listed]
        return self._given.get(name.lower()) if find(name) is None else None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function in an expression, as its builder sees it: arguments already of the declared kinds."""

    compiler: Compiler
    function: Function
    node: Any
    arguments: tuple[Typed, ...]
    result_type: pl.DataType

    def __getitem__(self, index: int) -> pl.Expr:
        return self.arguments[index].expression

    def __len__(self) -> int:
        return len(self.arguments)

    def expressions(self) -> list[pl.Expr]:
        return [argument.expression for argument in self.arguments]

    def constant(self, index: int, default: Any = None) -> Any:
        """Return the value of a constant argument, ``default`` if it was left out."""
        return self.arguments[index].constant if index < len(self.arguments) else default

    def is_constant(self, index: int) -> bool:
        return index < len(self.arguments) and self.arguments[index].is_constant

    def error(self, index: int, message: str, *, hint: str | None = None) -> ExpressionError:
        """Return an error that underlines an argument."""
        return self.compiler.error(self.arguments[index].node, f"{self.function.name}: {message}", hint=hint)


def bind(compiler: Compiler, declared: Function, node: Any, arguments: Sequence[Typed]) -> Typed:
    """Choose the signature that takes the arguments, and build the call. Raises ExpressionError when none does."""
    fitting = [signature for signature in declared.signatures if signature.takes(len(arguments))]
    if not fitting:
        message = f"{declared.name} takes {_counts(declared)}, not {len(arguments)}"
        raise compiler.name_error(node, message, hint=_usage(declared))
    problem: ExpressionError | None = None
    for signature in fitting:
        matched = _match(compiler, declared, signature, arguments)
        if isinstance(matched, tuple):
            coerced, result_type = matched
            return _built(Call(compiler, declared, node, coerced, result_type))
        problem = problem or matched
    assert problem is not None
    raise problem


def _built(call: Call) -> Typed:
    built = call.function.build(call)
    if not isinstance(built, Typed):
        built = Typed(built, call.result_type)
    absent = any(argument.is_constant and argument.constant is None for argument in call.arguments)
    if absent and not call.function.answers_null:
        return Typed(pl.lit(None, dtype=built.data_type), built.data_type, call.node, None)
    return Typed(built.expression, built.data_type, call.node, built.constant)


def _counts(declared: Function) -> str:
    """Say how many arguments a function takes: ``1 argument``, ``2 or 3 arguments``, ``at least 1 argument``."""
    if any(signature.most is None for signature in declared.signatures):
        least = min(signature.least for signature in declared.signatures)
        return f"at least {least} argument{'' if least == 1 else 's'}"
    counts = sorted({n for one in declared.signatures for n in range(one.least, (one.most or 0) + 1)})
    if counts == [0]:
        return "no arguments"
    return f"{' or '.join(map(str, counts))} argument{'' if counts == [1] else 's'}"


def _usage(declared: Function) -> str:
    return "usage: " + " or ".join(signature.text(declared.name) for signature in declared.signatures)


def _match(
    compiler: Compiler, declared: Function, signature: Signature, arguments: Sequence[Typed]
) -> tuple[tuple[Typed, ...], pl.DataType] | ExpressionError:
    parameters = [signature.parameter(index) for index in range(len(arguments))]
    generic: pl.DataType = pl.Null()
    for parameter, argument in zip(parameters, arguments, strict=True):
        if parameter.constant and not argument.is_constant:
            return compiler.error(
                argument.node, f"{declared.name}: {parameter.name} must be a constant", hint=_usage(declared)
            )
        if parameter.constant and argument.constant is None:
            return compiler.error(argument.node, f"{declared.name}: {parameter.name} must not be NULL")
        if parameter.kind not in ("T", "array<T>") or argument.is_null:
            continue
        if parameter.kind == "array<T>" and not isinstance(argument.data_type, pl.List | pl.Array):
            return _kind_error(compiler, declared, parameter, argument)
        own = argument.data_type if parameter.kind == "T" else inner_type(argument.data_type)
        common = common_type(generic, own)
        if common is None:
            return compiler.error(
                argument.node,
                f"{declared.name}: {shown(own)} cannot be combined with {shown(generic)}",
                hint=_usage(declared),
            )
        generic = common
    coerced = []
    for parameter, argument in zip(parameters, arguments, strict=True):
        made = _coerce(compiler, parameter.kind, argument, generic)
        if made is None:
            return _kind_error(compiler, declared, parameter, argument)
        coerced.append(made)
    return tuple(coerced), _result_type(signature.result, generic)


def _kind_error(compiler: Compiler, declared: Function, parameter: Parameter, argument: Typed) -> ExpressionError:
    return compiler.error(
        argument.node,
        f"{declared.name}: {parameter.name} must be {KINDS[parameter.kind]}, not {shown(argument.data_type)}",
        hint=_usage(declared),
    )


def _result_type(result: str, generic: pl.DataType) -> pl.DataType:
    if result == "?":
        return pl.Null()
    if result == "T":
        return generic
    if result == "array<T>":
        return pl.List(generic)
    return data_type(result)


_NULL_TYPES: Mapping[str, pl.DataType] = {
    "string": pl.String(), "text": pl.String(), "integer": pl.Int64(), "number": pl.Int64(), "double": pl.Float64(),
    "boolean": pl.Boolean(), "bytes": pl.Binary(), "date": pl.Date(), "timestamp": pl.Datetime("us", "UTC"),
    "datetime": pl.Datetime("us", "UTC"), "time": pl.Time(), "array<string>": pl.List(pl.String()),
    "scalar": pl.String(),
}  # fmt: skip


def _coerce(compiler: Compiler, kind: str, argument: Typed, generic: pl.DataType) -> Typed | None:
    """Return the argument as the kind asks for it, or None when its type does not do."""
    if kind in ("T", "array<T>"):
        target = generic if kind == "T" else pl.List(generic)
        return _retyped(argument, widen(argument, target), target)
    if argument.is_null and kind in _NULL_TYPES:
        target = _NULL_TYPES[kind]
        return Typed(pl.lit(None, dtype=target), target, argument.node, None)
    source = argument.data_type
    if kind in ("any", "array", "struct", "scalar"):
        wanted = {"any": True, "scalar": is_scalar(source), "array": isinstance(source, pl.List | pl.Array)}
        return argument if wanted.get(kind, isinstance(source, pl.Struct)) else None
    if kind == "map":
        return argument if entry_types(source) is not None else None
    if kind in ("string", "text", "bytes"):
        return _coerce_text(compiler, kind, argument)
    if kind == "integer":
        return _retyped(argument, widen(argument, pl.Int64()), pl.Int64()) if is_integer(source) else None
    if kind == "number":
        return argument if is_number(source) else None
    if kind == "double":
        return _retyped(argument, widen(argument, pl.Float64()), pl.Float64()) if is_number(source) else None
    if kind == "boolean":
        return argument if isinstance(source, pl.Boolean) else None
    if kind == "array<string>":
        fits = isinstance(source, pl.List | pl.Array) and is_text(inner_type(source))
        return argument if fits else None
    return _coerce_time(compiler, kind, argument)


def _retyped(argument: Typed, expression: pl.Expr, target: pl.DataType) -> Typed:
    return Typed(expression, target, argument.node, argument.constant)


def _coerce_text(compiler: Compiler, kind: str, argument: Typed) -> Typed | None:
    from headrace_columnar.casts import to_text

    source = argument.data_type
    if kind == "bytes" and isinstance(source, pl.Binary):
        return argument
    if is_text(source):
        expression = argument.expression if isinstance(source, pl.String) else argument.expression.cast(pl.String)
        if kind == "bytes":
            return Typed(expression.cast(pl.Binary), pl.Binary(), argument.node, argument.constant)
        return _retyped(argument, expression, pl.String())
    if kind == "text" and is_scalar(source):
        return Typed(to_text(argument), pl.String(), argument.node)
    return None


def _coerce_time(compiler: Compiler, kind: str, argument: Typed) -> Typed | None:
    from headrace_columnar.casts import parse_date, parse_timestamp

    source, expression = argument.data_type, argument.expression
    if isinstance(source, pl.Date | pl.Datetime) and not argument.is_constant:
        expression = in_calendar(expression, source)
        argument = Typed(expression, source, argument.node)
    if kind == "date":
        if isinstance(source, pl.Date):
            return argument
        if isinstance(source, pl.Datetime):
            return Typed(expression.dt.date(), pl.Date(), argument.node)
        return Typed(parse_date(expression), pl.Date(), argument.node) if is_text(source) else None
    if kind == "time":
        if isinstance(source, pl.Time):
            return argument
        return Typed(expression.dt.time(), pl.Time(), argument.node) if isinstance(source, pl.Datetime) else None
    if isinstance(source, pl.Datetime):
        return argument
    if isinstance(source, pl.Date):
        zoned = pl.Datetime("us", "UTC")
        return argument if kind == "datetime" else _retyped(argument, widen(argument, zoned), zoned)
    if kind == "timestamp" and is_text(source):
        zoned = pl.Datetime("us", "UTC")
        return Typed(parse_timestamp(expression, zoned), zoned, argument.node)
    return None
