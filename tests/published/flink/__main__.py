"""``make flink-programs``: runs Flink's programs from a checkout and writes a table of what came of them."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.published.flink.reading import NoPrograms, Program, programs_of
from tests.published.flink.reasons import REASONS
from tests.published.flink.running import Result, run_program

_MODES = ("one run", "stopped")
Results = dict[str, Result]


def main() -> int:
    """Return 1 if a program differs or is refused without a reason in ``reasons``, or has one and passes."""
    asked = _asked()
    try:
        programs = [each for each in programs_of() if re.search(asked.programs, each.name)]
    except NoPrograms as reason:
        print(reason, file=sys.stderr)
        return 2
    page = Path(asked.page).resolve()
    made: dict[str, Results] = {}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)  # dead letters of jobs without a checkpoint
        for number, program in enumerate(programs, 1):
            made[program.name] = _run(program, asked.backend)
            _say(number, len(programs), program, made[program.name], details=asked.details)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(table(made, asked.backend), encoding="utf-8")
    unexplained, idle = unexplained_of(made), idle_of(made)
    print(f"\n{summary(made)}\nThe table: {page}")
    for name in unexplained:
        print(f"no reason in reasons.py: {name}")
    for name in idle:
        print(f"passes, but has a reason in reasons.py: {name}")
    return 1 if unexplained or idle else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.published.flink", description=__doc__)
    parser.add_argument("programs", nargs="?", default="", help="regular expression of names; default: all")
    parser.add_argument("--backend", default="light", choices=("light", "spark"))
    parser.add_argument("--page", default="demo-output/flink-programs.md", help="where the table is written")
    parser.add_argument("--details", action="store_true", help="show texts and rows of what does not pass")
    return parser.parse_args()


def _run(program: Program, backend: str) -> Results:
    return {mode: run_program(program, mode, backend) for mode in _MODES}  # type: ignore[arg-type]


def outcome_of(results: Results) -> str:
    """Return one outcome of both ways: a program whose rows depend on the stop passes if it does so with the stop."""
    found = [each.outcome for each in results.values() if each.outcome != "no stop"]
    return "passes" if "passes" in found else found[0]


def unexplained_of(made: dict[str, Results]) -> list[str]:
    return [n for n, each in made.items() if outcome_of(each) in ("refused", "different") and n not in REASONS]


def idle_of(made: dict[str, Results]) -> list[str]:
    return [name for name, each in made.items() if name in REASONS and outcome_of(each) == "passes"]


def summary(made: dict[str, Results]) -> str:
    """Return the figures in a sentence."""
    counts = Counter(outcome_of(each) for each in made.values())
    asked = len(made) - counts["no SQL"]
    ways = "; ".join(
        f"{mode}: {sum(each[mode].outcome == 'passes' for each in made.values())} of "
        f"{sum(each[mode].outcome not in ('no SQL', 'no stop', 'the clock') for each in made.values())} pass"
        for mode in _MODES
    )
    rest = ", ".join(f"{count} {name}" for name, count in counts.most_common() if name != "passes")
    return f"{counts['passes']} of {asked} programs pass ({ways}); {rest}"


def table(made: dict[str, Results], backend: str) -> str:
    """Return the page: each program, what came of it, and why."""
    head = ["| program | one run | with a stop | why |", "|---|---|---|---|"]
    lines = [f"# Flink's programs on {backend}", "", summary(made), "", *head]
    for name, results in sorted(made.items()):
        why = "" if outcome_of(results) == "passes" else REASONS.get(name) or next(iter(results.values())).why
        line = why.strip().split("\n")[0][:300].replace("|", "\\|")
        lines.append(f"| {name} | {results['one run'].outcome} | {results['stopped'].outcome} | {line} |")
    return "\n".join([*lines, ""])


def _say(number: int, total: int, program: Program, results: Results, *, details: bool) -> None:
    outcome = outcome_of(results)
    print(f"{number}/{total} {program.name}: {outcome}", flush=True)
    if details and outcome not in ("passes", "no SQL"):
        for mode, each in results.items():
            if each.outcome != "passes":
                print(f"--- {mode}: {each.outcome}\n{each.why}\n")
        print(next(iter(results.values())).text)


if __name__ == "__main__":
    sys.exit(main())
