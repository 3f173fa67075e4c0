"""Runs seeds and reports what differs: ``python -m tests.differential.fuzz 0-1000``.

Exit code 0: nothing is wrong; 1: the shrunk cases are printed, and written to ``fuzz-findings/``.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.differential.choices import Choices
from tests.differential.families import case_of, families, family_named, problem_of
from tests.differential.little_memory import limit_memory
from tests.differential.shrinking import kind_of, shrunk

_CHUNK = 20


def _run(task: tuple[range, str, str, bool]) -> list[tuple[int, str, list[int]]]:
    seeds, only, backend, little_memory = task
    if little_memory:
        limit_memory()
    found = []
    for seed in seeds:
        choices = Choices.of_seed(seed)
        try:
            problem = problem_of(choices, only, backend=backend)
        except Exception:  # a fault of the generator or of the oracle: it is a finding too
            problem = f"seed {seed}\n\nraised {traceback.format_exc()}"
        if problem is not None:
            found.append((seed, problem, choices.made))
    return found


def _results(tasks: list[tuple[range, str, str, bool]], workers: int) -> Iterator[list[tuple[int, str, list[int]]]]:
    if workers == 1:
        yield from map(_run, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(_run, tasks)


def seeds_of(text: str) -> range:
    """Return the seeds of ``FROM-TO`` (without TO), ``COUNT``, or ``=SEED``."""
    if text.startswith("="):
        return range(int(text[1:]), int(text[1:]) + 1)
    first, dash, last = text.partition("-")
    return range(int(first), int(last)) if dash else range(int(first))


def _keep(directory: Path, seed: int, text: str, made: list[int], only: str, backend: str) -> None:
    """Write a finding as a text, and as a golden case where its family can."""
    directory.mkdir(exist_ok=True)
    (directory / f"{seed}.txt").write_text(text + "\n", encoding="utf-8")
    with contextlib.suppress(Exception):  # the oracle may have refused it
        family, case = case_of(Choices.of_list(made), only, backend=backend)
        if family.golden is not None:
            (directory / f"{seed}.json").write_text(family.golden(case), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run seeds and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.fuzz")
    parser.add_argument("seeds", nargs="?", default="1000", help="FROM-TO, COUNT, or =SEED")
    parser.add_argument("--only", default="", help=f"one family of {', '.join(families())}")
    parser.add_argument(
        "--backend", default="light", choices=["light", "spark"], help="spark: one session, the families that can"
    )
    parser.add_argument(
        "--little-memory", action="store_true", help="keyed jobs of light keep their state beyond memory"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink", type=int, default=3, help="how many kinds of findings are shrunk")
    parser.add_argument("--tries", type=int, default=600, help="runs for shrinking one")
    given = parser.parse_args(arguments)
    seeds = seeds_of(given.seeds)
    if given.backend == "spark":  # one session for all jobs
        given.workers = 1
        if given.only and family_named(given.only).check_on_spark is None:
            parser.error(f"the family {given.only} has no check on Spark")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    tasks = [
        (seeds[at : at + _CHUNK], given.only, given.backend, given.little_memory) for at in range(0, len(seeds), _CHUNK)
    ]
    begun, done, findings = time.monotonic(), 0, []
    for found in _results(tasks, min(given.workers, len(tasks))):
        done = min(done + _CHUNK, len(seeds))
        findings += found
        for seed, problem, _ in found:
            sys.stderr.write(f"\nseed {seed}: {kind_of(problem)}\n")
        seconds = time.monotonic() - begun
        sys.stderr.write(f"\r{done:,} of {len(seeds):,} seeds in {seconds:.0f} s, {len(findings)} findings ")
        sys.stderr.flush()
    sys.stderr.write("\n")

    if given.little_memory:
        limit_memory()

    def check(choices: Choices) -> str | None:
        return problem_of(choices, given.only, backend=given.backend)

    kinds = Counter(kind_of(problem) for _, problem, _ in findings)
    shown: set[str] = set()
    for seed, problem, made in sorted(findings):
        kind = kind_of(problem)
        text = problem
        if kind not in shown and len(shown) < given.shrink:
            shown.add(kind)
            try:
                made, text = shrunk(made, check, tries=given.tries)
            except ValueError:
                text = f"not the same twice:\n{problem}"
            sys.stdout.write(f"\n──── seed {seed}, shrunk; {kinds[kind]} findings like it ────\n{text}\n")
        _keep(Path("fuzz-findings"), seed, text, made, given.only, given.backend)
    for kind, count in kinds.most_common():
        sys.stdout.write(
            f"{count:6}  {kind}: seeds {[seed for seed, problem, _ in findings if kind_of(problem) == kind][:12]}\n"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
