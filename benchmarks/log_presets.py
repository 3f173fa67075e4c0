"""Lines per second of each preset of logs, on one core: ``python -m benchmarks.log_presets [preset …]``.

The lines are those of the tests: all variants of a log in equal shares, and the usual line of the program alone. They are
decoded as bodies, in batches, to all columns of the preset. The table is that of docs/log-presets.md.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import headrace as hr
from headrace_logpresets.presets import Choices, presets

TESTS = Path(__file__).resolve().parents[1] / "contrib" / "logpresets" / "tests"
LINES = 40_000
BATCH = 10_000
ROUNDS = 3


def lines_of(preset: str) -> list[bytes]:
    """Return the lines of the tests that are records of a preset, the usual one first."""
    sys.path.insert(0, str(TESTS))
    try:
        golden = importlib.import_module("preset_lines").GOLDEN
    finally:
        sys.path.remove(str(TESTS))
    found = [line for name, line, _ in golden if name == preset]
    variants = [json.loads(line) for line in (TESTS / "variants" / f"{preset}.ndjson").read_text().splitlines()]
    found += [each["line"] for each in variants if each["columns"] is not None]
    usual = USUAL.get(preset)
    return [line.encode() for line in sorted(found, key=lambda line: usual is None or usual not in line)]


#: What is in the line that is most frequent in the log, where it is not the first one of the tests.
USUAL = {"sshd": "Failed password for invalid user", "auditd": "type=SYSCALL", "dnsmasq-dhcp": "DHCPACK"}


def rate(decoder: hr.Decoder, lines: list[bytes]) -> float:
    """Return the lines per second of CPU, best of some rounds."""
    bodies = hr.Bodies.of([lines[number % len(lines)] for number in range(BATCH)])
    refused = decoder.decode(bodies).bad  # and compiles what is compiled once in a process
    assert not refused, refused[0]
    taken = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(LINES // BATCH):
            decoder.decode(bodies)
        taken.append(time.process_time() - begun)
    return LINES / min(taken)


def measured(name: str) -> dict[str, Any]:
    """Return the figures of a preset."""
    preset = presets()[name]
    choices = Choices(header=preset.syslog, year=2026)
    columns = preset.columns(choices)
    decoder = preset.decoder(choices, dict(columns))
    lines = lines_of(name)
    return {
        "preset": name,
        "bytes": len(lines[0]),
        "columns": len(columns),
        "usual": rate(decoder, lines[:1]),
        "mixed": rate(decoder, lines),
    }


def main() -> None:
    names = sys.argv[1:] or sorted(presets())
    print("| preset | columns | bytes of the usual line | lines/s: the usual line | all variants |")
    print("|---|---|---|---|---|")
    for name in names:
        found = measured(name)
        usual, mixed = (f"{round(found[key], -3):,.0f}" for key in ("usual", "mixed"))
        print(f"| `{name}` | {found['columns']} | {found['bytes']} | {usual} | {mixed} |", flush=True)


if __name__ == "__main__":
    main()
