"""The generated input of the golden cases."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

GENERATORS = Path(__file__).parent / "generators"


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sql-data")
    for script, *arguments in (
        ("opsgen.py", "--dir", str(place), "--tag", "a", "--seed", "11"),
        ("blinkgen.py", "--dir", str(place / "blink"), "--seed", "5"),
    ):
        subprocess.run([sys.executable, str(GENERATORS / script), *arguments], check=True, capture_output=True)
    return place


@pytest.fixture(autouse=True)
def nothing_defined() -> Iterator[None]:
    from headrace_sql import api

    api.forget()
    yield
    api.forget()
