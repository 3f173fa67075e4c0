"""``headrace explain``: formats, files, errors."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace.plan.explain import plan_as_mermaid, plan_as_text
from headrace_console.job_files import load_job
from headrace_console.picture import plan_as_svg
from typer.testing import Result

Command = Callable[..., Result]


def test_text_is_the_default(headrace: Command, simple_job: Path) -> None:
    result = headrace("explain", simple_job)
    assert result.exit_code == 0
    assert result.stdout == plan_as_text(load_job(str(simple_job)).plan())
    assert "  ○  where         a >= 2\n" in result.stdout


def test_mermaid_and_svg(headrace: Command, simple_job: Path) -> None:
    plan = load_job(str(simple_job)).plan()
    assert headrace("explain", simple_job, "--format", "mermaid").stdout == plan_as_mermaid(plan)
    assert headrace("explain", simple_job, "--format", "svg").stdout == plan_as_svg(plan)


@pytest.mark.parametrize(
    ("name", "begin"),
    [("plan.svg", "<svg "), ("plan.mmd", "flowchart TD"), ("PLAN.TXT", "job test.simple")],
)
def test_the_suffix_of_the_output_says_the_format(
    headrace: Command, simple_job: Path, tmp_path: Path, name: str, begin: str
) -> None:
    result = headrace("explain", simple_job, "-o", tmp_path / name)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr == f"wrote {tmp_path / name}\n"
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)


def test_the_flag_wins_over_the_suffix(headrace: Command, simple_job: Path, tmp_path: Path) -> None:
    assert headrace("explain", simple_job, "-o", tmp_path / "plan.txt", "--format", "svg").exit_code == 0
    assert ET.parse(tmp_path / "plan.txt").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_suffix_that_says_nothing(headrace: Command, simple_job: Path, tmp_path: Path) -> None:
    result = headrace("explain", simple_job, "-o", tmp_path / "plan.png")
    assert result.exit_code == 2
    assert "the suffix of 'plan.png' does not say which format is wanted" in result.stderr
    assert ".mermaid, .mmd, .svg, .txt" in result.stderr


def test_an_output_that_cannot_be_written(headrace: Command, simple_job: Path, tmp_path: Path) -> None:
    result = headrace("explain", simple_job, "-o", tmp_path / "nowhere" / "plan.svg")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_a_wrong_job(headrace: Command) -> None:
    result = headrace("explain", "missing.py")
    assert result.exit_code == 2
    assert result.stderr == "error: missing.py does not exist\n  hint: name the Python file that builds the job\n"
