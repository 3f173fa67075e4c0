"""What `import headrace`, `headrace --help` and an idle job take of a processor, beside a Python that does nothing.

python -m benchmarks.start_up
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS = 5
IDLE_JOB = """
import sys, time, json
import headrace as hr
from headrace.testing import MemorySource, MemorySink
source = MemorySource({f"q{n}": [] for n in range(int(sys.argv[1]))})
handle = hr.stream("benchmark", "idle").from_(source, format="json", schema={"n": "int64"}).to(MemorySink()).start("light")
time.sleep(2)
before = time.process_time()
time.sleep(4)
print(json.dumps((time.process_time() - before) / 4))
handle.stop()
"""


def processor_seconds(*command: str) -> float:
    """Return the processor time of a whole process, in seconds: user and system."""
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def idle_share(queues: int) -> float:
    """Return the share of one core that an idle job on light takes."""
    found = subprocess.run([sys.executable, "-c", IDLE_JOB, str(queues)], capture_output=True, check=True, text=True)
    return float(json.loads(found.stdout))


def main() -> None:
    script = str(Path(sys.executable).with_name("headrace"))
    commands = {
        "import headrace": (sys.executable, "-c", "import headrace"),
        "headrace --help": (script, "--help"),
        "python -c pass": (sys.executable, "-c", "pass"),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            taken[name].append(processor_seconds(*command))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    for name, seconds in medians.items():
        ratio = seconds / medians["python -c pass"]
        print(f"{name}: {seconds:.3f} s of CPU, {ratio:.1f} × `python -c pass` ({ROUNDS} rounds, medians)")
    for queues in (1, 50):
        print(f"idle job, {queues} queue{'s' * (queues > 1)}: {idle_share(queues):.1%} of a core")


if __name__ == "__main__":
    main()
