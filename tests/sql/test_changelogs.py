"""Changes in the order in which Flink gives them, where that is fixed."""

from __future__ import annotations

import json
import lzma
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.sql import golden


def expected_changes(name: str, columns: list[list[str]]) -> list[tuple[Any, ...]]:
    """Return (kind, values) of every change, in order."""
    with lzma.open(golden.CASES / f"{name}.changelog.xz", "rt", encoding="utf-8") as lines:
        parted = [line.split("\t", 1) for line in lines if line.strip()]
    return [(kind, *_values(json.loads(row, parse_float=Decimal), columns)) for kind, row in parted]


def _values(row: dict[str, Any], columns: list[list[str]]) -> list[Any]:
    return [golden._value(row[name], kind) for name, kind in columns]


def changes(name: str, data: Path, **options: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the changes that a case gives here, and those that Flink gives."""
    columns = golden.sinks_of(name)[name]["columns"]
    frame = golden.job_of(name, data).collect(changes=True, **options)
    return [(row["op"], *_values(row, columns)) for row in frame.to_dicts()], expected_changes(name, columns)


@pytest.mark.parametrize("name", ["s06", "s15"])
def test_windows_with_early_and_late_results(name: str, data: Path) -> None:
    found, wanted = changes(name, data)
    assert len(found) == len(wanted)
    wrong = next((place for place, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other), None)
    assert wrong is None, (wrong, found[wrong], wanted[wrong])


@pytest.mark.parametrize("options", [{}, {"max_batch_records": 500}])
def test_changes_of_a_group_are_some_of_those_row_by_row(options: dict[str, Any], data: Path) -> None:
    """An aggregation without windows gives one change per batch and key: as Flink's mini-batches, a part of all changes."""
    found, wanted = changes("s03", data, **options)
    ours, theirs = _results_by_key(found), _results_by_key(wanted)
    assert ours.keys() == theirs.keys()
    for key, results in ours.items():
        left = iter(theirs[key])
        assert all(result in left for result in results), key  # in this order
        assert results[-1] == theirs[key][-1]


def _results_by_key(found: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Return the results of each group (tag, act), one after the other."""
    made: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for kind, tag, act, *result in found:
        if kind in ("+I", "+U"):
            made.setdefault((tag, act), []).append(tuple(result))
            last[tag, act] = tuple(result)
        else:  # what is taken back is what was given last
            assert last[tag, act] == tuple(result)
    return made
