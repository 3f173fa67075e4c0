"""User functions: scalar (UDF), table (UDTF) and aggregate (UDAF), and how they are found by name."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from headrace.flow.schema import Schema, data_type
from headrace.foundation.errors import FunctionError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class ScalarFunction:
    """A function of a row's values to one value.

    Row-wise, it is called once per row with Python values, NULL as None. ``vectorized``, it is called with polars Series
    and returns one of the same length; it must treat each row by itself.
    """

    name: str
    function: Callable[..., Any]
    return_type: pl.DataType
    vectorized: bool = False
    #: A function that gives other results for the same arguments (time, random) cannot be replayed.
    deterministic: bool = True

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@dataclass(frozen=True)
class TableFunction:
    """A function of a row's values to any number of rows: it yields dicts, tuples, or single values."""

    name: str
    function: Callable[..., Any]
    schema: Schema

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@dataclass(frozen=True)
class AggregateFunction:
    """A user aggregate: a class with ``create() -> state``, ``add(state, *values) -> state``,
    ``merge(state, other) -> state`` and ``result(state)``. ``retract(state, *values) -> state`` is optional.

    State must be made of MessagePack types, so that it can be stored.
    """

    name: str
    implementation: Any
    return_type: pl.DataType

    def __call__(self) -> Any:
        return self.implementation() if isinstance(self.implementation, type) else self.implementation


UserFunction = ScalarFunction | TableFunction | AggregateFunction

#: Functions made by the decorators, by lower-case name: usable in every SQL text built later in this process. Jobs
#: carry the functions they use with them, so that worker processes need no registration.
_decorated: dict[str, UserFunction] = {}


@overload
def udf(function: Callable[..., Any], /) -> ScalarFunction: ...
@overload
def udf(
    *, returns: Any = None, name: str | None = None, vectorized: bool = False, deterministic: bool = True
) -> Callable[[Callable[..., Any]], ScalarFunction]: ...
def udf(
    function: Callable[..., Any] | None = None,
    /,
    *,
    returns: Any = None,
    name: str | None = None,
    vectorized: bool = False,
    deterministic: bool = True,
) -> Any:
    """Make a Python function usable in SQL expressions by its name.

    The result type comes from ``returns`` (a type name such as ``"string"``) or from the return annotation. Raises
    FunctionError when there is neither.
    """

    def make(target: Callable[..., Any]) -> ScalarFunction:
        own_name = name or _name_of(target)
        made = ScalarFunction(own_name, target, _result_type(target, returns, own_name), vectorized, deterministic)
        return typing.cast(ScalarFunction, _register(made))

    return make(function) if function is not None else make


def udtf(*, returns: Mapping[str, Any], name: str | None = None) -> Callable[[Callable[..., Any]], TableFunction]:
    """Make a Python generator usable as a table function; ``returns`` gives its columns and types."""

    def make(target: Callable[..., Any]) -> TableFunction:
        made = TableFunction(name or _name_of(target), target, Schema.of(returns))
        return typing.cast(TableFunction, _register(made))

    return make


def udaf(*, returns: Any, name: str | None = None) -> Callable[[Any], AggregateFunction]:
    """Make a class with ``create``, ``add``, ``merge`` and ``result`` usable as an aggregate function."""

    def make(target: Any) -> AggregateFunction:
        own_name = name or _name_of(target)
        missing = [method for method in ("create", "add", "merge", "result") if not hasattr(target, method)]
        if missing:
            raise FunctionError(f"aggregate function {own_name!r} has no method {', '.join(missing)}")
        return typing.cast(AggregateFunction, _register(AggregateFunction(own_name, target, data_type(returns))))

    return make


def resolve(reference: Any, *, name: str | None = None, returns: Any = None) -> UserFunction:
    """Return the user function that ``reference`` means.

    It may be a function made by a decorator, ``"package.module:name"``, any callable, a class, or an object with an
    ``eval`` method (a class is instantiated without arguments). Raises FunctionError naming what was tried.
    """
    if isinstance(reference, str):
        reference, name = import_object(reference), name or reference.rpartition(":")[2].rpartition(".")[2]
    if isinstance(reference, ScalarFunction | TableFunction | AggregateFunction):
        return reference
    if isinstance(reference, type):
        reference = _instantiate(reference)
    target = getattr(reference, "eval", reference)
    if not callable(target):
        raise FunctionError(f"{reference!r} is neither callable nor has a method 'eval'")
    own_name = name or _name_of(reference)
    return ScalarFunction(own_name, target, _result_type(target, returns, own_name))


def _instantiate(kind: type) -> Any:
    try:
        return kind()
    except TypeError as error:
        raise FunctionError(f"{kind.__name__} cannot be made without arguments: {error}") from error


def import_object(path: str) -> Any:
    """Import ``"package.module:name"`` (or with a dot). Raises FunctionError that says which part was not found."""
    module_name, colon, attribute = path.partition(":")
    if not colon:
        module_name, _, attribute = path.rpartition(".")
    if not module_name or not attribute:
        raise FunctionError(f"{path!r} is not of the form 'package.module:name'")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise FunctionError(f"cannot import module {module_name!r} of function {path!r}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise FunctionError(f"module {module_name!r} has no {attribute!r}")
        found = getattr(found, part)
    return found


def decorated_functions() -> Mapping[str, UserFunction]:
    """Return the functions made by the decorators so far, by lower-case name."""
    return dict(_decorated)


def _register(function: UserFunction) -> UserFunction:
    _decorated[function.name.lower()] = function
    return function


def _name_of(target: Any) -> str:
    name = getattr(target, "__name__", None) or type(target).__name__
    if name == "<lambda>":
        raise FunctionError("a lambda needs a name", hint="pass name='…'")
    return str(name)


def _result_type(target: Callable[..., Any], returns: Any, name: str) -> pl.DataType:
    if returns is not None:
        return data_type(returns)
    function = target if inspect.isroutine(target) else type(target).__call__
    try:
        annotation = typing.get_type_hints(function).get("return")
    except (NameError, TypeError) as error:
        raise FunctionError(f"cannot read the annotations of function {name!r}: {error}") from error
    if annotation is None:
        raise FunctionError(
            f"function {name!r} does not say what it returns",
            hint="annotate it (def f(x: str) -> str) or pass returns='string'",
        )
    arguments = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    if type(None) in typing.get_args(annotation) and len(arguments) == 1:
        annotation = arguments[0]
    return data_type(annotation)
