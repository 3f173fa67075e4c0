"""Functions as Blink and PyFlink users write them: classes with ``eval``, ``open`` and ``close``, aggregates with
``create_accumulator`` and ``accumulate``, generators, and the objects that PyFlink's ``@udf`` makes.

PyFlink is not imported: its objects are recognised by their attributes. ``headrace.interfaces.functions.resolve`` uses
this module.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import os
import typing
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.flow.schema import Schema, data_type
from headrace.foundation.errors import FunctionError, HeadraceError
from headrace.interfaces.flink_types import flink_type
from headrace.interfaces.function_results import as_declared, as_flink_gives, row_of

if TYPE_CHECKING:
    import polars as pl

_OF_ROWS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)


class FunctionContext:
    """The argument of a function's ``open``: the methods of PyFlink's FunctionContext that have a meaning here."""

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a parameter of the job: here from the environment variable of that name, else the default."""
        return os.environ.get(key, default_value)

    def get_metric_group(self) -> Any:
        """Raise FunctionError: functions cannot count figures here."""
        raise FunctionError(
            "functions of headrace have no metric group", hint="headrace counts the rows and seconds of each verb"
        )


class Instance:
    """An object of a user's class. ``open`` is called before its first use in a process, ``close`` when the process
    releases it.
    """

    def __init__(self, made: Any) -> None:
        self._made = made
        self._opened_in = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_made": self._made, "_opened_in": 0}

    @property
    def ready(self) -> Any:
        """The object, opened."""
        # If the process was forked from one that had opened the object, it opens its own: both must not share
        # connections or files of open().
        if self._opened_in != os.getpid():
            self._open()
        return self._made

    @property
    def unopened(self) -> Any:
        """The object before ``open``, for types and signatures when a job is built."""
        return self._made

    def _open(self) -> None:
        opening = getattr(self._made, "open", None)
        if callable(opening):
            opening(FunctionContext()) if _takes_an_argument(opening) else opening()
        self._opened_in = os.getpid()
        closing = getattr(self._made, "close", None)
        if callable(closing):
            weakref.finalize(self, _close, closing, os.getpid())


def _close(closing: Callable[[], Any], process: int) -> None:
    if os.getpid() == process:
        closing()


def _takes_an_argument(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class Wrapper(ABC):
    """Base of callables that replace a function of the user. Signature and annotations are those of that function."""

    #: Whether rows and maps are given as PyFlink gives them.
    as_flink: bool = False

    @property
    @abstractmethod
    def target(self) -> Any:
        """The function of the user, which takes a row, or the arguments of a call."""


def unwrapped(function: Any) -> Any:
    """Return the function of the user inside all wrappers."""
    return function.target if isinstance(function, Wrapper) else function


class Method(Wrapper):
    """A method of an object that is opened before it is called; rows and maps as PyFlink has them if ``flink``."""

    def __init__(self, instance: Instance, name: str, *, flink: bool, returns: pl.DataType | None = None) -> None:
        self._instance, self._name = instance, name
        self.as_flink = flink
        self._returns = returns if returns is not None and returns.is_nested() else None

    def returning(self, kind: pl.DataType) -> Method:
        """Return the same method, with results converted to a type."""
        return Method(self._instance, self._name, flink=self.as_flink, returns=kind)

    @property
    def target(self) -> Any:
        return getattr(self._instance.unopened, self._name)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.target)

    def __call__(self, *arguments: Any) -> Any:
        function = getattr(self._instance.ready, self._name)
        given = [as_flink_gives(each) for each in arguments] if self.as_flink else arguments
        result = function(*given)
        return result if self._returns is None else as_declared(result, self._returns)


class Called(Wrapper):
    """A function that PyFlink's decorator has wrapped: rows and maps as PyFlink has them."""

    as_flink = True

    def __init__(self, function: Callable[..., Any], returns: pl.DataType | None = None) -> None:
        self._function = function
        self._returns = returns if returns is not None and returns.is_nested() else None

    @property
    def target(self) -> Any:
        return self._function

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.target)

    def __call__(self, *arguments: Any) -> Any:
        result = self._function(*(as_flink_gives(each) for each in arguments))
        return result if self._returns is None else as_declared(result, self._returns)


class Rows(Wrapper):
    """Calls a table function and gives its rows as tuples, whatever form the user's function gives them."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        self._function, self._names = function, tuple(names)
        self.as_flink = isinstance(function, Wrapper) and function.as_flink

    @property
    def target(self) -> Any:
        return unwrapped(self._function)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.target)

    def __call__(self, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        made = self._function(*arguments)
        if made is None:
            return
        # One row alone may be returned without a list around it.
        several = isinstance(made, Iterable) and not isinstance(made, str | bytes | tuple | Mapping)
        for each in made if several else (made,):
            yield row_of(each, self._names)


class Accumulating(Wrapper):
    """An aggregate with ``create_accumulator``, ``accumulate``, ``get_value`` or ``emit_value``, and perhaps ``merge``.

    It has the methods of headrace's aggregates. Without ``merge`` the arguments of all rows of a group are its state,
    and are accumulated when the result is asked for.
    """

    def __init__(self, instance: Instance, returns: pl.DataType, *, flink: bool) -> None:
        self._instance, self._returns, self.as_flink = instance, returns, flink
        self._merges = _overrides(instance.unopened, "merge")

    @property
    def target(self) -> Any:
        return self._instance.unopened.accumulate

    @property
    def keeps_all_values(self) -> bool:
        """Whether the state grows with each row."""
        return not self._merges

    def create(self) -> Any:
        return self._instance.ready.create_accumulator() if self._merges else []

    def add(self, state: Any, *values: Any) -> Any:
        if not self._merges:
            state.append(list(values))
            return state
        return self._accumulated(state, values)

    def merge(self, state: Any, other: Any) -> Any:
        if not self._merges:
            return [*state, *other]
        made = self._instance.ready.merge(state, [other])
        return state if made is None else made

    def result(self, state: Any) -> Any:
        made = self._instance.ready
        if not self._merges:
            rows, state = state, made.create_accumulator()
            for values in rows:
                state = self._accumulated(state, values)
        if _overrides(made, "emit_value"):
            return as_declared(_emitted(made.emit_value, state), self._returns)
        return as_declared(made.get_value(state), self._returns)

    def _accumulated(self, state: Any, values: Sequence[Any]) -> Any:
        given = [as_flink_gives(each) for each in values] if self.as_flink else values
        made = self._instance.ready.accumulate(state, *given)
        return state if made is None else made


def _emitted(emit: Any, state: Any) -> list[Any]:
    """Return the rows of a table aggregate. It yields them, or passes them to a collector."""
    rows: list[Any] = []
    try:
        inspect.signature(emit).bind(state, None)
    except TypeError:
        return list(emit(state) or ())

    class Collector:
        collect = staticmethod(rows.append)

    emit(state, Collector())
    return rows


class _PandasWrapper(Wrapper):
    """Holds a function of pandas Series, and the type that it returns."""

    def __init__(self, function: Callable[..., Any], returns: pl.DataType) -> None:
        self._function, self._returns = function, returns

    @property
    def target(self) -> Any:
        return self._function


class OfPandas(_PandasWrapper):
    """A scalar function of pandas Series, as PyFlink calls it: once for the rows of a batch."""

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.target)

    def __call__(self, *arguments: pl.Series) -> pl.Series:
        return from_pandas(self._function(*map(to_pandas, arguments)), self._returns)


class AggregatingPandas(_PandasWrapper):
    """An aggregate function of pandas Series. Its state is the arguments of all rows of a group."""

    keeps_all_values = True

    def create(self) -> list[Any]:
        return []

    def add(self, state: list[Any], *values: Any) -> list[Any]:
        state.append(list(values))
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        return [*state, *other]

    def result(self, state: list[Any]) -> Any:
        import polars as pl

        if not state:
            return None
        made = self._function(*(to_pandas(pl.Series(column)) for column in map(list, zip(*state, strict=True))))
        value = made.item() if hasattr(made, "item") else made
        return None if value != value else as_declared(value, self._returns)


def to_pandas(series: pl.Series) -> Any:
    """Return a polars Series as pandas has it: a row's columns as a DataFrame. Raises FunctionError without pandas."""
    import polars as pl

    try:
        return series.struct.unnest().to_pandas() if isinstance(series.dtype, pl.Struct) else series.to_pandas()
    except ImportError as error:
        raise FunctionError(
            f"a pandas function needs pandas and pyarrow: {error}", hint="pip install pandas pyarrow"
        ) from error


def from_pandas(made: Any, returns: pl.DataType) -> pl.Series:
    """Return the result of a pandas function as a polars Series of the declared type; NaN is NULL, as in PyFlink."""
    import polars as pl

    if hasattr(made, "columns"):
        return pl.from_pandas(made, nan_to_null=True).to_struct("").cast(returns)
    series: pl.Series = pl.from_pandas(made, nan_to_null=True) if hasattr(made, "index") else pl.Series(list(made))  # type: ignore[assignment]
    return series.cast(returns)


# ------------------------------------------------------------------------------------------------------------- what it
# is


def is_pyflink(reference: Any) -> bool:
    """Return whether PyFlink's ``udf``, ``udtf``, ``udaf`` or ``udtaf`` made an object."""
    return all(hasattr(reference, each) for each in ("_func", "_func_type", "_deterministic", "_name")) and (
        hasattr(reference, "_result_type") or hasattr(reference, "_result_types")
    )


def of_pyflink_itself(instance: Any) -> bool:
    """Return whether an object is of a class that extends one of PyFlink's."""
    return any(each.__module__.partition(".")[0] == "pyflink" for each in type(instance).__mro__)


def is_aggregate(instance: Any) -> bool:
    """Return whether an object aggregates as Flink's functions do."""
    return hasattr(instance, "create_accumulator") and hasattr(instance, "accumulate")


def gives_rows(instance: Any, method: Any) -> bool:
    """Return whether a function gives rows: a generator, one annotated with ``Iterator[…]``, or a TableFunction of
    PyFlink.
    """
    plain = inspect.unwrap(method) if callable(method) else method
    if inspect.isgeneratorfunction(plain) or any(each.__name__ == "TableFunction" for each in type(instance).__mro__):
        return True
    return typing.get_origin(annotations_of(method).get("return")) in _OF_ROWS


def annotations_of(function: Any) -> dict[str, Any]:
    """Return the annotations of a function or callable object. Raises FunctionError when a name in them is unknown."""
    plain = unwrapped(function)
    plain = plain if inspect.isroutine(plain) else type(plain).__call__
    try:
        return typing.get_type_hints(plain)
    except (NameError, TypeError) as error:
        name = getattr(plain, "__qualname__", repr(plain))
        raise FunctionError(f"cannot read the annotations of {name}: {error}") from error


def declared_result(instance: Any, name: str) -> Any:
    """Return the type that an object says its results have (``get_result_type()``, ``result_type``); None when it says
    none.
    """
    asked = getattr(instance, "get_result_type", None)
    if callable(asked) and _overrides(instance, "get_result_type"):
        return _flink(asked(), name)
    given = getattr(instance, "result_type", None)
    return None if given is None or callable(given) else _flink(given, name)


def _flink(declared: Any, name: str) -> Any:
    import polars as pl

    if isinstance(declared, pl.DataType):
        return declared
    try:
        return flink_type(declared)
    except HeadraceError as error:
        raise FunctionError(f"function {name!r}: {error}") from error


def schema_of_rows(instance: Any, method: Any, name: str) -> Schema:
    """Return the columns of a table function. Raises FunctionError if they are not declared; the error says how to
    declare them.
    """
    import polars as pl

    declared = declared_result(instance, name)
    if declared is not None:
        return schema_of_type(declared)
    annotation = annotations_of(method).get("return")
    inner = typing.get_args(annotation)[0] if typing.get_args(annotation) else None
    if inner is None or typing.get_origin(annotation) not in _OF_ROWS:
        raise FunctionError(
            f"table function {name!r} does not declare the columns that it returns",
            hint="annotate it: -> Iterator[tuple[str, int]], or of a TypedDict, NamedTuple or dataclass, whose fields name the "
            "columns; or make it with hr.udtf(returns={…})",
        )
    if typing.get_origin(inner) is tuple:
        kinds = [each for each in typing.get_args(inner) if each is not Ellipsis]
        return Schema({f"f{number}": result_type(kind) for number, kind in enumerate(kinds)})
    fields = _named_fields(inner)
    if fields is not None:
        return Schema({field: result_type(kind) for field, kind in fields.items()})
    kind = result_type(inner)
    return schema_of_type(kind) if isinstance(kind, pl.Struct) else Schema({"f0": kind})


def schema_of_type(kind: pl.DataType) -> Schema:
    """Return the columns of a row type. Any other type gives one column, ``f0``."""
    import polars as pl

    if isinstance(kind, pl.Struct):
        return Schema(
            {each.name: each.dtype if isinstance(each.dtype, pl.DataType) else each.dtype() for each in kind.fields}
        )
    return Schema({"f0": kind})


def _named_fields(kind: Any) -> dict[str, Any] | None:
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        return {name: hints[name] for name in (getattr(kind, "_fields", None) or hints)}
    return None


def result_type(annotation: Any) -> pl.DataType:
    """Return the type of an annotation: ``str``, ``int | None``, ``list[float]``, ``dict[str, int]`` (a map), a
    NamedTuple or dataclass (a row). Raises OptionError.
    """
    import polars as pl

    parts = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    if type(None) in typing.get_args(annotation) and len(parts) == 1:
        return result_type(parts[0])
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return data_type(parts[1]) if isinstance(parts[1], str) else result_type(parts[0])
    if origin in (list, collections.abc.Sequence) and parts:
        return pl.List(result_type(parts[0]))
    if origin in (dict, collections.abc.Mapping) and len(parts) == 2:
        return pl.List(pl.Struct({"key": result_type(parts[0]), "value": result_type(parts[1])}))
    fields = _named_fields(annotation) if isinstance(annotation, type) else None
    if fields is not None:
        return pl.Struct({name: result_type(kind) for name, kind in fields.items()})
    return data_type(annotation)


def _overrides(instance: Any, name: str) -> bool:
    """Return whether an object's class implements a method, not only a base class of PyFlink whose method raises an
    error.
    """
    found = getattr(instance, name, None)
    module = getattr(getattr(found, "__func__", found), "__module__", "") or ""
    return callable(found) and not module.startswith("pyflink.")
