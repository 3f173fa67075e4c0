"""``make demo``: makes a log, runs the job on it through Spark, and shows what it found and the picture of its plan."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / "demo-output"
EVENTS = 120_000


def main() -> int:
    console = Console()
    shutil.rmtree(PLACE, ignore_errors=True)
    console.rule("1 · a log of 120,000 security events, 25 lines of it damaged")
    _run(HERE / "security_events.py", str(PLACE / "events"), "--events", str(EVENTS), "--damaged", "25")
    console.rule("2 · the job, on Spark (local)")
    headrace = Path(sys.executable).with_name("headrace")
    job = HERE / "suspicious_commands.py"
    subprocess.run([headrace, "run", job], cwd=HERE.parent, check=True)
    console.rule("3 · what it found")
    _show_alerts(console)
    console.rule("4 · the plan")
    subprocess.run([headrace, "explain", job], cwd=HERE.parent, check=True)
    picture = PLACE / "plan.svg"
    subprocess.run([headrace, "explain", job, "--format", "svg", "-o", picture], cwd=HERE.parent, check=True)
    console.print(f"The plan as a picture: [bold]{picture.relative_to(HERE.parent)}[/bold]")
    return 0


def _run(*command: str | Path) -> None:
    subprocess.run([sys.executable, *command], check=True)


def _rows(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for part in sorted(directory.glob("*.json")) for line in part.read_text().splitlines()]


def _show_alerts(console: Console) -> None:
    alerts = _rows(PLACE / "alerts")
    table = Table(title=f"{len(alerts)} suspicious commands; the first of each kind")
    for column in ("kind", "count", "host", "user", "command"):
        table.add_column(column, overflow="fold")
    counts = Counter(str(row["kind"]) for row in alerts)
    for kind, count in counts.most_common():
        row = next(row for row in alerts if row["kind"] == kind)
        table.add_row(kind, str(count), str(row["host"]), str(row["user"]), str(row["cmdline"]))
    console.print(table)
    bad = _rows(PLACE / "dead-letters")
    reasons = Table(title=f"{len(bad)} damaged lines went to the dead letters; the first five")
    for column in ("queue", "offset", "reason"):
        reasons.add_column(column, overflow="fold")
    for letter in bad[:5]:
        reasons.add_row(Path(str(letter["queue"])).name, str(letter["offset"]), str(letter["reason"]))
    console.print(reasons)


if __name__ == "__main__":
    sys.exit(main())
