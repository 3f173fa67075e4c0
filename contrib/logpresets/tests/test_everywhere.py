"""Every preset gives the same rows and dead letters in Python, in a pipeline of YAML and in SQL, on light and on Spark."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.interfaces.language import language
from headrace_logpresets.presets import Choices, presets
from preset_lines import GOLDEN
from test_variants import FILES, options, variants

Rows = list[dict[str, Any]]
NAMES = sorted(presets())
_TYPES = {pl.String(): "STRING", pl.Int64(): "BIGINT", pl.Float64(): "DOUBLE", pl.Boolean(): "BOOLEAN"}


def lines_of(preset: str) -> list[str]:
    """Return lines that are good, are no record, and are bad. A file cannot hold those that go over several lines."""
    found = [line for name, line, _ in GOLDEN if name == preset]
    found += [each["line"] for path in FILES if path.stem == preset for each in variants(path)]
    return [line for line in found if "\n" not in line and "\r" not in line] + ["no line of it", '{"no": "event"}']


def written(preset: str, directory: Path) -> Path:
    path = directory / f"{preset}.log"
    path.write_text("\n".join(lines_of(preset)) + "\n")
    return path


def rows_in(directory: Path) -> Rows:
    """Return the rows of files of JSON, in an order of their own, with the columns that have something."""
    found = [json.loads(line) for part in directory.rglob("*.json") for line in part.read_text().splitlines()]
    rows = [{name: value for name, value in row.items() if value is not None} for row in found]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def reasons_in(directory: Path) -> list[str]:
    return sorted(str(row["reason"]) for row in rows_in(directory))


def in_python(preset: str, path: Path, place: Path) -> tuple[Rows, list[str]]:
    stream = hr.stream("tests", "everywhere").from_file(str(path), format=preset, **options(preset))
    letters = partial(_to_json, place / "bad")
    stream.dead_letters(letters).to_file(place / "good", format="json").run("light", show_progress=False)
    return rows_in(place / "good"), reasons_in(place / "bad")


def _to_json(place: Path, stream: hr.Stream) -> Any:
    return stream.to_file(place, format="json")


def in_yaml(preset: str, path: Path, place: Path) -> tuple[Rows, list[str]]:
    place.mkdir()
    year = "".join(f"\n    {name}: {value}" for name, value in options(preset).items())
    (place / "job.yaml").write_text(f"""name: everywhere
sources:
  lines:
    connector: file
    path: {path}
    format: {preset}{year}
steps: []
sinks:
  out:
    connector: file
    path: {place / "good"}
    format: json
dead_letters:
  connector: file
  path: {place / "bad"}
  format: json
""")
    job: hr.Job = language("yaml").job(str(place / "job.yaml"))
    job.run("light", show_progress=False)
    return rows_in(place / "good"), reasons_in(place / "bad")


def in_sql(names: list[str], directory: Path, place: Path) -> str:
    """Return a text in which each preset is the format of a table."""
    tables, inserts = [], []
    for preset in names:
        table = preset.replace("-", "_")
        columns = ", ".join(
            f"`{name}` {_sql_type(kind)}"
            for name, kind in presets()[preset].columns(Choices(header=presets()[preset].syslog)).items()
        )
        year = "".join(f", '{preset}.{name}' = '{value}'" for name, value in options(preset).items())
        source = f"'connector' = 'filesystem', 'path' = '{directory / preset}.log', 'format' = '{preset}'{year}"
        sink = f"'connector' = 'filesystem', 'path' = '{place / preset}', 'format' = 'json'"
        tables += [f"CREATE TABLE {table} ({columns}) WITH ({source});"]
        tables += [f"CREATE TABLE {table}_out ({columns}) WITH ({sink});"]
        inserts += ["INSERT INTO TABLE_out SELECT * FROM TABLE;".replace("TABLE", table)]
    return "\n".join([*tables, *inserts])


def _sql_type(kind: pl.DataType) -> str:
    if isinstance(kind, pl.List):
        return f"ARRAY<{_sql_type(kind.inner)}>"  # type: ignore[arg-type]
    return "TIMESTAMP_LTZ(6)" if isinstance(kind, pl.Datetime) else _TYPES[kind]


@pytest.mark.parametrize("preset", NAMES)
def test_python_yaml_and_sql_on_light(preset: str, tmp_path: Path) -> None:
    path = written(preset, tmp_path)
    good, bad = in_python(preset, path, tmp_path / "python")
    assert len(bad) == 2
    # A file divides the entries of this log into lines, none of which is one.
    assert good or preset == "mysql-slow"
    assert in_yaml(preset, path, tmp_path / "yaml") == (good, bad)
    hr.sql(in_sql([preset], tmp_path, tmp_path / "sql")).run("light", show_progress=False)
    assert from_sql(tmp_path / "sql" / preset, preset) == good


def from_sql(directory: Path, preset: str) -> Rows:
    """Return the rows of files that SQL has written: there the values of columns of JSON are strings."""
    names = presets()[preset].columns(Choices()).json_columns
    rows = [
        {name: json.loads(value) if name in names else value for name, value in row.items()}
        for row in rows_in(directory)
    ]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.mark.slow
@pytest.mark.spark
def test_spark_gives_what_light_gives(tmp_path: Path) -> None:
    """All presets in one job."""
    for preset in NAMES:
        written(preset, tmp_path)
    hr.sql(in_sql(NAMES, tmp_path, tmp_path / "spark")).run("spark", show_progress=False)
    for preset in NAMES:
        good, _ = in_python(preset, tmp_path / f"{preset}.log", tmp_path / "light" / preset)
        assert from_sql(tmp_path / "spark" / preset, preset) == good
