"""INSERT OVERWRITE: what the table's files hold is removed when the job begins, and stays when it goes on."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest


def table(place: Path) -> str:
    return f"""CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = '{place}/in.ndjson', 'format' = 'json');
      CREATE TABLE s (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '{place}/out', 'format' = 'json');
    """


def give(place: Path, *rows: tuple[str, int], mode: str = "w") -> None:
    with (place / "in.ndjson").open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps({"k": k, "n": n}) + "\n" for k, n in rows)


def rows_of(place: Path) -> list[tuple[Any, ...]]:
    parts = [each for each in (place / "out").iterdir() if each.is_file() and not each.name.startswith((".", "_"))]
    return sorted(
        tuple(json.loads(line).values()) for each in parts for line in each.read_text(encoding="utf-8").splitlines()
    )


def test_each_run_from_the_beginning_replaces_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    give(tmp_path, ("a", 1), ("b", 2))
    hr.sql(table(tmp_path) + "INSERT INTO s SELECT k, n FROM t").run("light", show_progress=False)
    assert rows_of(tmp_path) == [("a", 1), ("b", 2)]
    for query, wanted in (
        ("SELECT k, n * 10 FROM t", [("a", 10), ("b", 20)]),  # another job of the same name
        ("SELECT k, n * 10 FROM t", [("a", 10), ("b", 20)]),
    ):
        hr.sql(table(tmp_path) + "INSERT OVERWRITE s " + query).run("light", show_progress=False)
        assert rows_of(tmp_path) == wanted


def test_a_job_that_goes_on_adds_to_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = table(tmp_path) + "INSERT OVERWRITE s SELECT k, n FROM t"
    give(tmp_path, ("a", 1))
    (tmp_path / "out").mkdir()
    options: dict[str, Any] = {"checkpoint": str(tmp_path / "checkpoint"), "show_progress": False}
    hr.sql(text).run("light", **options)
    give(tmp_path, ("b", 2), mode="a")
    hr.sql(text).run("light", **options)
    assert rows_of(tmp_path) == [("a", 1), ("b", 2)]
