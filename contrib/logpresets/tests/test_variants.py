"""Variants of each log that its documentation names: other addresses, versions, missing parts, quotes, and what is not a record.

A line of ``variants/PRESET.ndjson`` has ``line``, and ``columns`` without those of a header of syslog; null: the line gives no row.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySource
from headrace_logpresets.presets import presets
from test_golden_lines import plain_values

FILES = sorted((Path(__file__).parent / "variants").glob("*.ndjson"))
HEADER = ("timestamp", "logsource", "program", "pid")


def variants(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def options(preset: str) -> dict[str, Any]:
    return {"year": 2026} if presets()[preset].syslog else {}


def decoded(preset: str, lines: list[str], **more: Any) -> hr.Decoded:
    codec_class = default_registry().find("codec", preset)
    codec = codec_class(codec_class.Settings.of({**options(preset), **more}, plugin=preset))
    found: hr.Decoded = codec.decoder(codec.default_schema()).decode(Bodies.of([line.encode() for line in lines]))
    return found


def shown(row: dict[str, Any], preset: str) -> dict[str, Any]:
    """Return the columns that have something, as they stand in the files."""
    left_out = HEADER if presets()[preset].syslog else ()
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in row.items()
        if value is not None and name not in left_out
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_format(path: Path) -> None:
    preset, found = path.stem, variants(path)
    got = decoded(preset, [each["line"] for each in found])
    assert [(found[bad.row]["line"], bad.reason) for bad in got.bad] == []
    expected = [each for each in found if each["columns"] is not None]
    for each, row in zip(expected, got.frame.to_dicts(), strict=True):
        assert shown(row, preset) == each["columns"], each["line"]
    if got.rows is not None:
        assert [found[row]["columns"] is not None for row in got.rows] == [True] * len(expected)


@pytest.mark.parametrize("names", ["ecs", "ocsf"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_other_names_have_the_same_values(path: Path, names: str) -> None:
    lines = [each["line"] for each in variants(path)]
    assert plain_values(decoded(path.stem, lines, fields=names).frame) == plain_values(decoded(path.stem, lines).frame)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_verb(path: Path) -> None:
    preset, found = path.stem, variants(path)
    bodies = [json.dumps({"text": each["line"]}).encode() for each in found]
    more = {"header": True, **options(preset)} if presets()[preset].syslog else {}
    rows = (
        hr.stream("t", "variants")
        .from_(MemorySource({"q": bodies}), format="json", schema={"text": "string"})
        .parse_log(preset, on="text", **more)
        .collect()
        .to_dicts()
    )
    expected = [each for each in found if each["columns"] is not None]
    for each, row in zip(expected, rows, strict=True):
        assert row.pop("text") == each["line"]
        assert shown(row, preset) == each["columns"]
