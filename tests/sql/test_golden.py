"""Every golden case on both backends, equal to what Flink gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql import golden


@pytest.mark.parametrize("name", golden.case_names())
def test_light_gives_what_flink_gives(name: str, data: Path) -> None:
    golden.check(name, data, "light")


# Cases that are fast whatever the batches; the others are among the slow ones below.
CHEAP = [*((name, 1000) for name in ("b01", "s03", "s04", "s05", "s12", "s13")), ("b01", 7), ("b01", 1)]


@pytest.mark.parametrize(("name", "size"), CHEAP)
def test_batches_change_nothing(name: str, size: int, data: Path) -> None:
    golden.check(name, data, "light", max_batch_records=size)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", [1, 7, 1000, 10_000])
@pytest.mark.parametrize("name", golden.case_names())
def test_batches_change_nothing_in_any_case(name: str, size: int, data: Path) -> None:
    if (name, size) not in CHEAP:
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
    import polars as pl

    columns = [["a", "INT"], ["x", "DOUBLE"]]
    expected = [{"a": 1, "x": 0.1}, {"a": 1, "x": 0.1}]
    assert golden.differing(expected, pl.DataFrame({"a": [1, 1], "x": [0.1, 0.1 + 1e-12]}), columns) == ""
    assert golden.differing(expected, pl.DataFrame({"a": [1], "x": [0.1]}), columns) != ""
    assert golden.differing(expected, pl.DataFrame({"a": [1, 1], "x": [0.1, 0.2]}), columns) != ""
