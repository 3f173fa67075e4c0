"""Each process of `make unit` reads only the files that it runs, and every test that is wanted is run once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.file_parts import Marks, files_of, parts_of

ROOT = Path(__file__).parents[2]
#: A test that says which files of tests its process has read.
SAYS = """
import os, sys
def test_says():
    read = sorted(name.rpartition(".")[2] for name in sys.modules if name.rpartition(".")[2].startswith("test_of_"))
    open({said!r}, "a").write(f"{{os.getpid()}} {{' '.join(read)}}\\n")
"""
#: One whose process ends the first time, and tests before and after it.
ENDS = """
import os, pathlib
def test_before(): pass
def test_ends():
    if not pathlib.Path({ended!r}).exists():
        pathlib.Path({ended!r}).touch()
        os._exit(1)
def test_after(): pass
def test_after_that(): assert False
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a folder, as `make unit` does."""
    # Of the process that runs this test.
    others = {"PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID", "PYTEST_ADDOPTS"}
    environment = {name: text for name, text in os.environ.items() if name not in others}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.file_parts",
        "-p",
        "no:cacheprovider",
        f"--rootdir={folder}",
    ]
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: long\n  spark: of Spark\n")
    return subprocess.run(
        [*command, "-c", str(folder / "pytest.ini"), *options, str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


def test_each_process_reads_its_files_and_a_crashed_one_is_replaced_by_one_that_runs_the_rest(tmp_path: Path) -> None:
    said = tmp_path / "said"
    for name in "abc":
        (tmp_path / f"test_of_{name}.py").write_text(SAYS.format(said=str(said)))
    (tmp_path / "test_of_end.py").write_text(ENDS.format(ended=str(tmp_path / "ended")))
    (tmp_path / "test_of_hours.py").write_text(
        "import pytest\npytestmark = pytest.mark.slow\ndef test_long(): assert False\n"
    )
    done = run(tmp_path, "-m", "not slow", "-n", "2", "-ra")
    assert done.returncode == 1
    # Three that say something, one before the crash, one after it; the crash, and one that fails.
    assert re.search(r"2 failed, 5 passed in", done.stdout), done.stdout
    assert re.search(r"^FAILED .*test_of_end.py::test_ends", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^FAILED .*test_of_end.py::test_after_that", done.stdout, re.MULTILINE), done.stdout
    # Of all tests, not of those of one process.
    assert "[100%]" in done.stdout, done.stdout
    assert not re.search(r"\[(1[1-9]|[2-9]\d)\d%\]", done.stdout), done.stdout
    lines = [line.split() for line in said.read_text().splitlines()]
    assert {tuple(read) for _, *read in lines} == {("test_of_a", "test_of_c"), ("test_of_b", "test_of_end")}
    assert len(lines) == 3


def test_a_run_without_tests_and_one_that_ends_at_the_first_failure_say_so(tmp_path: Path) -> None:
    (tmp_path / "test_of_a.py").write_text("def test_it(): assert False\n")
    (tmp_path / "test_of_b.py").write_text("import time\ndef test_it(): pass\ndef test_then(): pass\n")
    none = run(tmp_path, "-n", "3", "-k", "nothing")
    assert none.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, none.stdout
    first = run(tmp_path, "-n", "3", "-x")
    assert first.returncode == pytest.ExitCode.INTERRUPTED, first.stdout
    assert "1 failed" in first.stdout


def test_a_mark_by_which_files_are_chosen_is_named_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "marked.py").write_text(
        "import pytest\n@pytest.mark.spark\nclass Tests:\n    def test_it(self): pass\n"
    )
    (tmp_path / "test_of_a.py").write_text("import marked\nclass TestIt(marked.Tests): pass\n")
    hidden = run(tmp_path, "-m", "not spark")
    assert hidden.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_of_a.py are marked 'spark' by another file" in hidden.stderr
    slow = "import marked, pytest\n@pytest.mark.slow\nclass TestIt(marked.Tests): pass\n"
    (tmp_path / "test_of_a.py").write_text(slow)  # no run with this plug-in wants it
    assert "1 deselected" in run(tmp_path, "-m", "not slow and not spark").stdout
    (tmp_path / "test_of_a.py").write_text("import marked\nclass TestIt(marked.Tests): pass  # pytest.mark.spark\n")
    assert "1 passed" in run(tmp_path, "-m", "spark").stdout


def test_files_whose_tests_cannot_have_the_marks_are_left_out(tmp_path: Path) -> None:
    texts = {
        "test_plain.py": "def test_it(): pass",
        "test_slow.py": "pytestmark = pytest.mark.slow",
        "test_both.py": "pytestmark = [\n    pytest.mark.timeout(9),\n    pytest.mark.slow,\n]\n",
        "test_some.py": "pytestmark = pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.slow)])",
        "test_spark.py": "pytestmark = pytest.mark.spark\n",
        "test_one_on_spark.py": "@pytest.mark.spark\ndef test_it(): pass\n\n@pytest.mark.slow\ndef test_it(): pass\n",
        "helper.py": "def test_it(): pass",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    some = ["test_both.py", "test_slow.py", "test_spark.py"]

    def chosen(marks: str) -> list[str]:
        return [Path(path).name for path in files_of([str(tmp_path)], Marks(marks))]

    assert chosen("not slow and not spark") == ["test_one_on_spark.py", "test_plain.py", "test_some.py"]
    assert chosen("not slow and spark") == ["test_one_on_spark.py", "test_spark.py"]
    assert chosen("") == sorted(name for name in texts if name != "helper.py")
    assert set(some) <= set(chosen(""))
    named = f"{tmp_path}/test_slow.py::test_it"
    assert files_of([named], Marks("not slow")) == [named]  # what is named one by one is for pytest to judge
    with pytest.raises(pytest.UsageError, match="slow or spark"):
        Marks("slow or spark")


def test_parts_take_about_the_same_time_and_have_each_file_once() -> None:
    files = [f"tests/{number}.py" for number in range(40)]
    seconds = {"tests/3.py": 20.0, "tests/9.py": 12.0, "tests/30.py": 9.0}
    parts = parts_of(files, seconds, 2)
    assert sorted(file for part in parts for file in part) == sorted(files)
    assert [sum(seconds.get(file, 0.5) for file in part) for part in parts] == [30.0, 29.5]
    assert all(part == sorted(part, key=files.index) for part in parts)
    assert parts_of(files[:1], seconds, 3) == [files[:1], [], []]
