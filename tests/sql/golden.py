"""Golden cases: a SQL text, and the rows that Flink 2.3 gives for it.

A case is ``cases/NAME.sql`` with one ``NAME.jsonl.xz`` and ``NAME.meta.json`` (``NAME.SINK.…`` for several sinks). To add one, put
these files there. ``${DATA}`` in the text is where the generated input lies.
"""

from __future__ import annotations

import collections
import json
import lzma
import math
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl

CASES = Path(__file__).parent / "cases"


def case_names() -> list[str]:
    """Return the names of all cases."""
    return sorted(path.stem for path in CASES.glob("*.sql"))


# What the functions of the cases mean.


@hr.udtf(returns={"tag": "string", "pos": "int32"})
def split_tags(text: str | None) -> Any:
    for place, part in enumerate((text or "").split("|"), 1):
        if part:
            yield part, place


@hr.udtf(returns={"a": "string", "b": "int64", "c": "int32"})
def parse_udtf(text: str | None) -> Any:
    for part in (text or "").split("|"):
        if part:
            a, b, c = part.split(",")
            yield a, int(b), int(c)


@hr.udf(returns="int64")
def str_len(*texts: str | None) -> int:
    return sum(len(text) for text in texts if text is not None)


@hr.udaf(returns="float64", name="wavg")
class WeightedAverage:
    def create(self) -> list[float]:
        return [0.0, 0.0, 0]

    def add(self, state: list[float], value: float | None, weight: float | None) -> list[float]:
        if value is not None and weight is not None:
            state = [state[0] + value * weight, state[1] + weight, state[2] + 1]
        return state

    def merge(self, state: list[float], other: list[float]) -> list[float]:
        return [mine + its for mine, its in zip(state, other, strict=True)]

    def result(self, state: list[float]) -> float | None:
        return None if not state[2] or not state[1] else state[0] / state[1]


FUNCTIONS = {
    "nx.udf.SplitTags": split_tags, "nx.udf.ParseUdtf": parse_udtf, "nx.udf.StrLen": str_len, "nx.udf.WAvg": WeightedAverage,
}  # fmt: skip


def text_of(name: str, data: Path) -> str:
    """Return the text of a case, reading the generated data."""
    text = (CASES / f"{name}.sql").read_text(encoding="utf-8").replace("${DATA}", data.as_uri())
    return re.sub(r"filePath = '([^']+)'", lambda found: f"filePath = '{data / 'blink' / found[1]}'", text)


def job_of(name: str, data: Path) -> Any:
    """Return the job of a case."""
    return hr.sql(text_of(name, data), functions=FUNCTIONS, pipeline=name)


def check(name: str, data: Path, backend: str, **options: Any) -> None:
    """Run a case and compare each sink's rows, in any order, with the expected ones."""
    job = job_of(name, data)
    made = job.collect(backend=backend, **options)
    compare(name, made if isinstance(made, dict) else {next(iter(job.script.relations())): made})


def compare(name: str, frames: Mapping[str, pl.DataFrame]) -> None:
    """Compare the rows of all sinks of a case with the expected ones. Each sink that is expected must be there, and no other."""
    sinks = sinks_of(name)
    single = list(sinks) == [name]
    found = {name if single else f"{name}.{sink}": frame for sink, frame in frames.items()}
    assert len(found) == len(frames), f"{name} has one sink, and rows came for {sorted(frames)}"
    assert found.keys() == sinks.keys(), f"rows came for {sorted(found)}, not for {sorted(sinks)}"
    for stem, frame in found.items():
        difference = differing(expected_rows(stem), frame, sinks[stem]["columns"])
        assert not difference, f"{stem}: {difference}"


def sinks_of(name: str) -> dict[str, dict[str, Any]]:
    """Return what is known of a case's sinks, by the stem of their files: ``NAME`` or ``NAME.SINK``."""
    paths = sorted(CASES.glob(f"{name}.*meta.json"))
    assert paths, f"there is no golden case {name!r}"
    return {each.name.removesuffix(".meta.json"): json.loads(each.read_text(encoding="utf-8")) for each in paths}


def expected_rows(stem: str) -> list[dict[str, Any]]:
    """Return the rows that a sink has in the end."""
    with lzma.open(CASES / f"{stem}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line, parse_float=Decimal) for line in lines if line.strip()]


def differing(expected: list[dict[str, Any]], frame: pl.DataFrame, columns: list[list[str]]) -> str:
    """Return what differs, or an empty text. Floating-point numbers may differ in their last digits."""
    want, have = _bag(expected, columns), _bag(frame.to_dicts(), columns)
    missing, extra = want - have, have - want
    floats = {at for at, (_, kind) in enumerate(columns) if kind in ("DOUBLE", "FLOAT")}
    for row in list(missing) if floats else ():
        near = next((other for other in extra if extra[other] >= missing[row] and _near(row, other, floats)), None)
        if near is not None:
            extra[near] -= missing.pop(row)
    left = [row for row, count in extra.items() if count > 0]
    if not missing and not left:
        return ""
    return f"{sum(want.values())} rows expected, {sum(have.values())} there; missing {list(missing)[:3]}, unexpected {left[:3]}"


def _near(row: tuple[Any, ...], other: tuple[Any, ...], floats: set[int]) -> bool:
    return all(
        mine == its
        or (
            at in floats
            and mine is not None
            and its is not None
            and math.isclose(mine, its, rel_tol=1e-9, abs_tol=1e-9)
        )
        for at, (mine, its) in enumerate(zip(row, other, strict=True))
    )


def _bag(rows: list[dict[str, Any]], columns: list[list[str]]) -> collections.Counter[tuple[Any, ...]]:
    return collections.Counter(tuple(_value(row[name], kind) for name, kind in columns) for row in rows)


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.startswith("TIMESTAMP"):
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if kind.startswith("DECIMAL"):
        return Decimal(str(value)).normalize() + 0
    if kind in ("DOUBLE", "FLOAT"):
        return float(value)
    if kind == "TIME":
        return str(value).removesuffix(".000000")
    return str(value) if kind == "DATE" else value
