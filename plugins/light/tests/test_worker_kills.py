"""Workers and engine of a job are killed again and again at random moments: files have each row once.

``HEADRACE_WORKER_KILLS`` says how many kills; ``HEADRACE_WORKER_SEED`` which.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

_KILLS = int(os.environ.get("HEADRACE_WORKER_KILLS", "30"))
_SEED = int(os.environ.get("HEADRACE_WORKER_SEED", "19"))
_RECORDS = 60_000
_ROOT = Path(__file__).parents[3]


def _write(directory: Path) -> None:
    directory.mkdir(parents=True)
    for name in range(2):
        lines = (b'{"k": "k%d", "n": %d}' % (n % 7, n) for n in range(_RECORDS))
        (directory / f"{name}.ndjson").write_bytes(b"\n".join(lines) + b"\n")


def _kill_one(engine: subprocess.Popen[bytes], rng: random.Random) -> str | None:
    """Kill a worker, or now and then the engine; return which was killed."""
    try:
        workers = psutil.Process(engine.pid).children()
    except psutil.NoSuchProcess:
        return None
    kills_engine = rng.random() < 0.3
    if not (workers or kills_engine):
        return None
    victim = engine.pid if kills_engine else rng.choice(workers).pid
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return "engine" if kills_engine else "worker"


def _round(place: Path, rng: random.Random) -> dict[str, int]:
    """Run the job to its end, whatever is killed on the way; return how often what was killed."""
    command = [sys.executable, str(Path(__file__).with_name("workers_job.py")), str(place)]
    killed, patience = {"engine": 0, "worker": 0}, 1.0
    while True:
        patience *= 1.05  # on a busy machine an engine may be killed again and again before it has done anything
        with (place / "log.txt").open("ab") as log:
            # The job imports a helper of ``tests``, which a script does not find from where it stands.
            found = os.pathsep.join(map(str, (_ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))))
            environment = {**os.environ, "PYTHONPATH": found}
            engine = subprocess.Popen(command, stderr=log, start_new_session=True, env=environment)
        pause = threading.Event()
        while engine.poll() is None:
            pause.wait(rng.uniform(0.05, 1.5) * patience)
            which = _kill_one(engine, rng)
            if which is not None:
                killed[which] += 1
        # A batch that has lost three workers, or three workers in turn that could not begin, end the job, as they should.
        assert engine.returncode in (0, -signal.SIGKILL, 1), (place / "log.txt").read_text()[-3000:]
        if engine.returncode == 1:
            last = (place / "log.txt").read_text().strip().splitlines()[-2:]
            assert any("3 times while they processed" in line or "before they begin" in line for line in last), last
        if engine.returncode == 0:
            return killed


@pytest.mark.slow
def test_whatever_is_killed_files_have_each_row_once(tmp_path: Path) -> None:
    rng = random.Random(_SEED)
    killed = {"engine": 0, "worker": 0}
    for number in range(_KILLS):
        if sum(killed.values()) >= _KILLS:
            break
        place = tmp_path / str(number)
        _write(place / "input")
        for which, count in _round(place, rng).items():
            killed[which] += count
        written = [path.read_text().splitlines() for path in (place / "output").glob("*.json")]
        found = sorted((row["file"], row["n"]) for lines in written for row in map(json.loads, lines))
        assert found == [(f"{name}.ndjson", n) for name in range(2) for n in range(_RECORDS) if n % 3]
    assert sum(killed.values()) >= _KILLS, killed
    assert min(killed.values()) > 0, killed
    print(killed)
