"""``python -m tests.fuzz.guided.run --seconds 300 [TARGET …]``: each target by libFuzzer, from its corpus and seeds on.

An input that is a fault is shown, kept in ``corpus/`` (so that the test of the corpus fails until it is mended) and ends the target.
``--keep`` also keeps what reached new code, as few inputs as reach all of it. Needs the package atheris.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.guided.corpus import INPUT_BYTES_MAX, load, save
from tests.fuzz.guided.minimizing import minimized
from tests.fuzz.guided.targets import TARGETS

#: An input that takes longer is a fault: 4 KiB are read in milliseconds.
INPUT_SECONDS_MAX = 20
MEMORY_MB_MAX = 4096
_FAULTS = ("crash-*", "timeout-*", "oom-*")


def _laid_out(directory: Path, inputs: list[bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(inputs):
        (directory / f"kept-{number}").write_bytes(data)


def _fuzzer(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.guided.process", target, *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def fuzz(target: str, seconds: int, *, keep: bool) -> bool:
    """Fuzz one target. Returns whether no fault was found."""
    begun = time.monotonic()
    known = [*load(target), *TARGETS[target].seeds]
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as place:
        inputs, faults = Path(place, "inputs"), Path(place, "faults")
        _laid_out(inputs, known)
        faults.mkdir()
        done = _fuzzer(
            target, str(inputs), f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_SECONDS_MAX}",
            f"-rss_limit_mb={MEMORY_MB_MAX}", f"-artifact_prefix={faults}/", "-print_final_stats=1",
        )  # fmt: skip
        found = [path.read_bytes() for pattern in _FAULTS for path in faults.glob(pattern)]
        kept = load(target)
        if keep:
            kept = minimized(TARGETS[target], [*kept, *(path.read_bytes() for path in inputs.iterdir())])
        if keep or found:
            save(target, [*kept, *found])
    runs = next((line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line), "?")
    fault = bool(found) or done.returncode != 0
    what = "FAULT" if fault else "no fault"
    print(f"{target:24} {what:9} {runs:>9} inputs in {time.monotonic() - begun:.0f} s", flush=True)
    if fault:
        # The traceback of Python is on the one, what libFuzzer says on the other.
        print("\n".join([*done.stdout.splitlines()[-40:], *done.stderr.splitlines()[-15:]]), flush=True)
    return not fault


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=300, help="for each target (300)")
    parser.add_argument("--keep", action="store_true", help="keep the inputs that reach new code in corpus/")
    given = parser.parse_args()
    unknown = sorted(set(given.targets) - set(TARGETS))
    if unknown:
        parser.error(f"no target is called {', '.join(unknown)}")
    results = [fuzz(target, given.seconds, keep=given.keep) for target in given.targets or TARGETS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
