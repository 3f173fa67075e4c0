"""Reads all modules of tests, as a first run of pytest does, and notes the files in which there are tests with some marks.

    python -m tests.reading_tests PLAIN SPARK "not slow and not servers" core/tests plugins/sql/tests …

``SPARK`` has the files with tests of Spark, ``PLAIN`` those with other tests: a path a line, as ``pytest @PLAIN`` takes it. Each of the
processes of ``pytest -n`` reads every file that it is given: ``make test`` gives them only files with tests to run.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Noted:
    """The files of the chosen tests, in the order in which they were collected."""

    def __init__(self) -> None:
        self.plain: list[str] = []
        self.spark: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        on_spark = [item for item in session.items if item.get_closest_marker("spark")]
        self.spark = _files(on_spark)
        self.plain = _files([item for item in session.items if item not in set(on_spark)])


def _files(items: list[pytest.Item]) -> list[str]:
    return list(dict.fromkeys(str(item.path.relative_to(ROOT)) for item in items))


def main(plain: str, spark: str, marks: str, *paths: str) -> int:
    """Write the paths; return 1, and print what pytest says, if a module cannot be read or there are no tests of one of both kinds."""
    noted, said = Noted(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", "-m", marks, *paths], plugins=[noted])
    if code != pytest.ExitCode.OK or not noted.plain or not noted.spark:
        sys.stderr.write(said.getvalue())
        return 1
    for place, files in ((plain, noted.plain), (spark, noted.spark)):
        Path(place).write_text("".join(f"{path}\n" for path in files), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
