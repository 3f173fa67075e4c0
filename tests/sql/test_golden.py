"""Every golden case on both backends, equal to what Flink gives."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest

from tests.sql import golden


@pytest.mark.parametrize("name", golden.case_names())
def test_light_gives_what_flink_gives(name: str, data: Path) -> None:
    golden.check(name, data, "light")


# Cases that are fast whatever the batches; the others are among the slow ones below.
CHEAP = [*((name, 1000) for name in ("b01", "s03", "s04", "s05", "s12", "s13")), ("b01", 7), ("b01", 1)]
DEAR = [pair for pair in itertools.product(golden.case_names(), (1, 7, 1000, 10_000)) if pair not in CHEAP]


@pytest.mark.parametrize(("name", "size"), CHEAP)
def test_batches_change_nothing(name: str, size: int, data: Path) -> None:
    golden.check(name, data, "light", max_batch_records=size)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "size"), DEAR)
def test_batches_change_nothing_in_any_case(name: str, size: int, data: Path) -> None:
    golden.check(name, data, "light", max_batch_records=size, shards=2 if size == 1000 else 1)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["s05"])
def test_spark_gives_what_flink_gives(name: str, data: Path) -> None:
    golden.check(name, data, "spark")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name in golden.case_names() if name != "s05"])
def test_spark_gives_what_flink_gives_for_the_others(name: str, data: Path) -> None:
    golden.check(name, data, "spark")


def test_a_difference_is_seen() -> None:
    columns = [["a", "INT"], ["x", "DOUBLE"]]
    expected = [{"a": 1, "x": 0.1}, {"a": 1, "x": 0.1}]
    assert golden.differing(expected, pl.DataFrame({"a": [1, 1], "x": [0.1, 0.1 + 1e-12]}), columns) == ""
    assert golden.differing(expected, pl.DataFrame({"a": [1], "x": [0.1]}), columns) != ""
    assert golden.differing(expected, pl.DataFrame({"a": [1, 1], "x": [0.1, 0.2]}), columns) != ""


def frames_of(name: str) -> dict[str, pl.DataFrame]:
    """Return what a run that is right gives for a case."""
    made = {}
    for stem, meta in golden.sinks_of(name).items():
        names = [column for column, _ in meta["columns"]]
        rows = [{column: row[column] for column in names} for row in golden.expected_rows(stem)]
        made[stem.split(".")[-1]] = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    return made


SEVERAL = next(name for name in golden.case_names() if len(golden.sinks_of(name)) > 1)
SINGLE = next(name for name in golden.case_names() if len(golden.sinks_of(name)) == 1)


@pytest.mark.parametrize("name", [SEVERAL, SINGLE])
def test_a_check_fails_when_a_sink_is_missing_or_too_many(name: str) -> None:
    frames = frames_of(name)
    golden.compare(name, frames)
    some = next(iter(frames))
    for broken in (
        {},
        {sink: frame for sink, frame in frames.items() if sink != some},
        {**frames, "other": frames[some]},
        {**frames, some: frames[some].head(frames[some].height - 1)},
    ):
        with pytest.raises(AssertionError, match=name):
            golden.compare(name, broken)


def test_a_case_that_does_not_exist_is_no_case_without_sinks() -> None:
    with pytest.raises(AssertionError, match="there is no golden case 'nothing'"):
        golden.sinks_of("nothing")
