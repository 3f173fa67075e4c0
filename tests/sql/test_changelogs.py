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


def check(name: str, data: Path, **options: Any) -> None:
    columns = golden.sinks_of(name)[name]["columns"]
    frame = golden.job_of(name, data).collect(changes=True, **options)
    found = [(row["op"], *_values(row, columns)) for row in frame.to_dicts()]
    wanted = expected_changes(name, columns)
    assert len(found) == len(wanted)
    wrong = next((place for place, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other), None)
    assert wrong is None, (wrong, found[wrong], wanted[wrong])


@pytest.mark.parametrize("name", ["s06", "s15"])
def test_windows_with_early_and_late_results(name: str, data: Path) -> None:
    check(name, data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_change_of_a_group_when_rows_come_one_by_one(data: Path) -> None:
    """An aggregation without windows gives one change per batch and key, as Flink does with mini-batches."""
    check("s03", data, max_batch_records=1)
