"""``python -m tests.nightly TARGET …``: runs targets of make one after the other, and writes one page of what came of them.

The page is written anew after each target, so that it is there when the run is stopped. A target that fails does not stop the others.
``HEADRACE_NIGHTLY_SKIPPED`` names targets that are left out, each with its reason: ``sigma=HEADRACE_SIGMA is not set;…``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

#: Lines of a target's output that say what it tried: pytest's last line, and what the fuzzers print.
_TELLS = re.compile(
    r"^(=+ .*\d+ (passed|failed|error|skipped).*=+|.*\b(seeds?|inputs|records|histories|FAULT|no fault)\b.*\d.*)$"
)
_FAILURES = re.compile(r"^(FAILED|ERROR) ")
_LINES_MAX = 60


@dataclass
class Outcome:
    """What came of one target."""

    target: str
    seconds: float
    code: int
    #: What it tried, and what failed.
    said: Sequence[str] = ()
    failures: Sequence[str] = ()
    log: Path | None = None

    @property
    def word(self) -> str:
        return "passed" if self.code == 0 else f"**failed** ({self.code})"


@dataclass
class Night:
    """A run: its outcomes so far, and the page of them."""

    page: Path
    skipped: Mapping[str, str]
    commit: str
    begun: datetime
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome and write the page."""
        self.outcomes.append(outcome)
        self.page.parent.mkdir(parents=True, exist_ok=True)
        self.page.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """Return the page, in Markdown."""
        lines = [
            "# Results of a nightly run", "",
            f"Begun {self.begun:%Y-%m-%d %H:%M} UTC, commit `{self.commit}`, {os.cpu_count()} cores, Python {sys.version.split()[0]}.", "",
            "| target | | minutes | output |", "|---|---|---|---|",
        ]  # fmt: skip
        for each in self.outcomes:
            said = " · ".join(each.said[-3:]).replace("|", "\\|")
            lines.append(f"| {each.target} | {each.word} | {each.seconds / 60:.1f} | {said} |")
        lines += [f"| {target} | left out | | {reason} |" for target, reason in self.skipped.items()]
        for each in self.outcomes:
            if each.code:
                shown = each.failures or ("no test is named; the end of the output says why",)
                lines += ["", f"## {each.target}", "", f"Output: `{each.log}`", "", "```", *shown[:_LINES_MAX], "```"]
        return "\n".join(lines) + "\n"


def run(target: str, command: Sequence[str], log: Path) -> Outcome:
    """Run one target; its output goes to the terminal and to ``log``."""
    begun = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    failures: list[str] = []
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            file.write(line)
            text = line.strip()
            if _FAILURES.match(text):
                failures.append(text[:300])
            elif _TELLS.match(text):
                said.append(text.strip("= ")[:200])
        code = process.wait()
    return Outcome(target, time.monotonic() - begun, code, said, failures, log)


def skipped_targets(text: str) -> dict[str, str]:
    """Return the reasons by target of ``target=reason;target=reason``."""
    pairs = (each.partition("=") for each in text.split(";") if each.strip())
    return {target.strip(): reason.strip() for target, _, reason in pairs}


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Runs targets of make one after the other, and writes a page of results."
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--page", type=Path, default=Path("demo-output/nightly.md"))
    parser.add_argument("--make", default="make", help="the program that runs a target")
    given = parser.parse_args(arguments)
    console = Console(stderr=True)
    night = Night(
        given.page, skipped_targets(os.environ.get("HEADRACE_NIGHTLY_SKIPPED", "")), _commit(), datetime.now(UTC)
    )
    for number, target in enumerate(given.targets, 1):
        console.rule(f"{number} of {len(given.targets)}: {target}")
        night.add(run(target, [given.make, target], given.page.parent / "nightly" / f"{target}.log"))
    failed = [each.target for each in night.outcomes if each.code]
    console.print(f"{given.page}: {len(night.outcomes) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
