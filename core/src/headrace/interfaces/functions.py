"""User functions: scalar (UDF), table (UDTF) and aggregate (UDAF), and how they are found by name."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from headrace.flow.schema import Schema, data_type
from headrace.foundation.errors import FunctionError, OptionError
from headrace.interfaces import function_classes
from headrace.interfaces.flink_types import flink_type

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class ScalarFunction:
    """A function of a row's values to one value.

    Row-wise, it is called once per row with Python values, NULL as None. ``vectorized``, it is called with polars
    Series and returns one of the same length; it must treat each row by itself.
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

    The operator calls ``create`` for each new group, ``add`` for each row of it in order, ``merge`` when two parts of a
    group become one (sessions, panes of sliding windows, partial results before a shuffle), and ``result`` when a
    result is given. Adding rows to one state and merging the states of parts of these rows must give the same result.
    State must be made of MessagePack types, so that it can be stored. An error in ``add`` or ``merge`` stops the job;
    one in ``result`` makes the last row of the group a dead letter.
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
    FunctionError when there is neither. ``name``: its name in SQL; default: that of the function. ``vectorized``: it
    gets polars Series instead of single values. ``deterministic=False``: equal arguments may give different results, so
    that calls are never combined or cached. An error that it raises makes the row a dead letter, except RetriableError
    and JobError (docs/jobs.md).
    """

    def make(target: Callable[..., Any]) -> ScalarFunction:
        own_name = name or _name_of(target)
        made = ScalarFunction(own_name, target, _result_type(target, returns, own_name), vectorized, deterministic)
        return typing.cast(ScalarFunction, _register(made))

    return make(function) if function is not None else make


def udtf(*, returns: Mapping[str, Any], name: str | None = None) -> Callable[[Callable[..., Any]], TableFunction]:
    """Make a Python generator usable as a table function (``LATERAL TABLE(f(x))`` in SQL). ``returns`` gives its
    columns and types.

    The function is called once for each row, with Python values. It yields dicts, tuples in the order of ``returns``,
    or single values if there is one column. An error that it raises makes the row a dead letter. ``name``: its name in
    SQL; default: that of the function.
    """

    def make(target: Callable[..., Any]) -> TableFunction:
        made = TableFunction(name or _name_of(target), target, Schema.of(returns))
        return typing.cast(TableFunction, _register(made))

    return make


def udaf(*, returns: Any, name: str | None = None) -> Callable[[Any], AggregateFunction]:
    """Make a class with ``create``, ``add``, ``merge`` and ``result`` usable as an aggregate function: see
    ``AggregateFunction``.

    ``returns``: the type of the result, such as ``"float64"``. ``name``: its name in SQL; default: that of the class.
    Raises FunctionError when a method is missing.
    """

    def make(target: Any) -> AggregateFunction:
        own_name = name or _name_of(target)
        missing = [method for method in ("create", "add", "merge", "result") if not hasattr(target, method)]
        if missing:
            raise FunctionError(f"aggregate function {own_name!r} has no method {', '.join(missing)}")
        return typing.cast(AggregateFunction, _register(AggregateFunction(own_name, target, data_type(returns))))

    return make


def resolve(reference: Any, *, name: str | None = None, returns: Any = None) -> UserFunction:
    """Return the user function of ``reference``. Called when a job is built, and by ``CREATE FUNCTION`` in SQL.

    ``reference`` may be a function made by a decorator, of headrace or of PyFlink; the text ``"package.module:name"``;
    a callable or a generator; or a class or an object. A class is instantiated without arguments. Its methods decide
    what it is: ``eval`` makes a scalar function, or a table function if it gives rows; ``create_accumulator`` and
    ``accumulate``, or headrace's ``create`` and ``add``, make an aggregate; otherwise a method called ``name`` is the
    function. Raises FunctionError that says what was tried, or where to declare the type of the result.
    """
    if isinstance(reference, str):
        reference, name = _imported(reference), name or reference.rpartition(":")[2].rpartition(".")[2]
    if isinstance(reference, ScalarFunction | TableFunction | AggregateFunction):
        return reference
    if function_classes.is_pyflink(reference):
        return _of_pyflink(reference, name, returns)
    if isinstance(reference, type):
        reference = _instantiate(reference)
    own_name = name or _name_of(reference)
    if function_classes.is_aggregate(reference):
        return _aggregate(reference, own_name, returns)
    if all(hasattr(reference, each) for each in _AGGREGATE_METHODS):
        return AggregateFunction(own_name, reference, _type_of_aggregate(reference, "result", own_name, returns))
    return _method(reference, own_name, returns)


_AGGREGATE_METHODS = ("create", "add", "merge", "result")


def _method(reference: Any, name: str, returns: Any) -> UserFunction:
    """Return the function of a callable, of an object with ``eval``, or of one with a method of the function's name."""
    if inspect.isroutine(reference) or inspect.ismethod(reference):
        return _of_callable(reference, name, returns, reference)
    method = _named_method(reference, name)
    if method is None:
        if not callable(reference):
            public = [
                each for each in dir(reference) if not each.startswith("_") and callable(getattr(reference, each))
            ]
            raise FunctionError(
                f"{type(reference).__name__!r} is neither callable nor has a method 'eval'",
                hint=f"its methods are {', '.join(public)}: name the function like one of them, or write 'module:Class.method'"
                if public else None,
            )  # fmt: skip
        return _of_callable(reference, name, returns, reference)
    flink = function_classes.of_pyflink_itself(reference)
    has_lifecycle = any(callable(getattr(reference, each, None)) for each in ("open", "close"))
    if not (flink or has_lifecycle):
        return _of_callable(getattr(reference, method), name, returns, reference)
    instance = function_classes.Instance(reference)
    return _of_callable(function_classes.Method(instance, method, flink=flink), name, returns, reference)


def _named_method(reference: Any, name: str) -> str | None:
    if callable(getattr(reference, "eval", None)):
        return "eval"
    found = [each for each in dir(reference) if each.lower() == name.lower() and callable(getattr(reference, each))]
    return found[0] if found else None


def _of_callable(target: Any, name: str, returns: Any, instance: Any) -> UserFunction:
    plain = function_classes.unwrapped(target)
    if inspect.iscoroutinefunction(plain):
        raise FunctionError(
            f"function {name!r} is async, and headrace calls a function for one row after the other",
            hint="make it a plain function; a vectorized function can await the answers for all rows of a batch with asyncio.run()",
        )
    if returns is None and function_classes.gives_rows(instance, plain):
        schema = function_classes.schema_of_rows(instance, plain, name)
        return TableFunction(name, function_classes.Rows(target, tuple(schema)), schema)
    declared = returns
    if declared is None and instance is not target:
        declared = function_classes.declared_result(instance, name)
    made = _result_type(plain, declared, name)
    if isinstance(target, function_classes.Method):
        target = target.returning(made)
    return ScalarFunction(name, target, made)


def _aggregate(instance: Any, name: str, returns: Any) -> AggregateFunction:
    """Return the aggregate of an object with ``create_accumulator`` and ``accumulate``."""
    import polars as pl

    emits = callable(getattr(instance, "emit_value", None))
    if not emits and not callable(getattr(instance, "get_value", None)):
        raise FunctionError(f"aggregate function {name!r} has neither a method get_value nor emit_value")
    declared = returns if returns is None else data_type(returns)
    if declared is None:
        declared = function_classes.declared_result(instance, name)
    if emits:
        made: pl.DataType = pl.List(_emitted_type(instance, name, declared))
    else:
        made = _type_of_aggregate(instance, "get_value", name, declared)
    flink = function_classes.of_pyflink_itself(instance)
    return AggregateFunction(
        name, function_classes.Accumulating(function_classes.Instance(instance), made, flink=flink), made
    )


def _emitted_type(instance: Any, name: str, declared: Any) -> pl.DataType:
    import polars as pl

    if declared is not None:
        return declared  # type: ignore[no-any-return]
    schema = function_classes.schema_of_rows(instance, instance.emit_value, name)
    return next(iter(schema.values())) if list(schema) == ["f0"] else pl.Struct(dict(schema))


def _type_of_aggregate(instance: Any, method: str, name: str, returns: Any) -> pl.DataType:
    if returns is not None:
        return data_type(returns)
    declared = function_classes.declared_result(instance, name)
    if declared is not None:
        return declared  # type: ignore[no-any-return]
    annotation = function_classes.annotations_of(getattr(instance, method)).get("return")
    if annotation is None:
        raise FunctionError(
            f"aggregate function {name!r} does not declare the type that it returns",
            hint=f"annotate {method}: def {method}(self, accumulator) -> float, or give the class get_result_type() -> str",
        )
    return function_classes.result_type(annotation)


def _of_pyflink(wrapped: Any, name: str | None, returns: Any) -> UserFunction:
    """Return the function of an object that PyFlink's ``udf``, ``udtf``, ``udaf`` or ``udtaf`` made."""
    own_name = name or str(wrapped._name)
    function = wrapped._func
    in_pandas = wrapped._func_type == "pandas"
    if hasattr(wrapped, "_result_types"):
        schema = _columns_of_pyflink(wrapped._result_types)
        target = function_classes.Called(function) if inspect.isroutine(function) else _eval_of(function)
        return TableFunction(own_name, function_classes.Rows(target, tuple(schema)), schema)
    kind = flink_type(wrapped._result_type) if returns is None else data_type(returns)
    if hasattr(wrapped, "_is_table_aggregate"):
        if in_pandas:
            aggregate = function if inspect.isroutine(function) else function.accumulate
            return AggregateFunction(own_name, function_classes.AggregatingPandas(aggregate, kind), kind)
        made = _aggregate(function, own_name, kind)
        return AggregateFunction(made.name, made.implementation, made.return_type)
    plain = function if inspect.isroutine(function) else getattr(function, "eval", function)
    if inspect.iscoroutinefunction(plain):
        return _of_callable(plain, own_name, kind, function)  # refused, with the reason
    deterministic = bool(wrapped._deterministic)
    if in_pandas:
        return ScalarFunction(own_name, function_classes.OfPandas(plain, kind), kind, True, deterministic)
    target = function_classes.Called(function, kind) if plain is function else _eval_of(function).returning(kind)
    return ScalarFunction(own_name, target, kind, deterministic=deterministic)


def _eval_of(instance: Any) -> function_classes.Method:
    return function_classes.Method(function_classes.Instance(instance), "eval", flink=True)


def _columns_of_pyflink(declared: Any) -> Schema:
    import polars as pl

    kinds = [declared] if isinstance(declared, str) else list(declared)
    types = [flink_type(each) for each in kinds]
    if len(types) == 1 and isinstance(types[0], pl.Struct):
        return function_classes.schema_of_type(types[0])
    return Schema({f"f{number}": kind for number, kind in enumerate(types)})


def _instantiate(kind: type) -> Any:
    try:
        return kind()
    except TypeError as error:
        raise FunctionError(f"{kind.__name__} cannot be made without arguments: {error}") from error


def _imported(path: str) -> Any:
    """Import the object of a path; a method of a class is bound to a new object of the class."""
    found = import_object(path)
    owner_path, _, attribute = path.rpartition(".")
    if ":" in owner_path and inspect.isfunction(found):
        owner = import_object(owner_path)
        if isinstance(owner, type):
            return getattr(_instantiate(owner), attribute)
    return found


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


def taken_by(function: UserFunction) -> tuple[Any, int]:
    """Return the callable that takes the arguments of a call, and how many of its parameters come before these
    arguments.
    """
    if not isinstance(function, AggregateFunction):
        return function.function, 0
    made = function()
    if not isinstance(made, function_classes.Wrapper):
        return made.add, 1
    return made.target, 0 if isinstance(made, function_classes.AggregatingPandas) else 1


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
    annotation = function_classes.annotations_of(target).get("return")
    if annotation is None:
        raise FunctionError(
            f"function {name!r} does not declare the type that it returns",
            hint="annotate it (def f(x: str) -> str) or pass returns='string'",
        )
    try:
        return function_classes.result_type(annotation)
    except OptionError as error:
        raise FunctionError(
            f"function {name!r}: {error.message}", hint="pass returns='…', or annotate it otherwise"
        ) from error
