"""A signal while a job waits, at its start or while it is built, for a server that is away."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WriteFile = Callable[..., Path]
SCRIPT = Path(sys.executable).with_name("headrace")
PATIENCE_SECONDS = 200
JOB = """
    import headrace as hr
    from headrace.foundation.errors import RetriableError
    from headrace.testing import MemorySource

    class Away(MemorySource):
        def {method}(self):
            raise RetriableError("the server is away")

    job = hr.stream("test", "away").from_(Away(){options}).print()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_waiting(write_file: WriteFile, tmp_path: Path, number: signal.Signals) -> None:
    job = write_file(JOB.format(method="queues", options=', format="json", schema={"n": "int64"}'))
    process = subprocess.Popen(
        [SCRIPT, "run", job, "-b", "light", "-o", "start_timeout=10 min"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        process.send_signal(number)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert told.startswith("job test.away waits for its sources, up to 600 s more: the server is away")
    assert "stopped before the job had started" in rest
    assert process.returncode == 0


def test_what_stays_away_is_an_error_that_says_how_long(write_file: WriteFile, tmp_path: Path) -> None:
    job = write_file(JOB.format(method="queues", options=', format="json", schema={"n": "int64"}'))
    done = subprocess.run(
        [SCRIPT, "run", job, "-b", "light", "-o", "start_timeout=0 s"],
        capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the server is away" in done.stderr
    assert "start_timeout" in done.stderr
