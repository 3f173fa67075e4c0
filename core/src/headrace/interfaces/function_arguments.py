"""Checks the annotations of a user's function against the types of a call, and puts named arguments in their order."""

from __future__ import annotations

import collections.abc
import datetime
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import FunctionError, did_you_mean
from headrace.interfaces.function_classes import Wrapper, annotations_of, unwrapped

if TYPE_CHECKING:
    import polars as pl

_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPS = (dict, collections.abc.Mapping)


def misfit(function: Any, given: Sequence[pl.DataType], *, skip: int = 0) -> tuple[int, str] | None:
    """Return the place of the first argument whose type the function's annotation does not take, and the annotation.

    ``function`` is the callable: a function, a method, an object. The first ``skip`` parameters do not belong to the
    call (the state of an aggregate). A parameter without an annotation, or with one that names no types of values,
    accepts everything.
    """
    plain = unwrapped(function)
    maps = isinstance(function, Wrapper) and function.as_flink
    try:
        parameters = list(inspect.signature(plain).parameters.values())[skip:]
    except (TypeError, ValueError):
        return None
    try:
        hints = annotations_of(plain)
    except FunctionError:
        # In a worker, the function came with the job, and its annotations may name classes that only its module has.
        # They were checked when the job was built.
        return None
    for place, kind in enumerate(given):
        if not parameters:
            return None
        parameter = parameters[min(place, len(parameters) - 1)]
        if place >= len(parameters) and parameter.kind is not parameter.VAR_POSITIONAL:
            return None
        annotation = hints.get(parameter.name, Any)
        if not _takes(annotation, kind, maps=maps):
            return place, _shown(annotation)
    return None


def placed(function: Any, named: Mapping[str, Any], given: int, *, skip: int = 0) -> list[tuple[str, Any]]:
    """Return the arguments after the first ``given`` ones, in order: (name, the value in ``named``, or the default as a
    literal).

    Parameters that are left out after the last named one are not in the list. Raises FunctionError for an unknown name,
    for a repeated name, and for a default between the given arguments that cannot be written in SQL.
    """
    plain = unwrapped(function)
    parameters = [
        each
        for each in list(inspect.signature(plain).parameters.values())[skip:]
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    names = [each.name for each in parameters]
    by_name = {name.lower(): name for name in names}
    wanted = {}
    for name, value in named.items():
        if name.lower() not in by_name:
            raise FunctionError(f"there is no argument {name!r}", hint=did_you_mean(name, names, known="arguments"))
        wanted[by_name[name.lower()]] = value
    made: list[tuple[str, Any]] = []
    last = max(names.index(name) for name in wanted)
    for place, parameter in enumerate(parameters[: last + 1]):
        if place < given:
            if parameter.name in wanted:
                raise FunctionError(f"argument {parameter.name!r} is given twice")
            continue
        if parameter.name in wanted:
            made.append((parameter.name, wanted[parameter.name]))
        elif parameter.default is parameter.empty:
            raise FunctionError(f"argument {parameter.name!r} is missing")
        elif parameter.default is None or isinstance(parameter.default, bool | int | float | str):
            made.append((parameter.name, Default(parameter.default)))
        else:
            raise FunctionError(
                f"argument {parameter.name!r} has a default value that SQL cannot express",
                hint=f"write {parameter.name} => …",
            )
    return made


class Default:
    """The default of a parameter that a call leaves out before a named one."""

    def __init__(self, value: bool | int | float | str | None) -> None:
        self.value = value


def _takes(annotation: Any, kind: pl.DataType, *, maps: bool) -> bool:
    """Return whether an annotation accepts values of a column's type. ``maps``: a map is given as a dict, not as its
    entries.
    """
    import polars as pl

    if isinstance(kind, pl.Null | pl.Object):
        return True
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(each is not type(None) and _takes(each, kind, maps=maps) for each in typing.get_args(annotation))
    if origin is typing.Annotated:
        return _takes(typing.get_args(annotation)[0], kind, maps=maps)
    if origin in _LISTS or annotation in _LISTS:
        inner = typing.get_args(annotation)
        if not isinstance(kind, pl.List | pl.Array):
            return False
        return not inner or _takes(inner[0], _plain(kind.inner), maps=maps)
    if origin in _MAPS or annotation in _MAPS:
        return isinstance(kind, pl.Struct) or (maps and _is_map(kind))
    known = _known().get(annotation) if isinstance(annotation, collections.abc.Hashable) else None
    return known is None or known(kind)


def _known() -> Mapping[Any, Any]:
    import polars as pl

    def one_of(*kinds: type[pl.DataType]) -> Any:
        return lambda kind: isinstance(kind, kinds)

    return {
        str: one_of(pl.String, pl.Categorical, pl.Enum),
        bool: one_of(pl.Boolean),
        int: lambda kind: kind.is_integer(),
        # As in Python, a float parameter accepts whole numbers.
        float: lambda kind: kind.is_float() or kind.is_integer(),
        bytes: one_of(pl.Binary),
        Decimal: lambda kind: isinstance(kind, pl.Decimal) or kind.is_integer(),
        datetime.datetime: one_of(pl.Datetime),
        datetime.date: one_of(pl.Date, pl.Datetime),
        datetime.time: one_of(pl.Time),
        datetime.timedelta: one_of(pl.Duration),
    }


def _is_map(kind: pl.DataType) -> bool:
    import polars as pl

    inner = _plain(kind.inner) if isinstance(kind, pl.List) else None
    return isinstance(inner, pl.Struct) and [each.name for each in inner.fields] == ["key", "value"]


def _plain(kind: Any) -> pl.DataType:
    return kind() if isinstance(kind, type) else kind  # type: ignore[no-any-return]


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
