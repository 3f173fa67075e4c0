"""Runs one measurement in a process of its own, on given cores, and takes the system's word for its CPU time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Measured:
    """What a process took. ``figures`` is the JSON object that it printed last."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_mb: float
    figures: Mapping[str, Any]


def measure(
    module: str, *arguments: str, cores: Sequence[int] | None = None, environment: Mapping[str, str] | None = None
) -> Measured:
    """Run ``python -m module arguments`` and return what it took; raises RuntimeError with its output when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, set(cores)),
    )
    peak = _Peak(process.pid)
    out, err = peak.communicate(process)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise RuntimeError(f"{module} {arguments} failed:\n{err.decode()[-4000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(wall, cpu, peak.megabytes, json.loads(out.decode().strip().splitlines()[-1]))


def cpu_seconds() -> float:
    """Return what this process and its children, also those that have ended, have used."""
    own = psutil.Process()
    found = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def machine_seconds() -> float:
    """Return the processor time of the whole machine that was not idle, also what its host took for others."""
    times = psutil.cpu_times()
    return float(
        sum(times)
        - times.idle
        - getattr(times, "iowait", 0.0)
        - getattr(times, "guest", 0.0)
        - getattr(times, "guest_nice", 0.0)
    )


#: How often memory is looked at, and at most which part of a core that takes: the kernel walks over all pages of all processes.
_SAMPLE_SECONDS_MIN = 0.25
_SAMPLING_PART_MAX = 0.02


class _Peak:
    """The greatest memory (proportional set size) of a process and its children, sampled."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.megabytes = 0.0

    def communicate(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        wait = _SAMPLE_SECONDS_MIN
        while True:
            try:
                return process.communicate(timeout=wait)
            except subprocess.TimeoutExpired:
                begun = time.process_time()
                self._sample()
                wait = max(_SAMPLE_SECONDS_MIN, (time.process_time() - begun) / _SAMPLING_PART_MAX)

    def _sample(self) -> None:
        total = 0
        for one in [self._process, *_children(self._process)]:
            try:
                total += one.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.megabytes = max(self.megabytes, total / 1e6)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
