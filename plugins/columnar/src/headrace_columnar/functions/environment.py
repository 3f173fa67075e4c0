"""Functions of the current time and random functions. A job that uses them gives other results when it is replayed."""

from __future__ import annotations

import datetime
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from headrace_columnar.registry import Call, function
from headrace_columnar.sql_types import TIMESTAMP


@dataclass(frozen=True, slots=True)
class Outside:
    """A function that is called once per row, as a user's function is. A user's function of the same name replaces it."""

    name: str
    function: Callable[..., Any]
    return_type: pl.DataType
    vectorized: bool = False
    deterministic: bool = False


def _now() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC)


CLOCK = Outside("now", _now, TIMESTAMP)
_RANDOM = Outside("rand", random.random, pl.Float64())


def _new_uuid() -> str:
    return str(uuid.uuid4())


_UUID = Outside("uuid", _new_uuid, pl.String())


@function(
    "current_timestamp",
    "now",
    "localtimestamp",
    "proctime",
    signature="-> timestamp",
    summary="The time at which the row is processed.",
    examples=[("current_timestamp > TIMESTAMP '2024-01-01 00:00:00'", True), ("now() IS NULL", False)],
    deterministic=False,
)
def current_timestamp(call: Call) -> pl.Expr:
    return call.compiler.add_call(CLOCK, [])


@function(
    "current_date",
    "curdate",
    signature="-> date",
    summary="The day (in UTC) on which the row is processed.",
    examples=[("current_date() >= DATE '2024-01-01'", True)],
    deterministic=False,
)
def current_date(call: Call) -> pl.Expr:
    return call.compiler.add_call(CLOCK, []).dt.date()


@function(
    "rand",
    "random",
    signature=["-> float64", "seed constant integer -> float64"],
    summary="A random number, at least 0 and below 1. With a seed each process gives the same numbers one after the other.",
    examples=[("rand() < 1", True), ("rand(7) < 1", True)],
    deterministic=False,
)
def rand(call: Call) -> pl.Expr:
    return call.compiler.add_call(_random(call.constant(0)), [])


def _random(seed: int | None) -> Outside:
    return _RANDOM if seed is None else Outside("rand", random.Random(seed).random, pl.Float64())


@function(
    "rand_integer",
    signature=["bound integer -> int32", "seed constant integer, bound integer -> int32"],
    summary="A random whole number, at least 0 and below the bound; seeds as with rand. A bound below 1 fails the row.",
    examples=[("rand_integer(1)", 0), ("rand_integer(10) < 10", True), ("rand_integer(7, 1)", 0)],
    deterministic=False,
)
def rand_integer(call: Call) -> pl.Expr:
    bound = call[len(call) - 1]
    number = call.compiler.add_call(_random(call.constant(0) if len(call) > 1 else None), [])
    call.compiler.fail_when(bound < 1, "RAND_INTEGER: the bound must be greater than 0, not {value}", bound)
    return (number * bound).floor().cast(pl.Int32, strict=False)


@function(
    "uuid",
    signature="-> string",
    summary="A new random UUID (version 4).",
    examples=[("length(uuid())", 36)],
    deterministic=False,
)
def uuid_(call: Call) -> pl.Expr:
    return call.compiler.add_call(_UUID, [])
