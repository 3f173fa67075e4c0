"""The index of equal keys gives what a dict of lists gives, whatever the buckets hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from headrace_dimension import exact_index
from headrace_dimension.exact_index import ExactIndex


def found(index: ExactIndex, order: Any, probes: pl.DataFrame) -> list[tuple[int, int]]:
    """Return (place in the probes, row of the table as it was given)."""
    asked, places = index.find(probes)
    return list(zip(asked.tolist(), order[places].tolist(), strict=True))


def naive(keys: pl.DataFrame, probes: pl.DataFrame) -> list[tuple[int, int]]:
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(keys.iter_rows()):
        if None not in key:
            rows.setdefault(key, []).append(row)
    return [(place, row) for place, key in enumerate(probes.iter_rows()) for row in rows.get(key, [])]


@pytest.mark.parametrize(
    ("rows", "different"),
    [(0, 1), (1, 1), (3, 2), (7, 7), (8, 3), (100, 2), (1_000, 900), (5_000, 7), (20_000, 15_000)],
)
@pytest.mark.parametrize("probes", [0, 1, 50, 3_000])
def test_equal_keys(rows: int, different: int, probes: int) -> None:
    random = np.random.default_rng([rows, different, probes])

    def texts(count: int) -> pl.Series:
        chosen = [None if n == 0 else f"key {n}" for n in random.integers(0, different + 2, count).tolist()]
        return pl.Series("key", chosen, dtype=pl.String)

    keys, asked = pl.DataFrame([texts(rows)]), pl.DataFrame([texts(min(probes, 60) if different < 10 else probes)])
    index, order = ExactIndex.of(keys)
    assert found(index, order, asked) == naive(keys, asked)


def test_two_key_columns_and_other_names_and_types() -> None:
    keys = pl.DataFrame(
        {"a": [1, 1, 2, None, 3], "b": ["x", "y", "x", "x", None]}, schema={"a": pl.UInt8(), "b": pl.String()}
    )
    index, order = ExactIndex.of(keys)
    probes = pl.DataFrame({"p": [1, 1, 2, None, 300, 3], "q": ["y", "x", "x", "x", "x", None]})
    assert found(index, order, probes) == [(0, 1), (1, 0), (2, 2)]


def test_very_many_rows_of_one_key_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_index, "_ROWS_AT_ONCE_MAX", 100)
    keys = pl.DataFrame({"key": ["many"] * 700 + ["one"] + ["many"] * 300 + ["some"] * 90})
    probes = pl.DataFrame({"key": ["one", "many", "none", "many", "some"]})
    index, order = ExactIndex.of(keys)
    assert found(index, order, probes) == naive(keys, probes)


def test_more_probes_than_16_bits_can_number() -> None:
    keys = pl.DataFrame({"key": [f"key {n % 500}" for n in range(1_000)]})
    probes = pl.DataFrame({"key": [f"key {n % 1_000}" for n in range(70_000)]})
    index, order = ExactIndex.of(keys)
    assert found(index, order, probes) == naive(keys, probes)


def test_hashes_that_are_alike_but_for_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys in one bucket, their 16 bits 0, 1 or 2: next to each other, and equal to the spare ones behind the last."""

    def hashes(keys: pl.DataFrame) -> Any:
        return keys["key"].str.len_bytes().to_numpy().astype(np.uint64) % np.uint64(3)

    monkeypatch.setattr(exact_index, "hashes_of", hashes)
    keys = pl.DataFrame({"key": ["x" * (n % 23) for n in range(100)]})
    probes = pl.DataFrame({"key": ["x" * n for n in range(30)]})
    index, order = ExactIndex.of(keys)
    assert sorted(found(index, order, probes)) == naive(keys, probes)
