"""``headrace run``, ``explain`` and ``lint`` take files that end in .sql."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from headrace_console.app import app
from headrace_console.job_files import load_job
from typer.testing import CliRunner

TEXT = """
CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '${DATA}', 'format' = 'json');
SET 'parallelism.default' = '2';
SELECT k, v * 2 AS w FROM t WHERE v > 1;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pl.DataFrame({"k": ["a", "b"], "v": [1, 2]}).write_ndjson(tmp_path / "rows.ndjson")
    path = tmp_path / "job.sql"
    path.write_text(TEXT)
    return path


def test_a_sql_file_is_a_job(file: Path) -> None:
    job = load_job(str(file), {"DATA": str(file.parent / "rows.ndjson")})
    assert job.name == "sql.job"
    assert job.collect().rows() == [("b", 4)]


def test_run_prints_what_a_query_gives(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    result = CliRunner().invoke(app, ["run", str(file), "-b", "light", "--set", f"DATA={file.parent / 'rows.ndjson'}"])
    assert result.exit_code == 0, result.output
    assert '{"k":"b","w":4}' in result.output


def test_lint_tells_what_has_no_effect_and_what_is_wrong(file: Path) -> None:
    good = CliRunner().invoke(app, ["lint", str(file), "--set", f"DATA={file.parent / 'rows.ndjson'}"])
    assert good.exit_code == 0, good.output
    assert "notice: SET 'parallelism.default' has no effect here" in good.output
    file.write_text(TEXT.replace("v > 1", "w > 1"))
    bad = CliRunner().invoke(app, ["lint", str(file), "--set", f"DATA={file.parent / 'rows.ndjson'}"])
    assert bad.exit_code == 2
    assert "unknown column 'w'" in bad.output
