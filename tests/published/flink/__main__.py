"""``make flink-programs``: runs Flink's programs from a checkout and writes a table of what came of them."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.published.flink.reading import NoPrograms, Program, flink_itself, programs_of
from tests.published.flink.reasons import REASONS, Reason
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
        proved = as_flink([each for each in programs if failed(made, each.name)], asked.backend)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(table(made, proved, asked.backend), encoding="utf-8")
    unexplained, idle = unexplained_of(made, proved), idle_of(made)
    print(f"\n{summary(made, proved)}\nThe table: {page}")
    for name in unexplained:
        print(f"no reason in reasons.py, or Flink itself does other than it says: {name}")
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


def failed(made: dict[str, Results], name: str) -> bool:
    return outcome_of(made[name]) in ("refused", "different")


def as_flink(programs: list[Program], backend: str) -> set[str]:
    """Return the programs whose reason is proved: Flink itself, without a stop, gives what headrace gives, or refuses them, too."""
    asked = [each for each in programs if each.name in REASONS]
    found = flink_itself([each.name for each in asked])
    return {each.name for each in asked if _is_proved(each, REASONS[each.name], found[each.name], backend)}


def _is_proved(program: Program, reason: Reason, found: dict[str, Any], backend: str) -> bool:
    if reason.flink == "refuses it, too":
        return "error" in found and run_program(program, "one run", backend).outcome == "refused"
    return "error" not in found and run_program(program, "one run", backend, wanted=found).outcome == "passes"


def unexplained_of(made: dict[str, Results], proved: set[str]) -> list[str]:
    return [name for name in made if failed(made, name) and name not in proved]


def idle_of(made: dict[str, Results]) -> list[str]:
    return [name for name, each in made.items() if name in REASONS and outcome_of(each) == "passes"]


def summary(made: dict[str, Results], proved: set[str]) -> str:
    """Return the figures in a sentence."""
    counts = Counter(outcome_of(each) for name, each in made.items() if name not in proved)
    asked = len(made) - counts["no SQL"]
    ways = "; ".join(
        f"{mode}: {sum(each[mode].outcome == 'passes' for each in made.values())} of "
        f"{sum(each[mode].outcome not in ('no SQL', 'no stop', 'the clock') for each in made.values())} pass"
        for mode in _MODES
    )
    claims = Counter(REASONS[name].flink for name in proved)
    alike = [f"{count} where Flink {claim}" for claim, count in sorted(claims.items())]
    rest = [f"{count} {name}" for name, count in counts.most_common() if name != "passes"]
    return "; ".join(
        [
            f"{counts['passes']} of {asked} programs pass ({ways})",
            *([", ".join([*alike, *rest])] if alike or rest else []),
        ]
    )


def table(made: dict[str, Results], proved: set[str], backend: str) -> str:
    """Return the page: each program, what came of it, and why."""
    head = ["| program | one run | with a stop | why |", "|---|---|---|---|"]
    lines = [f"# Flink's programs on {backend}", "", summary(made, proved), "", *head]
    for name, results in sorted(made.items()):
        line = _why(name, results, proved).strip().split("\n")[0][:300].replace("|", "\\|")
        lines.append(f"| {name} | {results['one run'].outcome} | {results['stopped'].outcome} | {line} |")
    return "\n".join([*lines, ""])


def _why(name: str, results: Results, proved: set[str]) -> str:
    if outcome_of(results) == "passes":
        return ""
    if name in proved:
        return f"{REASONS[name].why} (Flink {REASONS[name].flink})"
    return next(iter(results.values())).why


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
