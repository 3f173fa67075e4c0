"""Reads all modules of tests, as a first run of pytest does, and notes the files in which there are tests with some marks.

    python -m tests.reading_tests NOTED "not slow and not servers" core/tests plugins/sql/tests …

``NOTED`` has a path a line, as ``pytest @NOTED`` takes it. Each of the processes of ``pytest -n`` reads every file that it is given:
``make test`` gives them only files with tests to run.
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
        self.files: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.files = list(dict.fromkeys(str(item.path.relative_to(ROOT)) for item in session.items))


def main(place: str, marks: str, *paths: str) -> int:
    """Write the paths; return 1, and print what pytest says, if a module cannot be read or there is no test at all."""
    noted, said = Noted(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", "-m", marks, *paths], plugins=[noted])
    if code != pytest.ExitCode.OK or not noted.files:
        sys.stderr.write(said.getvalue())
        return 1
    Path(place).write_text("".join(f"{path}\n" for path in noted.files), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
