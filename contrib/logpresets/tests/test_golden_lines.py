"""Every preset reads lines as the documentation of its program shows them; as a format and as a verb."""

from __future__ import annotations

from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySource
from headrace_logpresets.plugin import NAMES
from headrace_logpresets.presets import Choices, presets
from preset_lines import GOLDEN, HEADER


def decoded(preset: str, lines: list[str], **options: Any) -> hr.Decoded:
    codec_class = default_registry().find("codec", preset)
    codec = codec_class(codec_class.Settings.of(options, plugin=preset))
    found: hr.Decoded = codec.decoder(codec.default_schema()).decode(Bodies.of([line.encode() for line in lines]))
    return found


def year_of(preset: str) -> dict[str, Any]:
    return {"year": 2026} if presets()[preset].syslog else {}


@pytest.mark.parametrize(("preset", "line", "expected"), GOLDEN)
def test_line(preset: str, line: str, expected: dict[str, Any]) -> None:
    found = decoded(preset, [line], **year_of(preset))
    assert [bad.reason for bad in found.bad] == []
    row = found.frame.row(0, named=True)
    assert {name: value for name, value in row.items() if value is not None} == expected


@pytest.mark.parametrize(("preset", "line", "expected"), GOLDEN)
def test_names_by_ecs_have_the_same_values(preset: str, line: str, expected: dict[str, Any]) -> None:
    options = year_of(preset)
    plain = decoded(preset, [line], **options).frame
    ecs = decoded(preset, [line], fields="ecs", **options).frame
    assert ecs.row(0) == plain.row(0)
    assert not set(ecs.columns) & {"timestamp", "pid", "clientip", "user"}


def plain_values(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Return values as texts: OCSF has texts for some numbers, and arrays for some texts."""
    return [
        tuple(str(value[0] if isinstance(value, list) and len(value) == 1 else value) for value in row)
        for row in frame.rows()
    ]


@pytest.mark.parametrize(("preset", "line", "expected"), GOLDEN)
def test_names_by_ocsf_have_the_same_values(preset: str, line: str, expected: dict[str, Any]) -> None:
    options = year_of(preset)
    plain = decoded(preset, [line], **options).frame
    ocsf = decoded(preset, [line], fields="ocsf", **options).frame
    assert plain_values(ocsf) == plain_values(plain)
    assert {"time", "start_time"} & set(ocsf.columns)
    assert len(set(ocsf.columns)) == plain.width


@pytest.mark.parametrize("preset", sorted({preset for preset, _, _ in GOLDEN}))
def test_other_lines_are_bad_and_do_not_harm_their_neighbours(preset: str) -> None:
    lines = [line for name, line, _ in GOLDEN if name == preset]
    mixed = [each for line in lines for each in (line, "", "no such log")]
    found = decoded(preset, mixed, **year_of(preset))
    assert [bad.row for bad in found.bad] == [row for row in range(len(mixed)) if row % 3]
    assert all(bad.reason for bad in found.bad)
    assert found.frame.rows() == decoded(preset, lines, **year_of(preset)).frame.rows()


def test_every_preset_has_a_line_and_a_format() -> None:
    assert {preset for preset, _, _ in GOLDEN} == set(presets()) == set(NAMES)


@pytest.mark.parametrize("preset", sorted(presets()))
def test_names_of_columns_are_unique(preset: str) -> None:
    found = presets()[preset]
    for header in {False, found.syslog}:
        plain, ecs = (found.columns(Choices(ecs=ecs, header=header)) for ecs in (False, True))
        assert list(plain.values()) == list(ecs.values())  # as many: none hides another


@pytest.mark.parametrize(
    ("preset", "line", "expected"), [each for each in GOLDEN if presets()[each[0]].syslog and "T" not in each[1][:12]]
)
def test_verb_on_messages_without_a_header(preset: str, line: str, expected: dict[str, Any]) -> None:
    message = line.split(": ", 1)[1]
    row = parsed([message], preset)[0]
    assert {name: value for name, value in row.items() if value is not None and name != "message"} == {
        name: value for name, value in expected.items() if name not in {*HEADER, "program", "pid"}
    }


@pytest.mark.parametrize(("preset", "line", "expected"), GOLDEN)
def test_verb_on_whole_lines(preset: str, line: str, expected: dict[str, Any]) -> None:
    options = {"header": True, "year": 2026} if presets()[preset].syslog else {}
    row = parsed([line], preset, **options)[0]
    if "message" not in presets()[preset].columns(Choices()):
        assert row.pop("message") == line
    assert {name: value for name, value in row.items() if value is not None} == expected


def parsed(messages: list[str | None], preset: str, **options: Any) -> list[dict[str, Any]]:
    """Return the rows that the verb makes."""
    frame = pl.DataFrame({"message": messages}, schema={"message": pl.String})
    bodies = [row.encode() for row in frame.write_ndjson().splitlines()]
    source = MemorySource({"q": bodies})
    rows: list[dict[str, Any]] = (
        hr.stream("t", "lines")
        .from_(source, format="json", schema={"message": "string"})
        .parse_log(preset, **options)
        .collect()
        .to_dicts()
    )
    return rows
