"""Jobs that run as processes and are killed: numbered records from files into a sink. ``tests.killed_program`` is the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: So that one insert is small, and a job has many.
SMALL: Mapping[str, Any] = {"batch_size": 40, "flush_interval": "10 ms", "max_cached_rows": 100}


class KilledJobs:
    """Base of tests that kill jobs: no process is left behind, even by a test that fails."""

    #: How many files of records there are.
    FILES = 3
    processes: list[subprocess.Popen[bytes]]

    @pytest.fixture(autouse=True)
    def _no_process_is_left(self) -> Iterator[None]:
        self.processes = []
        yield
        for process in self.processes:
            process.kill()
            process.wait()

    def write_input(self, directory: Path, records: int) -> None:
        """Write so many numbered records."""
        (directory / "in").mkdir()
        for file in range(self.FILES):
            lines = [json.dumps({"id": n, "text": f"text {n}"}) for n in range(file, records, self.FILES)]
            (directory / "in" / f"{file}.ndjson").write_text("\n".join(lines) + "\n")

    def start_job(
        self, directory: Path, sink: str, options: Mapping[str, Any], faults: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a job that writes the records without every tenth. ``faults``: where the process kills itself."""
        with open(directory / "log.txt", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.killed_program", str(directory)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "HEADRACE_FAULTS": faults, "POLARS_MAX_THREADS": "1"},
            )
        self.processes.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps({"sink": sink, "options": {**SMALL, **options}}).encode())
        process.stdin.close()
        return process
