"""The pieces that run Flink's programs, with a program of our own; and all of Flink's where the environment names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.published.flink import __main__ as target
from tests.published.flink.reading import VARIABLE, NoPrograms, Program, programs_of
from tests.published.flink.reasons import REASONS
from tests.published.flink.running import run_program
from tests.published.flink.values import equal, parts, shown, table_of


def row(kind: str, *values: Any) -> dict[str, Any]:
    return {"$": "row", "kind": kind, "v": list(values)}


def program(sql: str, *, wanted: list[str], mode: str = "I") -> Program:
    """Return a program that counts by key, with rows before and after a stop."""
    source = {
        "kind": "SOURCE_WITH_RESTORE_DATA", "name": "t", "schema": ["k STRING", "x INT", "PRIMARY KEY (k) NOT ENFORCED"],
        "partition": [], "options": {"changelog-mode": mode}, "before": [row("+I", "a", 1), row("+I", "b", 2)],
        "after": [row("+I", "c", 2)] if mode == "I" else [row("+U", "a", 2), row("-D", "b", None)],
    }  # fmt: skip
    sink: dict[str, Any] = {
        "kind": "SINK_WITH_RESTORE_DATA", "name": "s", "schema": ["x INT", "n BIGINT"], "partition": [], "options": {},
        "before": None, "after": None, "before_texts": wanted, "after_texts": None, "final": None, "final_texts": None,
        "tests_changes": True,
    }  # fmt: skip
    return Program("Own/counts", (source, sink), ({"kind": "SQL", "sql": sql},))


COUNTS = "INSERT INTO s SELECT x, COUNT(*) FROM t GROUP BY x"


@pytest.mark.parametrize("mode", ["one run", "stopped"])
def test_a_program_passes_in_both_ways(mode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_program(program(COUNTS, wanted=["+I[1, 1]", "+I[2, 2]"]), mode).outcome == "passes"
    assert run_program(program(COUNTS, wanted=["+I[2, 1]"], mode="I,UA,D"), mode).outcome == "passes"


def test_what_differs_and_what_is_refused_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    differs = run_program(program(COUNTS, wanted=["+I[1, 1]", "+I[2, 3]"]), "one run")
    assert differs.outcome == "different"
    assert "['2', '3']" in differs.why
    refused = run_program(program("INSERT INTO s SELECT x FROM t", wanted=[]), "one run")
    assert refused.outcome == "refused"
    assert "columns" in refused.why


def test_values_are_compared_as_flink_writes_them() -> None:
    assert parts("a, [b, {c=1, d=2}], e") == ["a", "[b, {c=1, d=2}]", "e"]
    assert equal("1.50", "1.5")
    assert equal("2020-01-01T00:00", "2020-01-01 00:00:00.000")
    assert equal("{a=1, b=2}", "{b=2, a=1}")
    assert not equal("a", "b")
    assert not equal("1", "2")
    assert shown([{"key": "a", "value": True}]) == "{a=true}"
    assert table_of([(0, ["a", "1"]), (2, ["a", "2"])], [0]) == [["a", "2"]]
    assert table_of([(0, ["a"]), (3, ["a"])], None) == []


def test_a_folder_without_programs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoPrograms, match="has no flink-table-planner"):
        programs_of(str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(NoPrograms, match=VARIABLE):
        programs_of()


def test_the_page_for_users_has_each_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sql.md").read_text(encoding="utf-8")
    names = {name.partition("/")[2] for name in REASONS}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_program_of_flink_passes_or_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no folder with Flink's jars")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["programs", "--page", str(tmp_path / "page.md")])
    assert target.main() == 0
