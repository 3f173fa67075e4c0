"""kill -9 in the middle of appends: what was acknowledged is there, once, in whole records; what is gone is in a gap that is reported."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_buffer import RecordLog

CHILD = Path(__file__).with_name("appending_child.py")
BODY = re.compile(rb"(\d+) (\d+) (\d+) (x*)")


def run_until_killed(directory: Path, quota_bytes: int, lines: int) -> dict[int, tuple[int, int]]:
    """Kill the child after so many acknowledgements; return thread and number of records by their offset, for all that it said."""
    process = subprocess.Popen([sys.executable, str(CHILD), str(directory), str(quota_bytes)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    said += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    found = {}
    for line in said:
        if not line.endswith(b"\n"):
            continue
        first, thread, number = map(int, line.split())
        found.update({first + i: (thread, number - 3 + i) for i in range(3)})
    return found


def check(directory: Path, quota_bytes: int, acknowledged: dict[int, tuple[int, int]], begin: int) -> int:
    """Check what is there after a kill; return the offset at which the next process begins."""
    with RecordLog(directory, quota_bytes=quota_bytes, when_full="drop_oldest") as log:
        offset = log.earliest
        numbers: dict[tuple[bytes, bytes], int] = {}
        while (records := log.read(offset, 1000)) is not None:
            assert records.first == offset
            for at, body in enumerate(records.bodies, records.first):
                found = BODY.fullmatch(body)
                assert found is not None, body
                process, thread, number = found[1], found[2], int(found[3])
                assert len(found[4]) == (number - number % 3) * 37 % 900
                assert numbers.get((process, thread), number - 1) == number - 1, "records of a thread follow each other"
                numbers[process, thread] = number
                if at >= begin:
                    assert acknowledged.get(at, (int(thread), number)) == (int(thread), number)
            offset = records.end
        assert acknowledged
        assert max(acknowledged) < log.latest
        status = log.status()
        assert sum(gap.end - gap.first for gap in status.gaps) == status.dropped_oldest or len(status.gaps) == 100
        return log.latest


def storm(directory: Path, quota_bytes: int, rounds: int, chance: random.Random) -> None:
    begin = 0
    for _ in range(rounds):
        acknowledged = run_until_killed(directory, quota_bytes, chance.randrange(1, 400))
        assert min(acknowledged) >= begin
        begin = check(directory, quota_bytes, acknowledged, begin)


def test_kills(tmp_path: Path) -> None:
    storm(tmp_path / "log", 256 * 1024, 2, random.Random(5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    storm(tmp_path / "log", 1024**2 if seed % 2 else 128 * 1024, 50, random.Random(seed))
